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
// Thread-safe.
#ifndef ATHANOR_SERVER_JOBS_COMPILE_WORKERS_H_
#define ATHANOR_SERVER_JOBS_COMPILE_WORKERS_H_

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/options.h"
#include "server/jobs/compile_job.h"
#include "server/jobs/job_builder.h"
#include "server/jobs/job_list.h"
#include "server/jobs/job_queue.h"
#include "server/jobs/job_runner.h"
#include "server/jobs/parked_jobs.h"
#include "server/jobs/plan_pins.h"
#include "server/jobs/search_policies.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/plan_loader.h"
#include "server/models/registry.h"
#include "server/plans/compile_backend.h"

namespace athanor {

class Tracer;

class CompileWorkers {
 public:
  // All arguments outlive it. `tracer` may be null: jobs are not recorded.
  CompileWorkers(const ServerOptions& options, Registry* registry, CompileBackends* backends,
                 PlanKeeper* keeper, const PlanLoader* loader, Tracer* tracer = nullptr);
  ~CompileWorkers() { Stop(); }

  const SearchPolicies& policies() const { return policies_; }
  PlanPins& pins() { return pins_; }
  const JobList& jobs() const { return jobs_; }

  // RESOURCE_EXHAUSTED when too many jobs are unfinished.
  // A version has one job at a time, those for taps aside: a second waits for the first to end.
  // `buckets`, which were checked, take the place of the version's once they have plans.
  absl::StatusOr<std::shared_ptr<CompileJob>> Start(
      const std::shared_ptr<ModelVersion>& version, SearchPolicy policy,
      std::optional<BucketGrid::Ranges> buckets = std::nullopt);
  absl::StatusOr<std::shared_ptr<CompileJob>> Start(const std::shared_ptr<ModelVersion>& version) {
    return Start(version, policies_.Automatic(*version));
  }
  // Returns the plan of `version` that returns `taps` too (nodes, ascending, each once), for which
  // a job is started if it is not there yet. The version's own error if it has failed; NOT_FOUND if
  // it was deleted; RESOURCE_EXHAUSTED when too many are being compiled.
  absl::StatusOr<std::shared_ptr<TapPlan>> Tap(const std::shared_ptr<ModelVersion>& version,
                                               std::vector<NodeId> taps);
  // Starts jobs when the server starts: for every stored version that was not restored, however
  // many there are, and for restored ones that are to be searched for. `old` ones serve nobody yet:
  // they are built after everything else, and not searched for.
  void StartAll(const std::vector<std::shared_ptr<ModelVersion>>& versions,
                const std::vector<std::shared_ptr<ModelVersion>>& old);
  // Adds an ended job for a version whose plan serves already when the server starts.
  void AddRestored(const std::shared_ptr<ModelVersion>& version);

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

  void BuildLoop(int index);
  void SearchLoop(int index);
  // Does as JobRunner says. Returns whether the job goes on.
  bool GoOn(int index, const std::shared_ptr<CompileJob>& job, JobRunner::GoOn next);
  // These return as GoOn. BeginSearch: a search for a plan that is faster than `serving`, on the
  // worker with the fewest. Leave: it is queued again for what is left. Park: it waits
  // for another job to make its plan, or, with `kind` kSearchLease, to search for the same.
  bool BeginSearch(int index, const std::shared_ptr<CompileJob>& job,
                   std::shared_ptr<const CompiledPlan> serving);
  bool Leave(const std::shared_ptr<CompileJob>& job, JobRest rest);
  bool Park(const std::shared_ptr<CompileJob>& job, LeaseWait wait, absl::string_view kind);
  // Goes on with a job that was parked.
  void Resume(const std::shared_ptr<CompileJob>& job);
  void ResumeSearch(const std::shared_ptr<CompileJob>& job);
  absl::StatusOr<std::shared_ptr<CompileJob>> Submit(const std::shared_ptr<ModelVersion>& version,
                                                     const std::shared_ptr<TapPlan>& tapped,
                                                     SearchPolicy policy,
                                                     std::optional<BucketGrid::Ranges> buckets);
  // If the job has finished, counts its end and lets its version's next job begin.
  void Release(const std::shared_ptr<CompileJob>& job);

  const ServerOptions& options_;
  Registry* const registry_;
  CompileBackends& backends_;
  PlanKeeper& keeper_;
  const PlanLoader& loader_;
  const SearchPolicies policies_;
  PlanPins pins_;
  JobList jobs_;
  JobQueue queue_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<ParkedJobs> parked_;  // null without a cache
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_COMPILE_WORKERS_H_
