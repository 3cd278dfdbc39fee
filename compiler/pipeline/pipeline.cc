#include "compiler/pipeline/pipeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/expr/expr.h"
#include "compiler/pipeline/prepare.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/paged_schedule.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::StatusOr<CheckedPlan> BuildFrom(const Graph& source, const Prepared& prepared,
                                      const v1::Target& target, const FusionRules& rules) {
  ScheduledGraph scheduled{prepared.graph, ChooseKernels(prepared.graph, target, {.rules = rules})};
  PackWeights(&scheduled.graph, &scheduled.genome, target);
  PlanBuilder builder(target, PagedSizesOf(source, prepared));
  ASSIGN_OR_RETURN(BuiltPlan built, builder.Build(scheduled, {.kind = "baseline",
                                                              .graph_hash = CanonicalHash(source),
                                                              .dim_names = prepared.dim_names,
                                                              .rules = rules}));
  ASSIGN_OR_RETURN(std::vector<internal::KernelCheck> checks, builder.Checks(built));
  return CheckedPlan{std::move(built.plan), std::move(checks), ""};
}

// Puts each op except movement into a kernel of its own, element by element.
constexpr FusionRules kPlain = {
    .producers = false, .reductions = false, .epilogues = false, .again = false, .tiles = false};

absl::StatusOr<CheckedPlan> BuildPlain(const Graph& graph, const v1::Target& target) {
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(graph, /*plain=*/true));
  return BuildFrom(graph, prepared, target, kPlain);
}

absl::StatusOr<CheckedPlan> BuildFused(const Graph& graph, const v1::Target& target,
                                       FusionRules rules) {
  ASSIGN_OR_RETURN(Prepared prepared, Prepare(graph, /*plain=*/false, HasPagedKernel(target)));
  rules.one_panel = rules.one_panel || !graph.StateIds().empty();
  absl::StatusOr<CheckedPlan> plan = BuildFrom(graph, prepared, target, rules);
  if (!absl::IsInternal(plan.status())) return plan;
  rules.epilogues = false;
  return BuildFrom(graph, prepared, target, rules);
}

}  // namespace

absl::StatusOr<CheckedPlan> BuildCheckedBaselinePlan(const Graph& graph, const v1::Target& target,
                                                     bool plain, const FusionRules& rules) {
  const BoundsMemory memory;
  const RememberBounds remember(memory);
  absl::Status fused;
  if (!plain) {
    absl::StatusOr<CheckedPlan> plan = BuildFused(graph, target, rules);
    if (!absl::IsInternal(plan.status())) return plan;
    fused = plan.status();
  }
  absl::StatusOr<CheckedPlan> plan = BuildPlain(graph, target);
  if (plan.ok()) plan->plain_because = std::string(fused.message());
  if (!absl::IsInternal(plan.status())) return plan;
  return absl::UnimplementedError(
      absl::StrCat("no kernel can be made of ", (fused.ok() ? plan.status() : fused).message()));
}

absl::StatusOr<v1::Plan> BuildBaselinePlan(const Graph& graph, const v1::Target& target,
                                           const FusionRules& rules) {
  ASSIGN_OR_RETURN(CheckedPlan checked,
                   BuildCheckedBaselinePlan(graph, target, /*plain=*/false, rules));
  return std::move(checked.plan);
}

}  // namespace athanor
