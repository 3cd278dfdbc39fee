// The searches of one compile worker: jobs whose baseline serves while a search for a faster plan
// (server/plans/plan_search.h) goes on. The searches advance alternately, one step at a time.
//
//   searches.Start(job, served->compiled);
//   while (!searches.empty()) searches.Step();
//
// If there are more searches than the backend holds, the rest wait in line until one ends or has
// used its share; otherwise the backend would begin a search again with each step. A search's time
// runs from its first step, also during steps of others (search_time.h). A search with little time
// left goes on until its end while the others wait, so that such searches run one after the other.
//
// Runs one at a time of equal searches on one cache whose plans serve: it holds a lease, and the
// others take over its result. Used by one thread.
#ifndef ATHANOR_SERVER_JOBS_WORKER_SEARCHES_H_
#define ATHANOR_SERVER_JOBS_WORKER_SEARCHES_H_

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "server/jobs/compile_job.h"
#include "server/jobs/job_search.h"
#include "server/jobs/parked_jobs.h"
#include "server/jobs/search_policies.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/plan_loader.h"
#include "server/models/registry.h"
#include "server/plans/compile_backend.h"
#include "server/search/search_time.h"

namespace athanor {

class WorkerSearches {
 public:
  // All arguments must outlive it. `cache` may be null.
  WorkerSearches(Registry* registry, CompileBackend* backend, PlanKeeper* keeper,
                 const PlanLoader* loader, const SearchPolicies* policies, Cache* cache)
      : registry_(*registry),
        backend_(*backend),
        keeper_(*keeper),
        loader_(*loader),
        policies_(*policies),
        cache_(cache) {}

  // Begins the search of a job from `serving`, the plan that serves its version.
  // Ends the job where there is nothing to search. Returns the lease of an equal search that is
  // under way: this one was not begun, and is to be started again once that lease is free.
  std::optional<LeaseWait> Start(const std::shared_ptr<CompileJob>& job,
                                 std::shared_ptr<const CompiledPlan> serving);
  bool empty() const { return turns_.empty(); }
  // Moves a search whose job is asked to stop, or whose time is up, to the front, if there is one.
  bool BringStoppedForward();
  // Returns the earliest end of the searches' times.
  SearchTime::Clock::time_point FirstEnd() const;
  // Returns the job of the next step. REQUIRES: not empty().
  const std::shared_ptr<CompileJob>& next() const { return turns_.front().search->job(); }
  // Runs the next step; a search that ends with it is removed. REQUIRES: not empty().
  void Step();

 private:
  struct Turn {
    std::unique_ptr<JobSearch> search;
    Lease lease;                                    // invalid if no lease is held
    std::chrono::steady_clock::duration used = {};  // since it became one of those that take steps
  };

  // Returns the key of the lease for the job's search; empty if it needs none.
  std::string LeaseKeyOf(const CompileJob& job) const;
  // Makes the job's search the one that is made of all equal ones: takes its lease, and what others
  // found before as `serving`; ends the job where that is all that was wanted. Returns the lease of
  // another search that is the one.
  std::optional<LeaseWait> TakeLease(const std::shared_ptr<CompileJob>& job, Lease* lease,
                                     std::shared_ptr<const CompiledPlan>* serving);
  // Has the plan that equal searches found meanwhile serve, if it is better than `serving`. Returns
  // null otherwise.
  std::shared_ptr<const CompiledPlan> Adopt(CompileJob& job, const CompiledPlan& serving);
  // Puts a search that goes on back into the deque.
  void TakeTurns(Turn turn);

  Registry& registry_;
  CompileBackend& backend_;
  PlanKeeper& keeper_;
  const PlanLoader& loader_;
  const SearchPolicies& policies_;
  Cache* const cache_;
  // The next one is first. The first backend_.most_searches() take steps, the others wait in line.
  std::deque<Turn> turns_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_WORKER_SEARCHES_H_
