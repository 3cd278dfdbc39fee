// The tuner's end of its device worker: the process beside it that runs what is for a GPU
// (server/tuner/worker).
//
//   DeviceWorker worker(kWorkerFd, Scratch::Open(kWorkerMemoryFd, /*least=*/0));
//   internal::WorkerJob job;
//   *job.mutable_check() = ...;
//   absl::Status status = worker.Run("a checked kernel", limits, &job).status();
//
// A job's results lie in `memory()`, which both processes map; what they are compared with does
// not.
#ifndef ATHANOR_SERVER_TUNER_RUN_DEVICE_WORKER_H_
#define ATHANOR_SERVER_TUNER_RUN_DEVICE_WORKER_H_

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/internal/worker.pb.h"
#include "server/tuner/run/isolated.h"
#include "server/tuner/run/scratch.h"

namespace athanor {

// Used by one thread at a time.
class DeviceWorker {
 public:
  // `fd` is a socket; `memory` is of a file that the worker has under the same number.
  DeviceWorker(int fd, Scratch memory) : fd_(fd), memory_(std::move(memory)) {}

  // Completes the job and runs it. Errors are those of RunIsolated and RunOnDevice, and INTERNAL if
  // the reply is none, or to another job. If nobody is left to answer, this process ends
  // (kTunerExitWorker): its parent starts both anew.
  absl::StatusOr<internal::WorkerReply> Run(absl::string_view what, const IsolationLimits& limits,
                                            internal::WorkerJob* job);

  Scratch& memory() { return memory_; }

 private:
  const int fd_;
  Scratch memory_;
};

// Describes memory to the worker, and finds what was described. INVALID_ARGUMENT: there is none of
// that kind.
internal::SharedBytes ToMessage(const GuardedBytes& bytes);
internal::SharedBytes ToMessage(const SharedMemory& memory);
absl::StatusOr<GuardedBytes> GuardedFrom(const internal::SharedBytes& message);
absl::StatusOr<SharedMemory> SharedFrom(const internal::SharedBytes& message);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_DEVICE_WORKER_H_
