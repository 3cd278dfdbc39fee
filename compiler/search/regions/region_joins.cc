#include "compiler/search/regions/region_joins.h"

#include <algorithm>
#include <random>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

constexpr size_t kMaxLayouts = 2;  // per value or end, besides "as it is"
// Most that a variant may cost by NodeCosts, where a view is free, relative to the region's
// cheapest choice in the layouts as they are. A costlier one is not worth pricing.
constexpr double kMostSeconds = 1.25;

// Returns true if something is new.
bool Merge(const std::vector<BoundaryLayout>& from, std::vector<BoundaryLayout>* into) {
  bool fresh = false;
  for (const BoundaryLayout& layout : from) {
    if (into->size() >= kMaxLayouts) break;
    if (std::find(into->begin(), into->end(), layout) != into->end()) continue;
    into->push_back(layout);
    fresh = true;
  }
  return fresh;
}

bool Merge(const PortLayouts& from, PortLayouts* into) {
  bool fresh = false;
  for (size_t i = 0; i < from.inputs.size(); ++i) fresh |= Merge(from.inputs[i], &into->inputs[i]);
  for (size_t o = 0; o < from.outputs.size(); ++o) {
    fresh |= Merge(from.outputs[o], &into->outputs[o]);
  }
  return fresh;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegionJoins>> RegionJoins::Create(const Graph& graph,
                                                                 const Regions& regions,
                                                                 const Sources& sources,
                                                                 const JoinOptions& options) {
  std::unique_ptr<RegionJoins> joins(new RegionJoins(regions, options));
  joins->LayoutId({});
  joins->FindValues(graph, sources);
  RETURN_IF_ERROR(joins->Solve(sources));
  return joins;
}

void RegionJoins::FindValues(const Graph& graph, const Sources& sources) {
  absl::flat_hash_set<NodeId> fixed, used;
  for (const Output& o : graph.outputs) fixed.insert(o.node);
  // A value keeps its layout if a region that may have no variants makes or uses it.
  const absl::flat_hash_set<int> may(sources.regions.begin(), sources.regions.end());
  for (const RegionInstance& instance : regions_.instances) {
    fixed.insert(instance.parameters.begin(), instance.parameters.end());
    used.insert(instance.inputs.begin(), instance.inputs.end());
    if (may.contains(instance.region)) continue;
    fixed.insert(instance.inputs.begin(), instance.inputs.end());
    fixed.insert(instance.results.begin(), instance.results.end());
  }
  absl::flat_hash_map<NodeId, int> values;
  for (const RegionInstance& instance : regions_.instances) {
    LayoutStep& step = steps_.emplace_back(LayoutStep{instance.region, {}, {}});
    for (const NodeId n : instance.inputs) {
      const auto value = values.find(n);
      step.inputs.push_back(value == values.end() ? kFixed : value->second);
    }
    for (const NodeId n : instance.results) {
      const bool free =
          used.contains(n) && !fixed.contains(n) && graph.node(n).type.shape.size() >= 2;
      step.outputs.push_back(free ? static_cast<int>(values.size()) : kFixed);
      if (free) values.emplace(n, step.outputs.back());
    }
  }
  layouts_.resize(values.size());
  for (const Region& region : regions_.distinct) {
    ports_.push_back({std::vector<std::vector<BoundaryLayout>>(region.graph.InputIds().size()),
                      std::vector<std::vector<BoundaryLayout>>(region.graph.outputs.size())});
  }
  wanted_ = ports_;
}

// Passes the layouts that ends want to their values, and from there to the values' other ends.
// Returns true if an end has more layouts than before.
bool RegionJoins::Spread() {
  for (const LayoutStep& step : steps_) {
    const PortLayouts& wanted = wanted_[step.table];
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (step.inputs[i] != kFixed) Merge(wanted.inputs[i], &layouts_[step.inputs[i]]);
    }
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      if (step.outputs[o] != kFixed) Merge(wanted.outputs[o], &layouts_[step.outputs[o]]);
    }
  }
  bool fresh = false;
  for (const LayoutStep& step : steps_) {
    PortLayouts& ports = ports_[step.table];
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (step.inputs[i] != kFixed) fresh |= Merge(layouts_[step.inputs[i]], &ports.inputs[i]);
    }
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      if (step.outputs[o] != kFixed) fresh |= Merge(layouts_[step.outputs[o]], &ports.outputs[o]);
    }
  }
  return fresh;
}

absl::Status RegionJoins::Solve(const Sources& sources) {
  terms_.resize(regions_.distinct.size());
  for (const int r : sources.regions) {
    if (sources.terms[r] == nullptr) continue;
    Merge(WantedLayouts(sources.terms[r]->term_graph(), regions_.distinct[r].graph), &wanted_[r]);
  }
  // A region that gets a layout may want others at its other ends, so layouts spread for a few
  // rounds.
  for (int round = 0; round < options_.rounds && Spread(); ++round) {
    for (const int r : sources.regions) {
      if (sources.terms[r] == nullptr || ports_[r].empty()) continue;
      if (terms_[r] != nullptr && terms_[r]->layouts() == ports_[r]) continue;
      ASSIGN_OR_RETURN(std::unique_ptr<LayoutTerms> terms, sources.make(r, ports_[r]));
      if (terms == nullptr) continue;
      terms_[r] = std::move(terms);
      Merge(terms_[r]->Wanted(), &wanted_[r]);
    }
  }
  for (const int r : sources.regions) {
    if (terms_[r] != nullptr) AddVariants(r, *sources.terms[r], sources);
  }
  return absl::OkStatus();
}

