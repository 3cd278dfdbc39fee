// A search for a plan faster than the one that serves, in small pieces of work: a compile worker
// turns from one to the other, and to new models in between.
//
//   std::unique_ptr<PlanSearch> search = backend->NewSearch(graph, serving, options).value();
//   while (auto step = search->Next(); step.ok() && !step->stop) {
//     if (step->found) search->Taken(Publish(*step->found));   // a status
//   }
//
// Used by one thread at a time; dies before its backend.
#ifndef ATHANOR_SERVER_PLANS_PLAN_SEARCH_H_
#define ATHANOR_SERVER_PLANS_PLAN_SEARCH_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/athanor/v1/compile.pb.h"
#include "proto/athanor/v1/model.pb.h"
#include "proto/athanor/v1/search.pb.h"
#include "server/plans/compiled_plan.h"

namespace athanor {

struct PlanSearchOptions {
  uint64_t seed = 1;
  int64_t max_candidates = 0;  // kernels to be measured; 0: no limit
  v1::SearchMode mode = v1::SEARCH_BUDGET;
  std::vector<std::string> disabled_rules;  // rules or families
  bool approximate = false;
  bool recipes = true;  // try earlier searches' recipes, and keep those of this one
};

class PlanSearch {
 public:
  struct Step {
    // Checked, measured beside the plan that served when it was found, and faster than it.
    std::optional<CompiledPlan> found;
    std::optional<v1::CompileJob::StopReason> stop;
  };

  virtual ~PlanSearch() = default;

  // Works for some hundred milliseconds, seldom longer: on a few kernels, or a plan. A candidate
  // that fails, crashes or hangs costs itself; an error here ends the search. CANCELLED after the
  // backend's Interrupt. After `stop` it says so again.
  virtual absl::StatusOr<Step> Next() = 0;
  // The time is up soon: the steps from here on measure the best plan if there is one, and end.
  virtual void Finish() = 0;
  // From `end` on it begins nothing, and nothing waits or measures beyond it: Next stops with
  // STOP_BUDGET, comparisons and costs are ABORTED.
  virtual void Until(std::chrono::steady_clock::time_point end) = 0;
  // Called after `found` and before Next: OK if the plan serves now, otherwise why it does not.
  virtual void Taken(const absl::Status& taken) = 0;
  virtual const v1::SearchProgress& progress() const = 0;
  // The e-graphs of progress().regions in Graphviz' language, each a picture or FAILED_PRECONDITION
  // with the reason. Once, after the step that made them; empty at other times.
  virtual std::vector<absl::StatusOr<std::string>> TakePictures() = 0;
  // Times the best plan so far and `other` as a whole, alternating between them.
  virtual absl::StatusOr<v1::PlanComparison> CompareWith(const CompiledPlan& other) = 0;
  // Measures the cost of each step of `plan`, at the sizes that the search measures at.
  virtual absl::StatusOr<std::vector<v1::PlanCost>> Costs(const CompiledPlan& plan) = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_PLAN_SEARCH_H_
