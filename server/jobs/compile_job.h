// A compile job: its state as clients see it, and its watchers.
//
//   job->Update([](v1::CompileJob& state) { state.set_phase(v1::CompileJob::CHECKING); });
//   uint64_t id = job->Watch([=] { /* something changed: read job->state() when convenient */ });
//
// Watchers are only notified that something is new; the job never waits for them. Thread-safe.
#ifndef ATHANOR_SERVER_JOBS_COMPILE_JOB_H_
#define ATHANOR_SERVER_JOBS_COMPILE_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/athanor/v1/compile.pb.h"
#include "server/base/search_policy.h"
#include "server/jobs/job_spans.h"
#include "server/models/model_version.h"

namespace athanor {

class CompileJob {
 public:
  // Makes the plan that serves `version`, or, if `tapped` is set, one of its plans with taps.
  // `policy` is that of its search. `trace` is null if it is not recorded.
  CompileJob(std::string id, std::shared_ptr<ModelVersion> version,
             std::shared_ptr<TapPlan> tapped = nullptr, SearchPolicy policy = {},
             std::optional<BucketGrid::Ranges> buckets = std::nullopt,
             std::shared_ptr<Trace> trace = nullptr);

  const std::string& id() const { return id_; }
  const std::string& model() const { return model_; }
  // Null once the job has released the version and that was deleted.
  std::shared_ptr<ModelVersion> version() const;
  // Releases the version: a finished job must not keep a deleted version alive, whose graph may be
  // large. REQUIRES: the job has finished, and its worker is done with it.
  void LetGoOfVersion();
  const SearchPolicy& policy() const { return policy_; }
  // The version's new buckets; nullopt: buckets stay as they are.
  const std::optional<BucketGrid::Ranges>& buckets() const { return buckets_; }
  bool for_taps() const { return for_taps_; }
  // The plan with taps that the job makes; null for other jobs and once the job has finished, since
  // finished jobs hold no plans.
  std::shared_ptr<TapPlan> tapped() const;
  // The slot for the plan; null once a job for taps has finished, or once the version is gone.
  std::shared_ptr<PlanSlot> slot() const;

  // Sets `*sequence` to the number of changes so far.
  v1::CompileJob state(uint64_t* sequence = nullptr) const;
  bool finished() const;

  // Changes the state. Percent never falls; a finished job does not change.
  void Update(absl::FunctionRef<void(v1::CompileJob&)> change);
  void Enter(v1::CompileJob::Phase phase, float percent, std::string message);
  // `status` is the error for STOP_ERROR or STOP_SEARCH_FAILED.
  void Finish(const absl::Status& status, v1::CompileJob::StopReason reason);

  // Notes why something had to be compiled although it was stored: becomes part of the last
  // message.
  void NoteWhy(std::string why);
  // Ends the job with its plan restored and no search.
  void FinishRestored(const ServedPlan& plan);

  // Asks the job to stop, which it does at its next step. The first reason counts.
  void RequestStop(v1::CompileJob::StopReason reason);
  std::optional<v1::CompileJob::StopReason> stop_requested() const;

  // `changed` must be short and must not call back into the job. It is not called after Unwatch has
  // returned.
  uint64_t Watch(absl::AnyInvocable<void()> changed);
  void Unwatch(uint64_t id);

 private:
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string id_;
  const std::string model_;
  const bool for_taps_;
  const SearchPolicy policy_;
  const std::optional<BucketGrid::Ranges> buckets_;
  mutable Mutex mu_;
  std::shared_ptr<ModelVersion> version_ ABSL_GUARDED_BY(mu_);  // null: released
  std::weak_ptr<ModelVersion> let_go_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<TapPlan> tapped_ ABSL_GUARDED_BY(mu_);
  v1::CompileJob state_ ABSL_GUARDED_BY(mu_);
  JobSpans spans_ ABSL_GUARDED_BY(mu_);
  std::string why_ ABSL_GUARDED_BY(mu_);
  uint64_t sequence_ ABSL_GUARDED_BY(mu_) = 1;
  std::optional<v1::CompileJob::StopReason> stop_ ABSL_GUARDED_BY(mu_);
  uint64_t last_watcher_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, absl::AnyInvocable<void()>> watchers_ ABSL_GUARDED_BY(mu_);
};

bool IsFinal(v1::CompileJob::Phase phase);

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_COMPILE_JOB_H_
