#include "server/models/plan_loader.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/memory/plan_memory.h"

namespace athanor {

namespace {

// The time for which a load that lacks memory waits for engines to give up what they keep: they do
// between two steps.
constexpr std::chrono::seconds kRoomWait{5};

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

bool PlanLoader::MakeRoom(const ModelVersion& version, const Graph& graph, const v1::Plan& plan,
                          absl::Span<const std::shared_ptr<const MappedTensor>> parameters) const {
  ParameterHashes hashes;
  const std::vector<NodeId> ids = graph.ParameterIds();
  for (size_t i = 0; i < ids.size(); ++i) {
    hashes[graph.node(ids[i]).name] = std::string(parameters[i]->hash());
  }
  const PreparedPool* pool = backends_.pool(version.device(), ledger_);
  const auto memory = MemoryOf(plan, hashes, pool == nullptr || pool->host_memory());
  if (!memory.ok()) return false;
  const int64_t weights = pool == nullptr ? memory->WeightBytes() : memory->NewBytes(*pool);
  const int64_t bytes = weights + (weights > 0 ? memory->brief : 0) + memory->scratch;
  const MemoryLedger* const ledger = pool == nullptr ? ledger_ : pool->ledger();
  return ledger != nullptr &&
         registry_.language_models().MakeRoom(version.device(), *ledger, bytes,
                                              std::chrono::steady_clock::now() + kRoomWait);
}

absl::StatusOr<std::shared_ptr<const ServedPlan>> PlanLoader::Load(
    const ModelVersion& version, const Graph& graph,
    std::shared_ptr<const CompiledPlan> compiled) const {
  const int64_t withdrawals = version.withdrawals();
  RETURN_IF_ERROR(registry_.Verify(version));
  const v1::Plan& plan = compiled->plan;
  auto served = std::make_shared<ServedPlan>();
  served->withdrawals = withdrawals;
  std::vector<std::shared_ptr<const MappedTensor>> parameters;
  for (const std::string& hash : version.parameter_hashes()) {
    ASSIGN_OR_RETURN(std::shared_ptr<const MappedTensor> tensor, registry_.tensors().Map(hash));
    parameters.push_back(std::move(tensor));
  }
  const auto load = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(served->runner, backends_.Load(version.device(), graph, plan,
                                                    compiled->objects, parameters, ledger_));
    served->contexts = std::make_shared<ContextPool>(served->runner, contexts_);
    // Contexts of a plan with states lie over those of the version's engine, which makes them.
    return graph.StateIds().empty() ? served->contexts->MakeFirst() : absl::OkStatus();
  };
  absl::Status loaded = load();
  if (absl::IsResourceExhausted(loaded) && MakeRoom(version, graph, plan, parameters)) {
    loaded = load();
  }
  if (!loaded.ok()) return TooLarge(version, plan, loaded);
  served->bucket = BucketText(plan);
  served->sizes = SizesOf(graph, plan);
  served->compiled = std::move(compiled);
  return std::shared_ptr<const ServedPlan>(std::move(served));
}

}  // namespace athanor
