// The compile jobs and the threads that work on them: stored model version to plan that serves, and
// to plans that return inner values too.
//
//   CompileWorkers workers(options, &registry, &backends, &keeper, &loader);
//   std::shared_ptr<CompileJob> job = workers.Start(version).value();
//   std::shared_ptr<TapPlan> tapped = workers.Tap(version, {3, 7}).value();
//
// A worker builds on one thread and searches on another, each with a child process of its own,
// where something needs one: no build waits for the step of a search. Once a job's baseline serves,
// its search begins (server/plans/plan_search.h) on the worker with the fewest: its steps take
// turns with those of the worker's other searches, and the next waits while there is a job to
// build.
//
// A failure costs its job and is kept in the plan's slot unless a plan is there already.
// Finished jobs are remembered up to --max_compile_jobs. Thread-safe.
#ifndef ATHANOR_SERVER_JOBS_COMPILE_WORKERS_H_
#define ATHANOR_SERVER_JOBS_COMPILE_WORKERS_H_

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/base/options.h"
#include "server/jobs/compile_job.h"
#include "server/jobs/job_builder.h"
#include "server/jobs/parked_jobs.h"
#include "server/jobs/plan_pins.h"
#include "server/jobs/search_policies.h"
#include "server/jobs/worker_searches.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/plan_loader.h"
#include "server/models/registry.h"
#include "server/plans/compile_backend.h"

namespace athanor {

class CompileWorkers {
 public:
  // All arguments outlive it.
  CompileWorkers(const ServerOptions& options, Registry* registry, CompileBackends* backends,
                 PlanKeeper* keeper, const PlanLoader* loader);
  ~CompileWorkers() { Stop(); }

  const SearchPolicies& policies() const { return policies_; }
  PlanPins& pins() { return pins_; }

  // RESOURCE_EXHAUSTED when too many jobs are unfinished.
  // A version has one job at a time, those for taps aside: a second waits for the first to end.
  // `buckets`, which were checked, take the place of the version's once they have plans.
  absl::StatusOr<std::shared_ptr<CompileJob>> Start(
      const std::shared_ptr<ModelVersion>& version, SearchPolicy policy,
      std::optional<BucketGrid::Ranges> buckets = std::nullopt);
  absl::StatusOr<std::shared_ptr<CompileJob>> Start(const std::shared_ptr<ModelVersion>& version) {
    return Start(version, policies_.Automatic(*version));
  }
  // The plan of `version` that returns `taps` too (nodes, ascending, each once), for which a job is
  // started if it is not there yet. The version's own error if it has failed; NOT_FOUND if it was
  // deleted; RESOURCE_EXHAUSTED when too many are being compiled.
  absl::StatusOr<std::shared_ptr<TapPlan>> Tap(const std::shared_ptr<ModelVersion>& version,
                                               std::vector<NodeId> taps);
  // At start: for every stored version that was not restored, however many there are, and for
  // restored ones that are to be searched for. `old` ones serve nobody yet: they are built after
  // everything else, and not searched for.
  void StartAll(const std::vector<std::shared_ptr<ModelVersion>>& versions,
                const std::vector<std::shared_ptr<ModelVersion>>& old);
  // At start: a job for a version whose plan serves already, ended.
  void AddRestored(const std::shared_ptr<ModelVersion>& version);
  absl::StatusOr<std::shared_ptr<CompileJob>> Find(const std::string& id) const;
  // Newest first; an empty model means all.
  std::vector<std::shared_ptr<CompileJob>> List(absl::string_view model) const;

  void Cancel(const std::shared_ptr<CompileJob>& job, v1::CompileJob::StopReason reason);
  void CancelFor(const ModelVersion& version);

  // Ends every job with STOP_SHUTDOWN, wakes those who wait for a plan with UNAVAILABLE, and joins.
  void Stop();

 private:
  struct Worker {
    explicit Worker(std::unique_ptr<CompileBackend> own) : backend(std::move(own)) {}

    const std::unique_ptr<CompileBackend> backend;  // of builds
    std::thread builder, searcher;
  };
  // The turn of a job's search, which begins with `serving` if that is set.
  struct Turn {
    std::shared_ptr<CompileJob> job;
    std::shared_ptr<const CompiledPlan> serving;
  };
  // Work of a worker.
  struct AtWork {
    std::shared_ptr<CompileJob> building;
    std::deque<Turn> built;                    // their searches have not begun
    std::shared_ptr<CompileJob> searching;     // whose turn it is
    CompileBackend* search_backend = nullptr;  // of `searching`
    int searches = 0;                          // begun or not
  };

