// The compile jobs that wait for a worker, and what each worker does: it builds on one thread and
// searches on another.
//
//   // builder
//   while ((build = queue.NextBuild(i, backend)).job != nullptr) {
//     if (build.help != nullptr) build.help->DoTask(*backend);
//     queue.Built(i);
//   }
//   // searcher
//   while (queue.AwaitSearch(i)) {
//     while ((turn = queue.NextTurn(i, searches, backend)).job != nullptr) {
//       queue.EndTurn(i, /*leaves=*/turn.job->finished());
//     }
//   }
//
// Somebody waits for the first plan of a version: jobs that make one go before all others
// (waiting_jobs.h). Boxes leave a worker to them, and give way where there is none (GivesWay). A
// worker with nothing more urgent to build helps others with their kernels, a kernel at a time. A
// version has one job at a time: its next one waits until Release. No step of a search begins while
// the worker builds or a job waits that it could build. Thread-safe.
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
#include "server/jobs/kernel_work.h"
#include "server/jobs/waiting_jobs.h"
#include "server/jobs/worker_searches.h"
#include "server/plans/compile_backend.h"
#include "server/plans/compiled_plan.h"

namespace athanor {

class JobQueue {
 public:
  using Job = WaitingJobs::Job;
  using Build = WaitingJobs::Build;
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
  // Queues jobs however many there are, the `old` ones, of versions that do not serve, behind all
  // others.
  void AddAll(const std::vector<Job>& jobs, const std::vector<Job>& old);
  // Queues a job again, before all others. Returns false if the queue or the job is to stop.
  bool AddFirst(const Job& job);
  // Queues a job whose version has a plan again, with what is left of it. Returns as AddFirst.
  bool AddRest(const Job& job, JobRest rest);
  // Queues a job's search on the worker with the fewest, `worker` among equals. Returns as
  // AddFirst.
  bool AddSearch(int worker, const Job& job, std::shared_ptr<const CompiledPlan> serving);

  // Waits for the next job to build, or to help with. `backend` is interrupted if it is cancelled.
  Build NextBuild(int worker, CompileBackend* backend);
  // Has others help with the kernels of the worker's job. Null: no longer.
  void Share(int worker, std::shared_ptr<KernelWork> work);
  // Lets idle workers look for something to do.
  void Wake();
  void Built(int worker);
  // Reports whether the worker, which makes boxes, is to stop and queue them again: somebody waits
  // for a first plan that no free worker takes, or that one more could help with. Not if a job of
  // the boxes' own version waits for them.
  bool GivesWay(int worker) const;
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
  using Rank = WaitingJobs::Rank;
  struct AtWork {
    Job building;
    Rank rank = Rank::kOld;                    // of `building`
    bool helps = false;                        // another worker builds `building`
    std::shared_ptr<KernelWork> shared;        // what others may help with
    CompileBackend* build_backend = nullptr;   // of `building`
    std::deque<Turn> built;                    // their searches have not begun
    Job searching;                             // takes a step
    CompileBackend* search_backend = nullptr;  // of `searching`
    int searches = 0;                          // begun or not
  };
  bool Stops(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reports whether the job may begin: no other works on its version, and it leaves a worker.
  bool MayBegin(const WaitingJobs::Waiting& waiting) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the job to be built next.
  WaitingJobs::Iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the worker to help rather than to take `next`; null: none needs help.
  const AtWork* ToHelp(WaitingJobs::Iterator next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Reports whether the worker builds, or should: its searches wait meanwhile.
  bool ToBuild(int worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t most_;
  mutable Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  WaitingJobs waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<AtWork> at_work_ ABSL_GUARDED_BY(mu_);  // by worker
  // By version: the job that builds or searches for it, so that none overwrites another's plan.
  std::map<const ModelVersion*, Job> busy_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_JOB_QUEUE_H_
