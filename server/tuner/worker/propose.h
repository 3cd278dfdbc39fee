// Asks a GPU's library how it computes the product that a kernel's text tells of.
//
//   ASSIGN_OR_RETURN(v1::LibraryObject object, ServeProposeJob(job.propose(), drawn));
#ifndef ATHANOR_SERVER_TUNER_WORKER_PROPOSE_H_
#define ATHANOR_SERVER_TUNER_WORKER_PROPOSE_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "proto/athanor/internal/worker.pb.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/device/library_call.h"

namespace athanor {

// Returns what CudaLibrary::Propose does.
using ProposeWays = absl::FunctionRef<absl::StatusOr<std::vector<LibraryCall>>(
    const LibraryCall& call, int most, int64_t most_workspace)>;

// Returns one algorithm for each way of the call: of the library's proposals the one whose rank the
// text has, or its last. INVALID_ARGUMENT: the text is no call that verifies. OUT_OF_RANGE: the
// first way has fewer proposals, or another has none. RESOURCE_EXHAUSTED: what was chosen needs no
// more workspace than a lower limit of the schedules gives, which a job may refuse as poor. Other
// errors are those of `propose`.
absl::StatusOr<v1::LibraryObject> ProposeObject(const internal::ProposeJob& job,
                                                ProposeWays propose);

// Does so with the library of the worker's GPU, and calls `drawn` once it is there.
// FAILED_PRECONDITION: there is none, or it is another one. Other errors are those of RunOnDevice.
absl::StatusOr<v1::LibraryObject> ServeProposeJob(const internal::ProposeJob& job,
                                                  absl::FunctionRef<void()> drawn);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_WORKER_PROPOSE_H_
