// Runs the kernels of a check (check.h), beside nothing that their results are compared with.
//
//   // In a process that runs kernels:
//   CheckRun run = {request, references.graph, cases, refused, nullptr};
//   absl::Status status = RunCheck(run, device);
//   // the cases' outputs hold the results
#ifndef ATHANOR_SERVER_TUNER_CHECK_CHECK_RUN_H_
#define ATHANOR_SERVER_TUNER_CHECK_CHECK_RUN_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/internal/worker.pb.h"
#include "runtime/device/device.h"
#include "server/tuner/check/references.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

struct CheckRun {
  // The sizes and inputs of a case, and the memory that its kernels write.
  struct Case {
    const ReferenceCase& reference;
    std::vector<absl::string_view> inputs;  // in the order of graph.ArgumentIds()
    std::vector<absl::Span<char>> outputs;  // by graph.outputs; none where an index is out of range
  };

  const internal::CheckRequest& request;
  const Graph& graph;  // References::graph
  std::vector<Case> cases;
  // By case: the kernels found an index out of range, and not all indices of the case were
  // examined.
  char* refused = nullptr;
  const SharedMemory* window = nullptr;  // for large prepared weights; null: in memory
};

// Errors name the case: DATA_LOSS if an index out of range goes unnoticed, or one in range is
// refused, INVALID_ARGUMENT if plan and graph do not fit together, and the runtime's.
absl::Status RunCheck(const CheckRun& run, Device* device);

// The job that has the device worker do the same. `outputs` are by case.
internal::CheckJob CheckJobOf(const CheckRun& run,
                              const std::vector<std::vector<GuardedBytes>*>& outputs,
                              const SharedMemory& refused);
// Does it, in the worker: with inputs that it draws itself, and with gaps between the arguments of
// each launch (canaries.h). Calls `drawn` when it has these. DATA_LOSS also if a kernel writes
// there.
absl::Status ServeCheckJob(const internal::CheckJob& job, absl::FunctionRef<void()> drawn);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_CHECK_RUN_H_
