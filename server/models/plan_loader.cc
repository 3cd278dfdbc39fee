#include "server/models/plan_loader.h"

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

v1::PlanInfo PlanInfoOf(const PlanSearch::Found& made) {
  v1::PlanInfo info;
  info.set_plan_id(made.plan.plan_id());
  info.set_kind(made.plan.kind());
  *info.mutable_bucket() = made.plan.dims();
  info.set_kernels(made.plan.kernels_size());
  info.set_steps(made.plan.run_size());
  if (!made.how.budget().empty()) *info.mutable_search() = made.how;
  return info;
}

namespace {

// A plan's dims may be in another order than the graph's.
std::vector<ServedPlan::Range> SizesOf(const Graph& graph, const v1::Plan& plan) {
  std::vector<ServedPlan::Range> sizes;
  for (const Dim& dim : graph.dims) {
    ServedPlan::Range& range = sizes.emplace_back(ServedPlan::Range{dim.min, dim.max});
    for (const v1::DimRange& own : plan.dims()) {
      if (own.name() == dim.name) range = {own.min(), own.max()};
    }
  }
  return sizes;
}

// Adds whose plan it was to an error of missing memory.
absl::Status TooLarge(const ModelVersion& version, const v1::Plan& plan, const absl::Status& s) {
  if (!absl::IsResourceExhausted(s)) return s;
  int64_t weights = 0;
  for (const TensorRow& tensor : version.row().tensors) weights += tensor.bytes;
  const std::string bucket = BucketText(plan);
  return absl::ResourceExhaustedError(
      absl::StrCat(version.Describe(), ", of ", weights, " bytes of weights, does not fit",
                   bucket.empty() ? "" : absl::StrCat(" for ", bucket), ": ", s.message()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ServedPlan>> PlanLoader::Load(
    const ModelVersion& version, const Graph& graph,
    std::shared_ptr<const PlanSearch::Found> made) const {
  const int64_t withdrawals = version.withdrawals();
  if (absl::Status s = registry_.Verify(version); !s.ok()) return s;
  const v1::Plan& plan = made->plan;
  auto served = std::make_shared<ServedPlan>();
  served->withdrawals = withdrawals;
  std::vector<std::shared_ptr<const MappedTensor>> parameters;
  for (const std::string& hash : version.parameter_hashes()) {
    absl::StatusOr<std::shared_ptr<const MappedTensor>> tensor = registry_.Map(hash);
    if (!tensor.ok()) return tensor.status();
    parameters.push_back(*std::move(tensor));
  }
  auto runner = backends_.Load(graph, plan, made->objects, parameters, ledger_);
  if (!runner.ok()) return TooLarge(version, plan, runner.status());
  served->runner = *std::move(runner);
  served->contexts = std::make_shared<ContextPool>(served->runner, contexts_);
  if (absl::Status s = served->contexts->MakeFirst(); !s.ok()) return TooLarge(version, plan, s);
  served->bucket = BucketText(plan);
  served->sizes = SizesOf(graph, plan);
  served->info = PlanInfoOf(*made);
  served->made = std::move(made);
  return std::shared_ptr<const ServedPlan>(std::move(served));
}

}  // namespace athanor
