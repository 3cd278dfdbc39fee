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
// A job searches for a plan of the full range, then for one of each box (search_parts.h). A plan it
// finds is loaded and published, or kept, as the job's policy says. The job ends with the reason of
// its first search. Of equal searches on one cache whose plans serve, only one runs at a time: it
// holds a lease, and the others take over its result. Used by one thread.
#ifndef ATHANOR_SERVER_JOBS_WORKER_SEARCHES_H_
#define ATHANOR_SERVER_JOBS_WORKER_SEARCHES_H_

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "server/jobs/box_contest.h"
#include "server/jobs/compile_job.h"
#include "server/jobs/parked_jobs.h"
#include "server/jobs/search_parts.h"
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
                 const PlanLoader* loader, Cache* cache)
      : registry_(*registry),
        backend_(*backend),
        keeper_(*keeper),
        loader_(*loader),
        cache_(cache) {}

  // Reports whether there is anything to search for: not without a budget, nor for a pinned
  // version.
  static bool Wanted(const CompileJob& job);
  // Of a version as a whole, the full range and boxes: an automatic search is not, where an equal
  // one has come to its end.
  static bool Due(const PlanKeeper& keeper, const ModelVersion& version,
                  const SearchPolicy& policy);
  // Goes on from `serving`, the plan that serves the job's version; COMPARE begins at its baseline.
  // Ends the job where there is nothing to search. Returns the lease of an equal search that is
  // under way: this one was not begun, and is to be started again once that lease is free.
  std::optional<LeaseWait> Start(const std::shared_ptr<CompileJob>& job,
                                 std::shared_ptr<const CompiledPlan> serving);
  bool empty() const { return searches_.empty(); }
  // Moves a search whose job is asked to stop, or whose time is up, to the front, if there is one.
  bool BringStoppedForward();
  // Returns the earliest end of the searches' times.
  SearchTime::Clock::time_point FirstEnd() const;
  // Returns the job of the next step. REQUIRES: not empty().
  const std::shared_ptr<CompileJob>& next() const { return searches_.front().job; }
  // Runs the next step; a search that ends with it is removed. REQUIRES: not empty().
  void Step();

 private:
  struct End {
    v1::CompileJob::StopReason reason;
    absl::Status error;  // set for STOP_SEARCH_FAILED
  };
  struct Searching {
    std::shared_ptr<CompileJob> job;
    SearchParts parts;
    std::unique_ptr<PlanSearch> search = nullptr;  // of the current part
    std::string from = "";                         // id of the plan it began at
    BoxContest contest = {};                       // for a box
    bool begun = false;                            // it knows the sizes at which it measures
    SearchTime time = {};                          // of the current part
    std::chrono::steady_clock::duration turns{};   // since it became one of those that take steps
    bool last_try = false;                         // a measurement at its end has failed once
    // Result of the first part, once that has ended.
    std::optional<End> first_end = {};
    v1::SearchProgress first_progress = {};
    std::string first_bucket = "";
    Lease lease = {};  // invalid if no lease is held
  };

  static bool PartDue(const PlanKeeper& keeper, const ModelVersion& version,
                      const SearchPolicy& policy, const Graph& graph);
  // Begins the search of the present part at `serving`.
  absl::Status Begin(Searching& s, const CompiledPlan& serving);
  // The next part, if there is one; else the first one's end is the job's.
  bool GoOn(Searching& s, const End& end);
  // Measures a box's plans against each other, and makes the faster one serve the box. Returns
  // ABORTED if there were no gaps to measure in. `at_end`: its search does not go on.
  absl::Status Contest(Searching& s, bool at_end);
  // Returns the plan that serves the current part, null if there is none.
  static std::shared_ptr<const ServedPlan> Serving(const Searching& s);
  // Returns the key of the lease for the job's search; empty if it needs none.
  std::string LeaseKeyOf(const CompileJob& job) const;
  // Makes the job's search the one that is made of all equal ones: takes its lease, and what others
  // found before as `serving`; ends the job where that is all that was wanted. Returns the lease of
  // another search that is the one.
  std::optional<LeaseWait> TakeLease(const std::shared_ptr<CompileJob>& job, Lease* lease,
                                     std::shared_ptr<const CompiledPlan>* serving);
  // Has what equal searches found meanwhile serve, if that is better than `serving`; null: not.
  std::shared_ptr<const CompiledPlan> Adopt(CompileJob& job, const CompiledPlan& serving);
  void LetOthersGoOn(Lease& lease);
  // Puts a search that goes on back into the deque.
  void TakeTurns(Searching s);
  // What its step has found.
  void TakeFound(Searching& s, CompiledPlan found);
  // Set if the search ends with this step.
  std::optional<End> Step(Searching& s);
  // Does with what a search found as the job's policy says. An error: the search goes on from what
  // it had before.
  absl::Status Take(const Searching& s, const std::shared_ptr<const CompiledPlan>& found);
  // Has the search's plan, or its end, known to later starts and other servers.
  void Remember(const Searching& s, const CompiledPlan& found);
  void RememberEnd(const Searching& s, v1::CompileJob::StopReason reason);
  // Loads and publishes; an error says why it cannot serve.
  absl::Status Swap(const Searching& s, std::shared_ptr<const CompiledPlan> found);
  void ShowProgress(const Searching& s);
  // Runs the measurements due at the end of a search. Returns ABORTED if a measurement found no
  // gaps and should be tried in another step.
  absl::Status AtEnd(Searching& s);
  // Compares the result of the search with the serving plan.
  absl::Status Compare(Searching& s);
  // Stores the costs of the serving plan's steps.
  absl::Status NoteCosts(Searching& s);

  Registry& registry_;
  CompileBackend& backend_;
  PlanKeeper& keeper_;
  const PlanLoader& loader_;
  Cache* const cache_;
  // The next one is first. The first backend_.most_searches() take steps, the others wait in line.
  std::deque<Searching> searches_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_WORKER_SEARCHES_H_
