// The searches of one compile worker: jobs whose baseline serves and whose search for a faster plan
// (server/plan_search.h) goes on, a step at a time, turn by turn.
//
//   searches.Start(job, served->made);
//   while (!searches.empty()) searches.Step();
//
// A plan that is found is loaded and published, or kept, as the job's policy says; a job ends with
// its search's reason. Used by the worker's thread alone.
#ifndef ATHANOR_SERVER_WORKER_SEARCHES_H_
#define ATHANOR_SERVER_WORKER_SEARCHES_H_

#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "server/compile_backend.h"
#include "server/compile_job.h"
#include "server/options.h"
#include "server/registry.h"

namespace athanor {

class WorkerSearches {
 public:
  // All arguments outlive it.
  WorkerSearches(const ServerOptions& options, Registry* registry, CompileBackend* backend)
      : options_(options), registry_(*registry), backend_(*backend) {}

  // Goes on from `serving`, the plan that serves the job's version; COMPARE begins at its baseline.
  // Ends the job where there is nothing to search.
  void Start(const std::shared_ptr<CompileJob>& job,
             std::shared_ptr<const PlanSearch::Found> serving);
  bool empty() const { return searches_.empty(); }
  // Whose step is next. REQUIRES: not empty().
  const std::shared_ptr<CompileJob>& next() const { return searches_.front().job; }
  // That step; a search that ends with it leaves. REQUIRES: not empty().
  void Step();

 private:
  struct Searching {
    std::shared_ptr<CompileJob> job;
    std::unique_ptr<PlanSearch> search;
    std::chrono::steady_clock::duration used{};
  };

  // The reason if the search ends with this step.
  std::optional<v1::CompileJob::StopReason> Step(Searching& s);
  // Does with what a search found as the job's policy says. False: the search goes on from what it
  // had before.
  bool Take(CompileJob& job, PlanSearch::Found found);
  // Loads and publishes; false if it cannot serve.
  bool Swap(CompileJob& job, std::shared_ptr<const PlanSearch::Found> found);
  void ShowProgress(const Searching& s);
  // Times what the search came to beside what serves.
  absl::Status Compare(Searching& s);
  // Notes what the steps of the plan that serves cost.
  void NoteCosts(Searching& s);

  const ServerOptions& options_;
  Registry& registry_;
  CompileBackend& backend_;
  std::deque<Searching> searches_;  // the next first
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_WORKER_SEARCHES_H_
