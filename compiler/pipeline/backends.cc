#include "compiler/pipeline/backends.h"

#include "compiler/codegen/cpu/dialect.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

absl::Status VerifyCpu(const kir::Kernel& kernel) {
  if (kernel.team > 1) {
    return absl::InternalError(Cat("kernel ", Quoted(kernel.name), " is of teams of ", kernel.team,
                                   " threads; on a CPU an item has one"));
  }
  for (const kir::Buffer& b : kernel.buffers) {
    if (b.space != kir::Space::kLaunch) continue;
    return absl::InternalError(Cat("kernel ", Quoted(kernel.name), " has memory of the launch; on ",
                                   "a CPU items share nothing"));
  }
  return absl::OkStatus();
}

constexpr Backend kBackends[] = {
    {"cpu", VerifyCpu, [](const kir::Kernel& kernel) { return kernel.ScratchBytes(); },
     PrintCpuKernel},
    {"cuda", VerifyCuda, CudaWorkspaceBytes, PrintCudaKernel},
};

}  // namespace

absl::StatusOr<const Backend*> FindBackend(std::string_view device) {
  std::string known;
  for (const Backend& backend : kBackends) {
    if (backend.device == device) return &backend;
    known += (known.empty() ? "" : ", ") + std::string(backend.device);
  }
  return Invalid("target: device ", Quoted(device), " has no backend; there are: ", known);
}

}  // namespace athanor
