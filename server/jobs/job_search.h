// The search of one job: for a plan of the full range that is faster than the one that serves, then
// for one of each box (search_parts.h), step by step.
//
//   JobSearch search(tools, job);
//   if (absl::Status begun = search.Start(served->compiled); !begun.ok()) return begun;
//   while (search.Step()) {
//   }
//   search.Finish();   // the job ends with the reason of its first part
//
// A plan it finds is loaded and published, or kept, as the job's policy says. Its time runs from
// its first step, also during steps of other searches (search_time.h). Used by one thread.
#ifndef ATHANOR_SERVER_JOBS_JOB_SEARCH_H_
#define ATHANOR_SERVER_JOBS_JOB_SEARCH_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/athanor/v1/compile.pb.h"
#include "proto/athanor/v1/search.pb.h"
#include "server/jobs/box_contest.h"
#include "server/jobs/compile_job.h"
#include "server/jobs/search_parts.h"
#include "server/jobs/search_policies.h"
#include "server/keeper/plan_keeper.h"
#include "server/models/plan_loader.h"
#include "server/models/registry.h"
#include "server/plans/compile_backend.h"
#include "server/plans/compiled_plan.h"
#include "server/search/search_time.h"

namespace athanor {

class JobSearch {
 public:
  // All must outlive the search.
  struct Tools {
    Registry& registry;
    CompileBackend& backend;
    PlanKeeper& keeper;
    const PlanLoader& loader;
    const SearchPolicies& policies;
  };

  JobSearch(const Tools& tools, std::shared_ptr<CompileJob> job);
  JobSearch(const JobSearch&) = delete;
  JobSearch& operator=(const JobSearch&) = delete;

  // Begins the first part at `serving`, the plan that serves the job's version; COMPARE begins at
  // its baseline, a box at its own plan. REQUIRES of the following: it returned OK.
  absl::Status Start(std::shared_ptr<const CompiledPlan> serving);
  // Runs the next step. Returns false if the search ended with it.
  bool Step();
  // Ends the job. REQUIRES: Step returned false.
  void Finish();

  const std::shared_ptr<CompileJob>& job() const { return job_; }
  const SearchTime& time() const { return time_; }  // of the current part

 private:
  struct End {
    v1::CompileJob::StopReason reason;
    absl::Status error;  // set for STOP_SEARCH_FAILED
  };

  // Begins the search of the current part at `serving`.
  absl::Status Begin(const CompiledPlan& serving);
  // Returns how the current part ends, if it ends with this step.
  std::optional<End> RunStep();
  // Begins the next part. Returns false if there is none: the first one's end is the job's.
  bool NextPart(const End& end);
  // Has a plan that a step found taken, and the search told whether it was.
  void TakeFound(CompiledPlan found);
  // Does with a plan as the job's policy says. After an error the search goes on from the plan it
  // had before.
  absl::Status Take(const std::shared_ptr<const CompiledPlan>& found);
  // Loads and publishes; an error says why it cannot serve.
  absl::Status Swap(std::shared_ptr<const CompiledPlan> found);
  // Tell later starts and other servers of a plan, and of the end of the current part.
  void Remember(const CompiledPlan& found);
  void RememberEnd(v1::CompileJob::StopReason reason);
  void ShowProgress();
  // Runs the measurements due at the end of a part. Returns ABORTED if a measurement found no gaps
  // and should be tried in another step.
  absl::Status AtEnd();
  // Measures a box's plans against each other, and makes the faster one serve the box. Returns
  // ABORTED if there were no gaps to measure in. `at_end`: its search does not go on.
  absl::Status Contest(bool at_end);
  // Compares the result of the search with the serving plan.
  absl::Status Compare();
  // Stores the costs of the serving plan's steps.
  absl::Status NoteCosts();
  // Returns the plan that serves the current part, null if there is none.
  std::shared_ptr<const ServedPlan> Serving() const;

  const Tools tools_;
  const std::shared_ptr<CompileJob> job_;
  SearchParts parts_;
  std::unique_ptr<PlanSearch> search_;  // of the current part
  std::string from_;                    // id of the plan it began at
  BoxContest contest_;                  // for a box
  bool begun_ = false;                  // it knows the sizes at which it measures
  SearchTime time_;                     // of the current part
  bool last_try_ = false;               // a measurement at its end has failed once
  // Result of the first part, once that has ended.
  std::optional<End> first_end_;
  v1::SearchProgress first_progress_;
  std::string first_bucket_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_JOBS_JOB_SEARCH_H_
