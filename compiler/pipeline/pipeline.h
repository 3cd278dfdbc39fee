// The only place that knows the order of stages: (graph, target) → plan.
//
//   absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(graph, target);
//   // plan->kernels() hold sources; the caller has them compiled and gives the objects to the
//   // runtime
//
// Stages: decompose → recognise → canonical form → choose (search/fusion) → lower (codegen) → plan.
// The e-graph search later replaces the choice; everything around it stays. Pure, thread-safe.
#ifndef ATHANOR_COMPILER_PIPELINE_PIPELINE_H_
#define ATHANOR_COMPILER_PIPELINE_PIPELINE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/plan_builder.h"
#include "proto/athanor/v1/plan.pb.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

// Version of what the stages mean. It is part of every cached plan's key, and is raised when equal
// keys would no longer give equal plans.
inline constexpr int kPipelineVersion = 3;

// Returns the plan of the whole dim box, chosen by the cost model alone. UNIMPLEMENTED names the
// node that no kernel can be made of, or the dtype the target cannot compute.
// `rules`: the fusions it may have.
absl::StatusOr<v1::Plan> BuildBaselinePlan(const Graph& graph, const v1::Target& target,
                                           const FusionRules& rules = {});

// A plan with a check for each of its distinct kernels.
struct CheckedPlan {
  v1::Plan plan;
  std::vector<internal::KernelCheck> checks;
  std::string plain_because;  // why the plan is plain without being asked for; empty: it is not
};
// `plain`: makes a slower plan in the simplest way, to serve when a kernel of the usual plan turns
// out wrong. Without it, a graph that cannot be built the usual way is built plain at once.
// `rules`: the fusions of a plan that is not plain.
absl::StatusOr<CheckedPlan> BuildCheckedBaselinePlan(const Graph& graph, const v1::Target& target,
                                                     bool plain = false,
                                                     const FusionRules& rules = {});

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_PIPELINE_H_
