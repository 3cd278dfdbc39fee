// A plan that was compiled, with all it takes to load it, in memory and for as long as a version
// may be served by it.
//
//   auto compiled = std::make_shared<CompiledPlan>();
//   compiled->plan = ...; compiled->objects = ...;
//   std::shared_ptr<const CompiledPlan> shared = std::move(compiled);   // immutable from here on
//
// Jobs, searches, the cache and the plans that serve share one object by pointer. Nobody changes
// one that is shared: a plan whose missing kernels were compiled is another object.
#ifndef ATHANOR_SERVER_PLANS_COMPILED_PLAN_H_
#define ATHANOR_SERVER_PLANS_COMPILED_PLAN_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/athanor/v1/compile.pb.h"
#include "proto/athanor/v1/model.pb.h"
#include "proto/athanor/v1/plan.pb.h"

namespace athanor {

inline constexpr absl::string_view kSearchedPlan = "search";  // Plan.kind of what a search finds

// plan.kernels(i) as the runtime loads it.
struct KernelObject {
  std::string object;
  bool from_cache = false;
};

struct CompiledPlan {
  const std::string& id() const { return plan.plan_id(); }
  // Reports whether a search found it; otherwise it is a baseline.
  bool searched() const { return plan.kind() == kSearchedPlan; }
  // Reports whether it can be loaded as it is.
  bool whole() const { return missing.empty(); }

  v1::Plan plan;
  std::vector<KernelObject> objects;  // by plan.kernels
  v1::SearchOptions how;              // options it was found with; empty for a baseline
  // Kernels to compile before it is loaded: their objects are not in the cache, or were compiled
  // anew since the plan was verified.
  std::vector<int> missing;
  double share_of_baseline = 1;  // its time divided by its baseline's; 1: not measured
};

// Costs of a plan's steps, as the last search measured them; shared, so that copies are cheap.
using PlanCosts = std::shared_ptr<const std::vector<v1::PlanCost>>;

// A compiled plan that its version may be served by and pinned to, and what is known of it.
struct KeptPlan {
  std::shared_ptr<const CompiledPlan> plan;  // never null
  PlanCosts costs;                           // null: not measured
  bool served = false;                       // it has served
  bool first = false;                        // the version's first: every search could begin there
};

using CompiledPlans = std::vector<std::shared_ptr<const CompiledPlan>>;

// Returns what clients see of a plan.
v1::PlanInfo PlanInfoOf(const CompiledPlan& compiled);

// Returns the plan's dims as "b=1..64 s=1..512"; empty without dims.
std::string BucketText(const v1::Plan& plan);

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_COMPILED_PLAN_H_