  void BuildLoop(int index);
  // The next job to build; null to stop.
  std::shared_ptr<CompileJob> NextJob(int index);
  // Runs a job. Returns whether it goes on: some worker searches for it, or it is parked.
  bool RunJob(int index, const std::shared_ptr<CompileJob>& job);
  JobTools ToolsOf(int index);
  // As RunJob, with a plan that was made or found.
  bool ServeAndGoOn(int index, const std::shared_ptr<CompileJob>& job, JobPlan built,
                    const BuildTimes& times, int64_t ms);
  // As RunJob: the job's baseline serves, and the job is queued again to complete its plan.
  bool Postpone(const std::shared_ptr<CompileJob>& job, JobPlan incomplete);
  std::optional<JobPlan> TakePostponed(const CompileJob& job);
  bool RunPostponed(int index, const std::shared_ptr<CompileJob>& job, JobPlan incomplete);
  // Makes plans for the boxes of the job's version. Returns whether the job goes on.
  bool MakeBuckets(int index, const std::shared_ptr<CompileJob>& job);
  // As RunJob: it waits for another job to make its plan.
  bool Park(const std::shared_ptr<CompileJob>& job, LeaseWait wait);
  // Releases the lease of a plan that was made and published, once others can find the plan.
  void LetOthersFind(Lease lease);
  // Another job searches for the same.
  void ParkSearch(const std::shared_ptr<CompileJob>& job, LeaseWait wait);
  // It is parked no more.
  void Resume(const std::shared_ptr<CompileJob>& job);
  void ResumeSearch(const std::shared_ptr<CompileJob>& job);
  bool HandOver(int index, const std::shared_ptr<CompileJob>& job,
                std::shared_ptr<const CompiledPlan> serving);
  void SearchLoop(int index);
  // Reports whether the worker builds, or should: its searches wait meanwhile.
  bool ToBuild(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False: to stop.
  bool AwaitSearch(int index);
  // No job: none is left.
  Turn NextTurn(int index, WorkerSearches* searches, CompileBackend* backend);
  // `wait`: it has no search to go on with.
  void EndTurn(int index, const std::shared_ptr<CompileJob>& job, std::optional<LeaseWait> wait);
  void CountEnd(const CompileJob& job);
  void EndWithoutPlan(CompileJob& job, const absl::Status& status, int64_t ms);
  absl::StatusOr<std::shared_ptr<CompileJob>> Submit(const std::shared_ptr<ModelVersion>& version,
                                                     const std::shared_ptr<TapPlan>& tapped,
                                                     SearchPolicy policy,
                                                     std::optional<BucketGrid::Ranges> buckets);
  std::shared_ptr<CompileJob> Enqueue(const std::shared_ptr<ModelVersion>& version,
                                      const std::shared_ptr<TapPlan>& tapped, SearchPolicy policy,
                                      std::optional<BucketGrid::Ranges> buckets = std::nullopt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<CompileJob> NewJob(const std::shared_ptr<ModelVersion>& version,
                                     const std::shared_ptr<TapPlan>& tapped, SearchPolicy policy,
                                     std::optional<BucketGrid::Ranges> buckets)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Serves what the job built. FAILED_PRECONDITION: its weights are damaged. Other errors: the
  // version was deleted or pinned.
  absl::Status Serve(CompileJob& job, const JobPlan& built);
  // The first job of the queue whose version no other job works on.
  std::deque<std::shared_ptr<CompileJob>>::iterator Eligible() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveQueued(std::deque<std::shared_ptr<CompileJob>>::iterator job)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets the version's next job begin if this one has finished.
  void Release(const std::shared_ptr<CompileJob>& job);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ServerOptions& options_;
  Registry* const registry_;
  CompileBackends& backends_;
  PlanKeeper& keeper_;
  const PlanLoader& loader_;
  const SearchPolicies policies_;
  PlanPins pins_;
  const std::string id_prefix_;

  mutable Mutex mu_;
  CondVar cv_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<std::shared_ptr<CompileJob>> queue_ ABSL_GUARDED_BY(mu_);
  size_t old_ ABSL_GUARDED_BY(mu_) = 0;               // the last of queue_: those of old versions
  std::vector<AtWork> at_work_ ABSL_GUARDED_BY(mu_);  // by worker
  // By version: the job that builds or searches for it, so that none overwrites another's plan.
  std::map<const ModelVersion*, std::shared_ptr<CompileJob>> busy_ ABSL_GUARDED_BY(mu_);
  // Plans that jobs of queue_ have still to complete.
  std::map<const CompileJob*, JobPlan> postponed_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<CompileJob>> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<ParkedJobs> parked_;  // null without a cache
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_COMPILE_WORKERS_H_
