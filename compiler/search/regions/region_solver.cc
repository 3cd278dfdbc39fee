#include "compiler/search/regions/region_solver.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/status/status.h"
#include "compiler/search/kernels/fusion.h"

namespace athanor {
namespace {

// Least relative saving of one region over two that keeps a join: less is noise of the model.
constexpr double kLeastSaving = 0.01;

}  // namespace

double SecondsOf(const Graph& graph, const NodeCosts& costs) {
  const std::vector<bool> weights = WeightsOf(graph);
  double seconds = 0;
  std::vector<const TensorType*> operands;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    operands.clear();
    for (NodeId i : node.inputs) operands.push_back(&graph.node(i).type);
    seconds += costs.Of(node.op, node.attrs, operands, node.type, weights[n]);
  }
  return seconds;
}

RegionSolver::RegionSolver(const RegionFormsOptions* options, const NodeCosts* costs)
    : options_(*options), costs_(*costs) {}

std::optional<SaturationOptions> RegionSolver::Left(absl::Duration end) const {
  const absl::Duration left = std::min(end, options_.time) - watch_.Elapsed();
  if (left <= absl::ZeroDuration() || bytes_ >= options_.bytes) return std::nullopt;
  SaturationOptions saturation;
  saturation.limits = options_.limits;
  saturation.limits.time = std::min(saturation.limits.time, left);
  saturation.limits.bytes = std::min(saturation.limits.bytes, options_.bytes - bytes_);
  return saturation;
}

absl::StatusOr<std::shared_ptr<RegionTerms>> RegionSolver::TermsOf(const Region& region) {
  const auto known = known_.find(region.key);
  if (known != known_.end()) return known->second;
  std::shared_ptr<RegionTerms>& terms = known_[region.key];
  const std::optional<SaturationOptions> left = Left(options_.time);
  if (!left) return terms;
  absl::StatusOr<std::unique_ptr<RegionTerms>> made =
      RegionTerms::Create(region.graph, options_.rules, *left, costs_);
  if (!made.ok()) return made.status();
  terms = *std::move(made);
  bytes_ += terms->terms().Bytes();
  return terms;
}

absl::Status RegionSolver::SaturateAll(const Regions& regions) {
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < regions.distinct.size(); ++i) {
    const Region& region = regions.distinct[i];
    order.emplace_back(-SecondsOf(region.graph, costs_) * region.instances, i);
  }
  // The costliest come first, because time may run out.
  std::sort(order.begin(), order.end());
  for (const auto& [seconds, i] : order) {
    if (absl::Status s = TermsOf(regions.distinct[i]).status(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// Returns the pairs of adjacent regions that fit into one region, the most expensive first.
std::vector<std::pair<int, int>> RegionSolver::PairsInRow(const Regions& regions) const {
  std::map<std::pair<int, int>, int> counts;
  const std::vector<RegionInstance>& all = regions.instances;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    const int first = all[i].region, second = all[i + 1].region;
    const int nodes = regions.distinct[first].nodes + regions.distinct[second].nodes;
    if (nodes <= options_.cut.max_nodes) ++counts[{first, second}];
  }
  std::vector<std::tuple<double, int, int>> worth;
  for (const auto& [pair, count] : counts) {
    const double seconds = SecondsOf(regions.distinct[pair.first].graph, costs_) +
                           SecondsOf(regions.distinct[pair.second].graph, costs_);
    worth.emplace_back(-count * seconds, pair.first, pair.second);
  }
  std::sort(worth.begin(), worth.end());
  std::vector<std::pair<int, int>> pairs;
  for (const auto& [seconds, first, second] : worth) pairs.emplace_back(first, second);
  return pairs;
}

// Joins one pair at a time, because a join changes which regions are adjacent.
absl::Status RegionSolver::JoinWherePays(const Graph& graph, Regions* regions) {
  std::set<std::string> tried;
  for (int joins = 0; joins < options_.max_joins;) {
    bool joined = false;
    for (const auto& [first, second] : PairsInRow(*regions)) {
      const Region &a = regions->distinct[first], &b = regions->distinct[second];
      if (joins == options_.max_joins || !tried.insert(a.key + "\n" + b.key).second) continue;
      ++joins;
      const auto terms_a = known_[a.key], terms_b = known_[b.key];
      if (terms_a == nullptr || terms_b == nullptr) continue;
      Regions other = JoinRegions(graph, *regions, first, second);
      const auto has_key = [&](const Region& r) { return known_.contains(r.key); };
      const auto both = std::find_if_not(other.distinct.begin(), other.distinct.end(), has_key);
      if (both == other.distinct.end()) continue;
      absl::StatusOr<std::shared_ptr<RegionTerms>> terms = TermsOf(*both);
      if (!terms.ok()) return terms.status();
      if (*terms == nullptr) return absl::OkStatus();
      const double apart = terms_a->Cost(terms_a->Cheapest()) + terms_b->Cost(terms_b->Cheapest());
      if ((*terms)->Cost((*terms)->Cheapest()) > (1 - kLeastSaving) * apart) continue;
      if (absl::Status s = SaturateAll(other); !s.ok()) return s;
      *regions = std::move(other);
      joined = true;
      break;
    }
    if (!joined) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<RegionSolver::Solutions> RegionSolver::Solve(const Graph& graph, Regions* regions) {
  if (absl::Status s = SaturateAll(*regions); !s.ok()) return s;
  if (absl::Status s = JoinWherePays(graph, regions); !s.ok()) return s;
  return std::exchange(known_, {});
}

}  // namespace athanor