void RegionJoins::AddVariants(int region, const RegionTerms& as_cut, const Sources& sources) {
  const double most = kMostSeconds * as_cut.Cost(as_cut.Cheapest());
  for (const LayoutTuple& tuple : TuplesOf(terms_[region]->layouts(), options_.tuples)) {
    std::pair<std::vector<int>, std::vector<int>> ids;
    for (const BoundaryLayout& layout : tuple.inputs) ids.first.push_back(LayoutId(layout));
    for (const BoundaryLayout& layout : tuple.outputs) ids.second.push_back(LayoutId(layout));
    const bool changes = std::count(ids.first.begin(), ids.first.end(), 0) +
                             std::count(ids.second.begin(), ids.second.end(), 0) <
                         static_cast<std::ptrdiff_t>(ids.first.size() + ids.second.size());
    if (!changes || variants_.size() >= options_.variants || !sources.has_time()) continue;
    for (LayoutTerms::Way& way : terms_[region]->Ways(tuple, options_.ways)) {
      if (way.seconds > most) continue;
      Graph as_it_is = AsItIs(way.stored, regions_.distinct[region].graph, tuple);
      variants_.push_back(
          {region, tuple, std::move(way.stored), std::move(as_it_is), std::move(way.rows)});
      ids_.push_back(ids);
    }
  }
}

int RegionJoins::LayoutId(const BoundaryLayout& layout) {
  return layout_ids_.try_emplace(layout, static_cast<int>(layout_ids_.size())).first->second;
}

std::vector<RegionJoins::Join> RegionJoins::Best(const std::vector<double>& as_it_is,
                                                 const std::vector<double>& prices,
                                                 size_t count) const {
  LayoutChain chain;
  chain.steps = steps_;
  std::vector<std::vector<int>> variants(regions_.distinct.size(), {-1});  // by table and row
  for (size_t r = 0; r < regions_.distinct.size(); ++r) {
    LayoutRow row{std::vector<int>(ports_[r].inputs.size()),
                  std::vector<int>(ports_[r].outputs.size()), as_it_is[r]};
    chain.tables.push_back({std::move(row)});
  }
  for (size_t v = 0; v < variants_.size(); ++v) {
    chain.tables[variants_[v].region].push_back({ids_[v].first, ids_[v].second, prices[v]});
    variants[variants_[v].region].push_back(static_cast<int>(v));
  }
  JoinLimits limits = options_.limits;
  limits.best = count;
  double unchanged = 0;
  for (const LayoutStep& step : steps_) unchanged += as_it_is[step.table];
  std::vector<Join> joins;
  for (const LayoutJoin& found : JoinLayouts(chain, limits)) {
    if (found.cost >= unchanged) break;
    Join& join = joins.emplace_back(Join{{}, found.cost});
    for (size_t s = 0; s < found.rows.size(); ++s) {
      join.variants.push_back(variants[steps_[s].table][found.rows[s]]);
    }
  }
  return joins;
}

std::string RegionJoins::About(const std::vector<int>& variants) const {
  std::map<std::tuple<int, size_t, std::string>, int> changed;
  for (const int v : variants) {
    if (v < 0) continue;
    const Variant& variant = variants_[v];
    for (size_t o = 0; o < variant.tuple.outputs.size(); ++o) {
      const BoundaryLayout& layout = variant.tuple.outputs[o];
      if (!layout.as_it_is()) ++changed[{variant.region, o, LayoutText(layout)}];
    }
  }
  std::vector<std::string> parts;
  for (const auto& [what, count] : changed) {
    const auto& [region, output, layout] = what;
    parts.push_back(absl::StrCat("r", region, ".y", output, layout, "x", count));
  }
  return absl::StrJoin(parts, ",");
}

absl::StatusOr<std::vector<std::optional<Graph>>> RegionJoins::Random(uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::vector<BoundaryLayout> of_value;
  for (const auto& layouts : layouts_) {
    const size_t pick = random() % (layouts.size() + 1);
    of_value.push_back(pick == 0 ? BoundaryLayout() : layouts[pick - 1]);
  }
  // An end without that layout is as it is and keeps its view.
  const auto at = [&](int value, const std::vector<BoundaryLayout>& may) {
    if (value == kFixed) return BoundaryLayout();
    const bool can = std::find(may.begin(), may.end(), of_value[value]) != may.end();
    return can ? of_value[value] : BoundaryLayout();
  };
  std::vector<std::optional<Graph>> graphs;
  for (const LayoutStep& step : steps_) {
    std::optional<Graph>& graph = graphs.emplace_back();
    const LayoutTerms* terms = terms_[step.table].get();
    if (terms == nullptr) continue;
    LayoutTuple tuple;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      tuple.inputs.push_back(at(step.inputs[i], terms->layouts().inputs[i]));
    }
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      tuple.outputs.push_back(at(step.outputs[o], terms->layouts().outputs[o]));
    }
    ASSIGN_OR_RETURN(Graph stored, terms->Random(tuple, random()));
    graph = AsItIs(stored, regions_.distinct[step.table].graph, tuple);
  }
  return graphs;
}

}  // namespace athanor
