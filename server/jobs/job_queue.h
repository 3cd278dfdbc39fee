// The compile jobs that wait for a worker, and what each worker does: it builds on one thread and
// searches on another.
//
//   // builder
//   while ((build = queue.NextBuild(i, backend)).job != nullptr) {
//     queue.Built(i);
//   }
//   // searcher
//   while (queue.AwaitSearch(i)) {
//     while ((turn = queue.NextTurn(i, searches, backend)).job != nullptr) {
//       queue.EndTurn(i, /*leaves=*/turn.job->finished());
//     }
//   }
//
// Jobs are built in the order of their arrival, except that a version has one job at a time: its
// next one waits until Release. Jobs of old versions come after all others. No step of a search
// begins while the worker builds or a job waits that it could build. Thread-safe.
#ifndef ATHANOR_SERVER_JOBS_JOB_QUEUE_H_
#define ATHANOR_SERVER_JOBS_JOB_QUEUE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "deploy/bazel/libs/mutex.h"
#include "server/jobs/compile_job.h"
#include "server/jobs/job_builder.h"
#include "server/jobs/worker_searches.h"
#include "server/plans/compile_backend.h"
#include "server/plans/compiled_plan.h"

namespace athanor {

class JobQueue {
 public:
  using Job = std::shared_ptr<CompileJob>;
  struct Build {
    Job job;                                           // null: stop
    std::optional<JobPlan> incomplete = std::nullopt;  // the plan to complete, if it has one
  };
  // A step of a job's search, which begins with `serving` if that is set.
  struct Turn {
    Job job;  // null: no search is left
    std::shared_ptr<const CompiledPlan> serving;
  };
  enum class Place : uint8_t { kElsewhere, kToBuild, kToSearch };

  JobQueue(int workers, int64_t most) : most_(most), at_work_(workers) {}

  // Queues the job that `make` returns. UNAVAILABLE once stopped; RESOURCE_EXHAUSTED if too many
  // wait; `make` is not called then.
  absl::StatusOr<Job> Add(absl::FunctionRef<Job()> make);
  // Queues jobs however many there are, the `old` ones behind all others.
  void AddAll(const std::vector<Job>& jobs, const std::vector<Job>& old);
  // Queues a job again, before all others. Returns false if the queue or the job is to stop.
  bool AddFirst(const Job& job);
  // Queues a job again to complete its plan, behind those whose callers wait for a first plan.
  // Returns as AddFirst.
  bool AddIncomplete(const Job& job, JobPlan incomplete);
  // Queues a job's search on the worker with the fewest, `worker` among equals. Returns as
  // AddFirst.
  bool AddSearch(int worker, const Job& job, std::shared_ptr<const CompiledPlan> serving);

  // Waits for the next job to build with `backend`, which is interrupted if the job is cancelled.
  Build NextBuild(int worker, CompileBackend* backend);
  void Built(int worker);
  // Waits until a search is to begin on the worker. Returns false to stop.
  bool AwaitSearch(int worker);
  // Waits until the worker may search. Returns the step to do with `backend`: of a search that is
  // to be begun, else of one of `searches`.
  Turn NextTurn(int worker, WorkerSearches* searches, CompileBackend* backend);
  // `leaves`: the worker does not go on with the job's search.
  void EndTurn(int worker, bool leaves);

  // Removes a job that waits and returns where it did; interrupts it if a worker is at it.
  Place Cancel(const Job& job);
  // Lets the version's next job begin. REQUIRES: `job` has finished.
  void Release(const Job& job);
  // Returns false if it was stopped before. Searches that were queued are still given out.
  bool Stop();
  bool stopped() const;

 private:
  struct AtWork {
    Job building;
    CompileBackend* build_backend = nullptr;   // of `building`
    std::deque<Turn> built;                    // their searches have not begun
    Job searching;                             // takes a step
    CompileBackend* search_backend = nullptr;  // of `searching`
    int searches = 0;                          // begun or not
  };
  using Builds = std::deque<Build>;

  bool Stops(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the first job whose version no other job works on.
  Builds::iterator Eligible() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Build Take(Builds::iterator build) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Queues a job before those of old versions.
  void Append(Build build) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reports whether the worker builds, or should: its searches wait meanwhile.
  bool ToBuild(int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t most_;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Builds builds_ ABSL_GUARDED_BY(mu_);
  size_t old_ ABSL_GUARDED_BY(mu_) = 0;               // the last of builds_: those of old versions
  std::vector<AtWork> at_work_ ABSL_GUARDED_BY(mu_);  // by worker
  // By version: the job that builds or searches for it, so that none overwrites another's plan.
  std::map<const ModelVersion*, Job> busy_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_JOB_QUEUE_H_
