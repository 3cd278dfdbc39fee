#include "compiler/pipeline/pipeline.h"

#include <utility>

#include "compiler/pipeline/prepare.h"
#include "compiler/search/fusion.h"

namespace athanor {
namespace {

absl::StatusOr<CheckedPlan> BuildFrom(const Graph& source, const Prepared& prepared,
                                      const v1::Target& target, const Fusion& fusion) {
  ScheduledGraph scheduled{prepared.graph, ChooseKernels(prepared.graph, target, fusion)};
  PackWeights(&scheduled.graph, &scheduled.genome, target);
  PlanBuilder builder(target);
  absl::StatusOr<BuiltPlan> built =
      builder.Build(scheduled, {"baseline", CanonicalHash(source), prepared.dim_names});
  if (!built.ok()) return built.status();
  absl::StatusOr<std::vector<internal::KernelCheck>> checks = builder.Checks(*built);
  if (!checks.ok()) return checks.status();
  return CheckedPlan{std::move(built->plan), *std::move(checks)};
}

}  // namespace

absl::StatusOr<CheckedPlan> BuildCheckedBaselinePlan(const Graph& graph, const v1::Target& target) {
  absl::StatusOr<Prepared> prepared = Prepare(graph);
  if (!prepared.ok()) return prepared.status();
  absl::StatusOr<CheckedPlan> plan = BuildFrom(graph, *prepared, target, {});
  if (!absl::IsInternal(plan.status())) return plan;
  // Slower and always possible.
  return BuildFrom(graph, *prepared, target, {.rules = {.epilogues = false}});
}

absl::StatusOr<v1::Plan> BuildBaselinePlan(const Graph& graph, const v1::Target& target) {
  absl::StatusOr<CheckedPlan> checked = BuildCheckedBaselinePlan(graph, target);
  if (!checked.ok()) return checked.status();
  return std::move(checked->plan);
}

}  // namespace athanor
