#include "server/tuner/worker/propose.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/plan/planner.h"
#include "compiler/search/kernels/schedule.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cuda/device.h"
#include "runtime/program/checked_call.h"
#include "server/tuner/run/target_device.h"

namespace athanor {
namespace {

constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();
// Schedules have ranks far below.
constexpr int kMostProposals = 64;

absl::StatusOr<kir::Kernel> ParseCall(const std::string& text) {
  ASSIGN_OR_RETURN(kir::Kernel kernel, kir::ParseKernel(text));
  RETURN_IF_ERROR(kir::Verify(kernel));
  if (kir::CallOf(kernel) != nullptr) return kernel;
  return absl::InvalidArgumentError("the kernel is code, not a library call");
}

// Returns the call in each of its ways. Buffers may have any size, which the plan's loader checks.
absl::StatusOr<std::vector<LibraryCall>> WaysOf(const kir::Kernel& kernel) {
  std::vector<CallBuffer> buffers;
  for (const kir::Buffer& buffer : kernel.buffers) {
    buffers.push_back({std::string(DTypeName(buffer.dtype)), kAnyBytes});
  }
  return CheckedCall(LibraryCallOf(kernel), kir::CallOf(kernel)->ways.back(), buffers);
}

// Returns the most of the schedules' limits that is below `workspace`; -1: there is none.
int64_t LowerLimit(int64_t workspace) {
  int64_t lower = -1;
  for (const int64_t limit : kCallWorkspaces) {
    if (limit < workspace) lower = std::max(lower, limit);
  }
  return lower;
}

}  // namespace

absl::StatusOr<v1::LibraryObject> ProposeObject(const internal::ProposeJob& job,
                                                ProposeWays propose) {
  ASSIGN_OR_RETURN(const kir::Kernel kernel, ParseCall(job.text()));
  const int rank = kir::CallOf(kernel)->proposal;
  if (rank >= kMostProposals) {
    return absl::InvalidArgumentError(
        absl::StrCat("proposal ", rank, "; it must be 0 to ", kMostProposals - 1));
  }
  ASSIGN_OR_RETURN(const std::vector<LibraryCall> ways, WaysOf(kernel));
  const int64_t workspace = ways.front().workspace_bytes;
  v1::LibraryObject object;
  object.set_library(job.library());
  int64_t needed = 0;
  for (const LibraryCall& way : ways) {
    ASSIGN_OR_RETURN(const std::vector<LibraryCall> proposals, propose(way, rank + 1, workspace));
    const int count = static_cast<int>(proposals.size());
    const int least = &way == &ways.front() ? rank + 1 : 1;
    if (count < least) {
      return absl::OutOfRangeError(absl::StrCat(
          job.library(), " proposes ", count, " ways to multiply ", way.rows, " rows with ",
          workspace, " bytes of workspace; proposal ", rank, " needs ", least));
    }
    const LibraryCall& chosen = proposals[std::min(rank, count - 1)];
    needed = std::max(needed, chosen.workspace_bytes);
    object.add_algorithms(chosen.algorithm);
  }
  const int64_t lower = LowerLimit(workspace);
  if (job.refuse_poor() && needed <= lower) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "it needs ", needed, " bytes of workspace; a schedule with ", lower, " bytes has it, too"));
  }
  return object;
}

absl::StatusOr<v1::LibraryObject> ServeProposeJob(const internal::ProposeJob& job,
                                                  absl::FunctionRef<void()> drawn) {
  v1::Target target;
  target.set_device("cuda");
  absl::StatusOr<v1::LibraryObject> object = absl::UnknownError("not proposed");
  const absl::Status status = RunOnDevice(target, /*threads=*/1, [&](Device*) -> absl::Status {
    ASSIGN_OR_RETURN(const CudaDevice* const gpu, TheGpu());
    RETURN_IF_ERROR(gpu->Enter());
    ASSIGN_OR_RETURN(const CudaLibrary* const library, gpu->library());
    if (library->version() != job.library()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the kernel calls ", job.library(), ", and the device worker has ",
                       library->version(), "; a server that is started again has the same"));
    }
    drawn();
    absl::Status asked;
    object = ProposeObject(job, [&](const LibraryCall& call, int most, int64_t most_workspace) {
      absl::StatusOr<std::vector<LibraryCall>> proposals =
          library->Propose(call, most, most_workspace);
      asked.Update(proposals.status());
      return proposals;
    });
    // What ProposeObject refuses is no lack of the GPU's memory, however little of it is free.
    return asked;
  });
  if (!status.ok()) return status;
  return object;
}

}  // namespace athanor
