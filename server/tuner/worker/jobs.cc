#include "server/tuner/worker/jobs.h"

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cuda/device.h"
#include "server/tuner/check/check_run.h"
#include "server/tuner/measure/measure.h"
#include "server/tuner/run/target_device.h"
#include "server/tuner/worker/propose.h"

namespace athanor {

absl::Status WorkerJobs::Answer(const internal::WorkerJob& job, absl::FunctionRef<void()> drawn,
                                internal::WorkerReply* reply) {
  switch (job.kind_case()) {
    case internal::WorkerJob::kCheck:
      return ServeCheckJob(job.check(), drawn);
    case internal::WorkerJob::kPlan:
      return plans_.Serve(job.plan(), drawn);
    case internal::WorkerJob::kMeasure: {
      const std::chrono::steady_clock::time_point end(
          std::chrono::microseconds(job.measure().end_us()));
      ASSIGN_OR_RETURN(*reply->mutable_measure(),
                       MeasurePlans(job.measure().request(), {}, traffic_, &measured_, end, drawn));
      return absl::OkStatus();
    }
    case internal::WorkerJob::kPropose: {
      ASSIGN_OR_RETURN(*reply->mutable_object(), ServeProposeJob(job.propose(), drawn));
      return absl::OkStatus();
    }
    case internal::WorkerJob::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a job of no kind");
}

internal::WorkerReply WorkerJobs::Serve(const internal::WorkerJob& job,
                                        absl::FunctionRef<void()> drawn) {
  internal::WorkerReply reply;
  const absl::Status status = Answer(job, drawn, &reply);
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
  reply.set_short_of_memory(IsShortOfMemory(status));
  const absl::StatusOr<CudaDevice*> gpu = TheGpu();
  reply.set_lost(!gpu.ok() || !(*gpu)->loss().ok());
  return reply;
}

}  // namespace athanor
