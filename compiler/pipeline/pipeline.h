// The only place that knows the order of stages: (graph, target) → plan.
//
//   absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(graph, target);
//   // plan->kernels() hold sources; whoever calls has them compiled and gives the objects to the
//   runtime
//
// Stages: decompose → recognise → canonical form → choose (search/fusion) → lower (codegen) →
// plan. The e-graph search takes the place of the choice later; everything around it stays. Pure,
// thread-safe.
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

// The version of what the stages mean: a part of every cached plan's key, raised when equal keys
// would no longer give equal plans.
inline constexpr int kPipelineVersion = 1;

// The plan of the whole dim box, chosen by the cost model alone. UNIMPLEMENTED names the node that
// no kernel can be made of, or the dtype the target cannot compute.
absl::StatusOr<v1::Plan> BuildBaselinePlan(const Graph& graph, const v1::Target& target);

// With the checks of its kernels, one for each distinct one.
struct CheckedPlan {
  v1::Plan plan;
  std::vector<internal::KernelCheck> checks;
  std::string plain_because;  // why it is made plain without being asked to; empty: it is not
};
// `plain`: slower and by the simplest way there is: what serves where a kernel of the other way
// turns out wrong. Without it, what cannot be made the usual way is made so at once.
absl::StatusOr<CheckedPlan> BuildCheckedBaselinePlan(const Graph& graph, const v1::Target& target,
                                                     bool plain = false);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_PIPELINE_H_
