#include "server/plan_loader.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace athanor {

std::string BucketText(const v1::Plan& plan) {
  std::string text;
  for (const v1::DimRange& dim : plan.dims()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", dim.name(), "=", dim.min(), "..", dim.max());
  }
  return text;
}

absl::StatusOr<std::shared_ptr<const ServedPlan>> LoadPlan(
    CompileBackend& backend, Registry& registry, const ModelVersion& version, const Graph& graph,
    std::shared_ptr<const PlanSearch::Found> made, int64_t contexts) {
  const v1::Plan& plan = made->plan;
  auto served = std::make_shared<ServedPlan>();
  std::vector<std::shared_ptr<const MappedTensor>> parameters;
  for (const std::string& hash : version.parameter_hashes()) {
    absl::StatusOr<std::shared_ptr<const MappedTensor>> tensor = registry.Map(hash);
    if (!tensor.ok()) return tensor.status();
    parameters.push_back(*std::move(tensor));
  }
  auto runner = backend.Load(graph, plan, made->objects, parameters);
  if (!runner.ok()) return runner.status();
  served->runner = *std::move(runner);
  served->contexts = std::make_shared<ContextPool>(served->runner, contexts);
  if (absl::Status s = served->contexts->MakeFirst(); !s.ok()) return s;
  served->bucket = BucketText(plan);
  served->info.set_plan_id(plan.plan_id());
  served->info.set_kind(plan.kind());
  *served->info.mutable_bucket() = plan.dims();
  served->info.set_kernels(plan.kernels_size());
  served->info.set_steps(plan.run_size());
  served->made = std::move(made);
  return std::shared_ptr<const ServedPlan>(std::move(served));
}

}  // namespace athanor
