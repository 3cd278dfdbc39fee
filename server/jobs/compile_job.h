// One compile job: its state as clients see it, and those who watch it.
//
//   job->Update([](v1::CompileJob& state) { state.set_phase(v1::CompileJob::CHECKING); });
//   uint64_t id = job->Watch([=] { /* something changed: read job->state() when convenient */ });
//
// A watcher is only told that there is something new, never waited for. Thread-safe.
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
#include "server/models/model_version.h"

namespace athanor {

class CompileJob {
 public:
  // Makes the plan that serves `version`, or `tapped`, one of its plans with taps.
  // `policy` is what it searches with.
  CompileJob(std::string id, std::shared_ptr<ModelVersion> version,
             std::shared_ptr<TapPlan> tapped = nullptr, SearchPolicy policy = {},
             std::optional<BucketGrid::Ranges> buckets = std::nullopt);

  const std::string& id() const { return id_; }
  const std::string& model() const { return model_; }
  // Null once it was let go and is deleted.
  std::shared_ptr<ModelVersion> version() const;
  // A job that is only remembered keeps no deleted version alive: its graph may be large.
  // REQUIRES: it has finished, and its worker is done with it.
  void LetGoOfVersion();
  const SearchPolicy& policy() const { return policy_; }
  // What the version's buckets are to be from now on; nullopt: what they are.
  const std::optional<BucketGrid::Ranges>& buckets() const { return buckets_; }
  bool for_taps() const { return for_taps_; }
  // The plan with taps it makes; null if it makes another, and once it has finished: a job that is
  // remembered holds no plan.
  std::shared_ptr<TapPlan> tapped() const;
  // Where the plan goes; null once a job for taps has finished, or with the version.
  std::shared_ptr<PlanSlot> slot() const;

  // `sequence` counts changes.
  v1::CompileJob state(uint64_t* sequence = nullptr) const;
  bool finished() const;

  // Percent never falls; a finished job does not change.
  void Update(absl::FunctionRef<void(v1::CompileJob&)> change);
  void Enter(v1::CompileJob::Phase phase, float percent, std::string message);
  // `status` says why, where the reason is STOP_ERROR or STOP_SEARCH_FAILED.
  void Finish(const absl::Status& status, v1::CompileJob::StopReason reason);

  // Why something had to be compiled that was there before: a part of its last message.
  void NoteWhy(std::string why);
  // Its plan was there, and nothing is searched for.
  void FinishRestored(const ServedPlan& plan);

  // The first reason counts; the job ends at its next step.
  void RequestStop(v1::CompileJob::StopReason reason);
  std::optional<v1::CompileJob::StopReason> stop_requested() const;

  // `changed` is short and does not call back into the job. It is not called after Unwatch
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
  std::shared_ptr<ModelVersion> version_ ABSL_GUARDED_BY(mu_);  // null: let go
  std::weak_ptr<ModelVersion> let_go_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<TapPlan> tapped_ ABSL_GUARDED_BY(mu_);
  v1::CompileJob state_ ABSL_GUARDED_BY(mu_);
  std::string why_ ABSL_GUARDED_BY(mu_);
  uint64_t sequence_ ABSL_GUARDED_BY(mu_) = 1;
  std::optional<v1::CompileJob::StopReason> stop_ ABSL_GUARDED_BY(mu_);
  uint64_t last_watcher_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, absl::AnyInvocable<void()>> watchers_ ABSL_GUARDED_BY(mu_);
};

bool IsFinal(v1::CompileJob::Phase phase);

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_COMPILE_JOB_H_
