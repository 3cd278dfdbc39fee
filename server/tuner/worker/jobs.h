// Does the jobs of a device worker, one after the other, in the process that has the GPU.
//
//   WorkerJobs jobs(&traffic);
//   internal::WorkerReply reply = jobs.Serve(job, [] {});
#ifndef ATHANOR_SERVER_TUNER_WORKER_JOBS_H_
#define ATHANOR_SERVER_TUNER_WORKER_JOBS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/athanor/internal/worker.pb.h"
#include "server/base/traffic.h"
#include "server/tuner/check/plan_subjects.h"
#include "server/tuner/measure/measured_inputs.h"

namespace athanor {

// Used by one thread.
class WorkerJobs {
 public:
  // `traffic` must outlive it.
  explicit WorkerJobs(const TrafficReader* traffic) : traffic_(*traffic) {}

  // Calls `drawn` when it has the inputs and begins to run. Says in the reply if the GPU is lost:
  // nothing more runs there.
  internal::WorkerReply Serve(const internal::WorkerJob& job, absl::FunctionRef<void()> drawn);

 private:
  absl::Status Answer(const internal::WorkerJob& job, absl::FunctionRef<void()> drawn,
                      internal::WorkerReply* reply);

  const TrafficReader& traffic_;
  // Inputs from one job to the next: schedules of one task are run on the same.
  InputMemory measured_;
  PlanJobs plans_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_WORKER_JOBS_H_
