// The searches of one compile worker: jobs whose baseline serves and whose search for a faster plan
// (server/plans/plan_search.h) goes on, a step at a time, turn by turn.
//
//   searches.Start(job, served->compiled);
//   while (!searches.empty()) searches.Step();
//
// Where there are more than the backend holds, which would begin one again with each step, the rest
// wait in line until one ends or has had its share. A search's time runs from its first step on,
// also while others have their turns (search_time.h): one that has little left goes on until its
// end, and the others wait, so that those with little time follow each other.
//
// A job searches for a plan of the full range, then for one of each box (search_parts.h). A plan
// that is found is loaded and published, or kept, as the job's policy says; a job ends with the
// reason of its first search. Of equal searches on one cache whose plans serve, one is made at a
// time: it holds a lease, and the others take over what it found. Used by one thread.
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
  // All arguments outlive it. `cache` may be null.
  WorkerSearches(Registry* registry, CompileBackend* backend, PlanKeeper* keeper,
                 const PlanLoader* loader, Cache* cache)
      : registry_(*registry),
        backend_(*backend),
        keeper_(*keeper),
        loader_(*loader),
        cache_(cache) {}

  // Whether there is anything to search for: not without a budget, nor for a pinned version.
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
  // One whose job is asked to stop or whose time is up, if there is any, is next.
  bool BringStoppedForward();
  // When the first of them is over.
  SearchTime::Clock::time_point FirstEnd() const;
  // Whose step is next. REQUIRES: not empty().
  const std::shared_ptr<CompileJob>& next() const { return searches_.front().job; }
  // That step; a search that ends with it leaves. REQUIRES: not empty().
  void Step();

 private:
  struct End {
    v1::CompileJob::StopReason reason;
    absl::Status error;  // of STOP_SEARCH_FAILED
  };
  struct Searching {
    std::shared_ptr<CompileJob> job;
    SearchParts parts;
    std::unique_ptr<PlanSearch> search = nullptr;  // of the present part
    std::string from = "";                         // id of the plan it began at
    BoxContest contest = {};                       // of a box
    bool begun = false;                            // it knows at which sizes it measures
    SearchTime time = {};                          // of the present part
    std::chrono::steady_clock::duration turns{};   // since it became one of those that take turns
    bool last_try = false;                         // at its end something could not be measured
    // Of the first part, once that has ended.
    std::optional<End> first_end = {};
    v1::SearchProgress first_progress = {};
    std::string first_bucket = "";
    Lease lease = {};  // of nothing where none is taken
  };

  static bool PartDue(const PlanKeeper& keeper, const ModelVersion& version,
                      const SearchPolicy& policy, const Graph& graph);
  // Begins the search of the present part at `serving`.
  absl::Status Begin(Searching& s, const CompiledPlan& serving);
  // The next part, if there is one; else the first one's end is the job's.
  bool GoOn(Searching& s, const End& end);
  // Has a box's plans timed beside each other, and the box served by the faster. ABORTED: there
  // were no gaps to measure in. `at_end`: its search does not go on.
  absl::Status Contest(Searching& s, bool at_end);
  // The plan that serves the present part; null: none does.
  static std::shared_ptr<const ServedPlan> Serving(const Searching& s);
  // What the lease of the job's search is taken for; empty: none is.
  std::string LeaseKeyOf(const CompileJob& job) const;
  // Makes the job's search the one that is made of all equal ones: takes its lease, and what others
  // found before as `serving`; ends the job where that is all that was wanted. Returns the lease of
  // another search that is the one.
  std::optional<LeaseWait> TakeLease(const std::shared_ptr<CompileJob>& job, Lease* lease,
                                     std::shared_ptr<const CompiledPlan>* serving);
  // Has what equal searches found meanwhile serve, if that is better than `serving`; null: not.
  std::shared_ptr<const CompiledPlan> Adopt(CompileJob& job, const CompiledPlan& serving);
  void LetOthersGoOn(Lease& lease);
  // Puts back one that goes on.
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
  // What is measured once a search has come to its end. ABORTED: something left no time to measure,
  // and it is worth another turn.
  absl::Status AtEnd(Searching& s);
  // Times what the search came to beside what serves.
  absl::Status Compare(Searching& s);
  // Notes what the steps of the plan that serves cost.
  absl::Status NoteCosts(Searching& s);

  Registry& registry_;
  CompileBackend& backend_;
  PlanKeeper& keeper_;
  const PlanLoader& loader_;
  Cache* const cache_;
  // The next first. The first backend_.most_searches() take turns, the others wait in line.
  std::deque<Searching> searches_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_WORKER_SEARCHES_H_
