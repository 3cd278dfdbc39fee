#include "compiler/pipeline/search_start.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "compiler/pipeline/recipes.h"
#include "compiler/pipeline/search_sizes.h"
#include "compiler/search/kernels/extents.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/paged_schedule.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Converts values of the user's dims to values of the prepared graph's dims.
absl::StatusOr<SizePoint> PreparedSizes(const Graph& graph, const Prepared& prepared,
                                        const internal::Sizes& given) {
  if (given.values_size() != static_cast<int>(graph.dims.size())) {
    return absl::InvalidArgumentError(absl::StrCat("search: ", given.values_size(), " sizes for ",
                                                   graph.dims.size(), " dims of the graph"));
  }
  SizePoint sizes;
  for (const std::string& name : prepared.dim_names) {
    auto dim = std::find_if(graph.dims.begin(), graph.dims.end(),
                            [&](const Dim& d) { return d.name == name; });
    sizes.push_back(given.values(static_cast<int>(dim - graph.dims.begin())));
  }
  return sizes;
}

// Chooses sizes by the cost of the baseline's kernels.
std::vector<SizePoint> ChooseSizes(const Graph& graph, const PagedSizes* paged,
                                   const v1::Target& target, const Machine& machine) {
  const Genome genome = ChooseKernels(graph, target);
  const std::vector<bool> memory = MemoryOf(graph, genome);
  Expr flops = 0, bytes = 0;
  for (const KernelChoice& k : genome.kernels) {
    flops += Flops(graph, memory, k.root);
    bytes += MovedBytes(graph, memory, k.root);
  }
  return SearchSizes(graph, paged, flops, bytes, machine);
}

SearchMode ModeOf(v1::SearchMode mode) {
  switch (mode) {
    case v1::SEARCH_FAST:
      return SearchMode::kFast;
    case v1::SEARCH_EXHAUST:
      return SearchMode::kExhaust;
    default:
      return SearchMode::kBudget;
  }
}

}  // namespace

FusionRules FusionRulesOf(const RuleChoice& rules) {
  auto allowed = [&](std::string_view name) { return rules.Allows(*FindRule(name)); };
  return {.producers = allowed("fuse_producer"),
          .reductions = allowed("fuse_reduction"),
          .epilogues = allowed("fuse_epilogue"),
          .again = allowed("fuse_again")};
}

Machine MachineOf(const v1::Target& target, const internal::MachineReply& measured) {
  Machine machine = Machine::Typical(target);
  const auto take = [](double reached, double* limit) {
    if (reached > 0) *limit = reached;
  };
  take(measured.read_bytes_per_second(), &machine.read_bytes_per_second);
  take(measured.cache_bytes_per_second(), &machine.cache_bytes_per_second);
  take(measured.near_bytes_per_second(), &machine.near_bytes_per_second);
  take(measured.f32_flops_per_second(), &machine.f32_flops_per_second);
  return machine;
}

int64_t WeightBytes(const Graph& graph) {
  std::vector<bool> walked(graph.nodes.size(), false);
  for (const Node& node : graph.nodes) {
    const bool looks_up = FormOf(node.op) == OpForm::kGather || FormOf(node.op) == OpForm::kBags;
    for (size_t i = looks_up ? 1 : 0; i < node.inputs.size(); ++i) {
      walked[node.inputs[i]] = true;
    }
  }
  int64_t total = 0;
  for (NodeId p : graph.ParameterIds()) {
    if (!walked[p]) continue;
    total += *BytesOf(graph.node(p).type).constant();
  }
  return total;
}

absl::StatusOr<SearchSetup> ReadSearchStart(const internal::SearchStart& start) {
  ASSIGN_OR_RETURN(Graph graph, ParseGraph(start.graph_text(), AcceptedLimits()));
  RETURN_IF_ERROR(Verify(graph, AcceptedLimits()));
  RuleChoice rules{{start.disabled_rules().begin(), start.disabled_rules().end()},
                   start.approximate()};
  RETURN_IF_ERROR(CheckRuleChoice(rules));
  ASSIGN_OR_RETURN(Prepared prepared,
                   Prepare(graph, /*plain=*/false, HasPagedKernel(start.target())));
  std::optional<PagedSizes> paged = PagedSizesOf(graph, prepared);
  SearchSetup setup{CanonicalHash(graph),
                    std::move(prepared),
                    std::move(paged),
                    MachineOf(start.target(), start.machine()),
                    std::move(rules),
                    {},
                    {}};
  SearchOptions& options = setup.options;
  options.recipes = ReadRecipes(start, &setup.refused_recipes);
  options.seed = start.seed();
  options.mode = ModeOf(start.mode());
  options.fusion = FusionRulesOf(setup.rules);
  // With states, plans keep to one signature, which no call of a library has.
  const bool states = !graph.StateIds().empty();
  options.fusion.one_panel = states;
  options.fixed_sums = states;
  options.library =
      !states && setup.rules.Allows(*FindRule(HasTeams(start.target()) ? "cublaslt" : "openblas"));
  if (start.max_kernels() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("search: max_kernels is ", start.max_kernels(), ", not 0 or more"));
  }
  if (start.max_kernels() > 0) options.max_kernels = start.max_kernels();
  for (const internal::Sizes& sizes : start.sizes()) {
    ASSIGN_OR_RETURN(SizePoint point, PreparedSizes(graph, setup.prepared, sizes));
    options.sizes.push_back(std::move(point));
  }
  if (options.sizes.empty()) {
    options.sizes =
        ChooseSizes(setup.prepared.graph, setup.paged.has_value() ? &*setup.paged : nullptr,
                    start.target(), setup.machine);
  }
  return setup;
}

}  // namespace athanor
