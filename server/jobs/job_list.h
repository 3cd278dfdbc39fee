// The compile jobs of this process by id: those that have not finished, and finished ones until
// there are more than --max_compile_jobs. Thread-safe.
//
//   JobList jobs(options.max_compile_jobs);
//   std::shared_ptr<CompileJob> job = jobs.New(version, nullptr, policy, std::nullopt);
//   jobs.Find(job->id()).value() == job
#ifndef ATHANOR_SERVER_JOBS_JOB_LIST_H_
#define ATHANOR_SERVER_JOBS_JOB_LIST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/base/search_policy.h"
#include "server/jobs/compile_job.h"
#include "server/models/model_version.h"

namespace athanor {

class Tracer;

class JobList {
 public:
  // `tracer` may be null, and outlives it.
  explicit JobList(int64_t most, Tracer* tracer = nullptr);

  // Makes a job with an id of its own, and names it in the slot that it makes a plan for. `tapped`
  // is null but for a plan with taps.
  std::shared_ptr<CompileJob> New(const std::shared_ptr<ModelVersion>& version,
                                  const std::shared_ptr<TapPlan>& tapped, SearchPolicy policy,
                                  std::optional<BucketGrid::Ranges> buckets);
  // Forgets finished jobs above the limit, the oldest first, and all but the latest of deleted
  // models.
  void Forget();

  absl::StatusOr<std::shared_ptr<CompileJob>> Find(const std::string& id) const;
  // Returns jobs, the newest first; an empty model means all.
  std::vector<std::shared_ptr<CompileJob>> List(absl::string_view model) const;

 private:
  const int64_t most_;
  const std::string id_prefix_;
  Tracer* const tracer_;  // null: jobs are not recorded
  mutable Mutex mu_;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::shared_ptr<CompileJob>> jobs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_JOB_LIST_H_
