#include "compiler/search/regions/region_layouts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/rules/families/row_terms.h"
#include "compiler/rules/terms/views.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

using egraph::ClassId;
using ENode = egraph::NodeId;

constexpr size_t kMaxWanted = 2;

Expr AxisOf(const Shape& shape, int axis, int place) {
  return shape[axis].IsConstant(1) ? Expr(0) : Expr::Axis(place);
}

bool IsAscending(const std::vector<int>& axes) { return std::is_sorted(axes.begin(), axes.end()); }

void AddWanted(std::vector<int> axes, std::vector<BoundaryLayout>* wanted) {
  BoundaryLayout layout{std::move(axes)};
  if (IsAscending(layout.axes) || wanted->size() >= kMaxWanted) return;
  if (std::find(wanted->begin(), wanted->end(), layout) == wanted->end()) {
    wanted->push_back(std::move(layout));
  }
}

// Returns the operand's axes in the order in which the view has them; an axis that the view lacks
// stays behind the axis before it. nullopt for views that do more.
std::optional<std::vector<int>> OrderOf(const IndexMap& map, const Shape& operand) {
  const std::optional<std::vector<int>> places = AxesOfMap(map, operand);
  if (!places) return std::nullopt;
  std::vector<std::pair<int, int>> order;  // place in the view, axis
  int place = -1;
  for (size_t i = 0; i < places->size(); ++i) {
    if ((*places)[i] >= 0) place = (*places)[i];
    order.emplace_back(place, static_cast<int>(i));
  }
  std::sort(order.begin(), order.end());
  std::vector<int> axes;
  for (const auto& [at, axis] : order) axes.push_back(axis);
  return axes;
}

// Returns the axes of a contraction's operand ordered so that the other one of its two groups,
// summed or free axes, lies last. Whichever group the kernel walks along, one of the two orders has
// it contiguous.
std::vector<int> OtherWay(const ContractSpec& spec, int side) {
  const std::string& own = side == 0 ? spec.lhs : spec.rhs;
  const std::string& other = side == 0 ? spec.rhs : spec.lhs;
  const auto group = [&](char letter) {
    if (spec.result.find(letter) == std::string::npos) return 1;
    return other.find(letter) == std::string::npos ? 2 : 0;
  };
  const int last = own.empty() ? 0 : group(own.back());
  std::vector<std::pair<int, int>> order;
  for (size_t i = 0; i < own.size(); ++i) {
    const int g = group(own[i]);
    order.emplace_back(g == 0 || last == 0 ? g : g == last ? 1 : 2, static_cast<int>(i));
  }
  std::sort(order.begin(), order.end());
  std::vector<int> axes;
  for (const auto& [g, axis] : order) axes.push_back(axis);
  return axes;
}

class WantedFinder {
 public:
  explicit WantedFinder(const TermGraph& terms) : terms_(terms), graph_(terms.terms()) {}

  std::vector<BoundaryLayout> OfInput(ClassId value) const {
    std::vector<BoundaryLayout> wanted;
    const Shape& shape = terms_.facts().Type(graph_, value).shape;
    for (const ENode n : graph_.ParentsOf(value, ToOpId(Op::kIndexMap))) {
      if (!graph_.alive(n) || graph_.Find(graph_.children(n)[0]) != value) continue;
      const IndexMap* map = View(n);
      if (map == nullptr) continue;
      if (auto axes = OrderOf(*map, shape)) AddWanted(*std::move(axes), &wanted);
    }
    for (const ENode n : graph_.ParentsOf(value, ToOpId(Op::kContract))) {
      if (!graph_.alive(n)) continue;
      const auto children = graph_.children(n);
      // A weight is packed once as its kernel wants it, and the kernel walks along it.
      if (IsWeight(children[0]) || IsWeight(children[1])) continue;
      const auto spec = ContractSpec::Parse(GetAttr<std::string>(AttrsOf(n), "spec"));
      for (int side = 0; spec.ok() && side < 2; ++side) {
        if (graph_.Find(children[side]) == value) AddWanted(OtherWay(*spec, side), &wanted);
      }
    }
    return wanted;
  }

  std::vector<BoundaryLayout> OfOutput(ClassId value) const {
    std::vector<BoundaryLayout> wanted;
    for (const ENode n : graph_.NodesOf(value, ToOpId(Op::kIndexMap))) {
      const IndexMap* map = graph_.alive(n) ? View(n) : nullptr;
      if (map == nullptr) continue;
      const Shape& below = terms_.facts().Type(graph_, graph_.children(n)[0]).shape;
      const auto places = PermutationOfMap(*map, below);
      if (!places || below.size() != map->shape.size()) continue;
      // The view's operand is the tensor that would be stored.
      std::vector<int> axes = *places;
      if (std::count(axes.begin(), axes.end(), -1) == 0) AddWanted(std::move(axes), &wanted);
    }
    return wanted;
  }

 private:
  const Attrs& AttrsOf(ENode n) const { return terms_.language().attrs(graph_.payload(n)); }
  const IndexMap* View(ENode n) const {
    const Attrs& attrs = AttrsOf(n);
    return attrs.contains("fill") ? nullptr : &GetAttr<IndexMap>(attrs, "map");
  }
  bool IsWeight(ClassId id) const { return terms_.facts().Get(graph_, graph_.Find(id)).weight; }

  const TermGraph& terms_;
  const egraph::EGraph& graph_;
};

NodeId Append(Graph* graph, Op op, std::vector<NodeId> inputs, Attrs attrs, TensorType type,
              std::string name = "") {
  graph->nodes.push_back(
      {op, std::move(inputs), std::move(attrs), std::move(type), std::move(name)});
  return static_cast<NodeId>(graph->nodes.size()) - 1;
}

NodeId AppendView(Graph* graph, NodeId of, IndexMap map) {
  TensorType type{graph->node(of).type.dtype, map.shape};
  return Append(graph, Op::kIndexMap, {of}, {{"map", std::move(map)}}, std::move(type));
}

TensorType StoredType(const TensorType& type, const BoundaryLayout& layout) {
  return {type.dtype, StoredMap(type.shape, layout).shape};
}

size_t IndexOf(const std::vector<BoundaryLayout>& all, const BoundaryLayout& layout) {
  return static_cast<size_t>(std::find(all.begin(), all.end(), layout) - all.begin());
}

}  // namespace

std::string LayoutText(const BoundaryLayout& layout) {
  return absl::StrCat("[", absl::StrJoin(layout.axes, ","), "]");
}

IndexMap StoredMap(const Shape& shape, const BoundaryLayout& layout) {
  std::vector<int> axes = layout.axes;
  if (axes.empty()) {
    axes.resize(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  IndexMap map;
  map.coordinates.resize(shape.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    map.shape.push_back(shape[axes[i]]);
    map.coordinates[axes[i]] = AxisOf(shape, axes[i], static_cast<int>(i));
  }
  return map;
}

IndexMap ValueMap(const Shape& shape, const BoundaryLayout& layout) {
  IndexMap map{shape, {}};
  for (size_t i = 0; i < shape.size(); ++i) {
    const int axis = layout.as_it_is() ? static_cast<int>(i) : layout.axes[i];
    map.coordinates.push_back(AxisOf(shape, axis, axis));
  }
  return map;
}

bool PortLayouts::empty() const {
  const auto none = [](const std::vector<BoundaryLayout>& of) { return of.empty(); };
  return std::all_of(inputs.begin(), inputs.end(), none) &&
         std::all_of(outputs.begin(), outputs.end(), none);
}

std::vector<LayoutTuple> TuplesOf(const PortLayouts& layouts, size_t limit) {
  std::vector<const std::vector<BoundaryLayout>*> ports;
  for (const auto& of : layouts.inputs) ports.push_back(&of);
  for (const auto& of : layouts.outputs) ports.push_back(&of);
  std::vector<LayoutTuple> tuples;
  std::vector<const BoundaryLayout*> chosen(ports.size(), nullptr);
  const auto add = [&] {
    LayoutTuple tuple;
    for (size_t p = 0; p < ports.size(); ++p) {
      auto& side = p < layouts.inputs.size() ? tuple.inputs : tuple.outputs;
      side.push_back(chosen[p] != nullptr ? *chosen[p] : BoundaryLayout());
    }
    if (std::find(tuples.begin(), tuples.end(), tuple) == tuples.end()) tuples.push_back(tuple);
  };
  const std::function<void(size_t, size_t)> change = [&](size_t from, size_t more) {
    if (tuples.size() >= limit) return;
    if (more == 0) return add();
    for (size_t p = from; p < ports.size(); ++p) {
      for (const BoundaryLayout& layout : *ports[p]) {
        chosen[p] = &layout;
        change(p + 1, more - 1);
      }
      chosen[p] = nullptr;
    }
  };
  size_t most = 0;
  for (const auto* of : ports) most += !of->empty();
  // Lists tuples by the number of ends that change, fewest first.
  for (size_t changes = 0; changes <= most; ++changes) change(0, changes);
  if (tuples.size() < limit || limit < 2) return tuples;
  // The tuple that changes every end replaces the last one, so that a layout can pass right through
  // the region.
  tuples.pop_back();
  for (size_t p = 0; p < ports.size(); ++p) {
    chosen[p] = ports[p]->empty() ? nullptr : &ports[p]->front();
  }
  add();
  return tuples;
}

PortLayouts WantedLayouts(const TermGraph& terms, const Graph& region) {
  const WantedFinder finder(terms);
  PortLayouts wanted;
  for (const NodeId n : region.InputIds()) {
    const ClassId value = terms.ClassOf(n);
    wanted.inputs.push_back(value.valid() ? finder.OfInput(value) : std::vector<BoundaryLayout>());
  }
  for (const Output& o : region.outputs) {
    wanted.outputs.push_back(finder.OfOutput(terms.ClassOf(o.node)));
  }
  return wanted;
}

Graph AsItIs(const Graph& stored, const Graph& region, const LayoutTuple& tuple) {
  Graph made;
  made.name = region.name;
  made.dims = region.dims;
  const std::vector<NodeId> inputs = region.InputIds();
  std::vector<NodeId> at;
  size_t port = 0;
  for (const Node& from : stored.nodes) {
    Node node = from;
    for (NodeId& i : node.inputs) i = at[i];
    if (!IsInput(node.op)) {
      made.nodes.push_back(std::move(node));
    } else {
      made.nodes.push_back(region.node(inputs[port]));
      const BoundaryLayout& layout = tuple.inputs[port++];
      const auto value = static_cast<NodeId>(made.nodes.size()) - 1;
      if (!layout.as_it_is())
        AppendView(&made, value, StoredMap(made.node(value).type.shape, layout));
    }
    at.push_back(static_cast<NodeId>(made.nodes.size()) - 1);
  }
  for (size_t o = 0; o < region.outputs.size(); ++o) {
    const Shape& shape = region.node(region.outputs[o].node).type.shape;
    NodeId node = at[stored.outputs[o].node];
    const BoundaryLayout& layout = tuple.outputs[o];
    if (!layout.as_it_is()) node = AppendView(&made, node, ValueMap(shape, layout));
    made.outputs.push_back({region.outputs[o].name, node});
  }
  for (const NodeId update : stored.updates) made.updates.push_back(at[update]);
  return made;
}

// --- LayoutTerms ---

std::string LayoutTerms::LeafName(size_t input, const BoundaryLayout& layout) const {
  const std::string& name = region_.node(region_.InputIds()[input]).name;
  return layout.as_it_is() ? name : absl::StrCat(name, LayoutText(layout));
}

size_t LayoutTerms::OutputAt(size_t output, const BoundaryLayout& layout) const {
  if (layout.as_it_is()) return output;
  size_t at = region_.outputs.size();
  for (size_t o = 0; o < output; ++o) at += layouts_.outputs[o].size();
  return at + IndexOf(layouts_.outputs[output], layout);
}

// Returns the region with an extra leaf for each layout of an input, which nothing reads yet, and a
// twin for each layout of an output.
Graph LayoutTerms::WithEnds() const {
  Graph graph = region_;
  const std::vector<NodeId> inputs = region_.InputIds();
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (const BoundaryLayout& layout : layouts_.inputs[i]) {
      Append(&graph, Op::kInput, {}, {}, StoredType(region_.node(inputs[i]).type, layout),
             LeafName(i, layout));
    }
  }
  for (size_t o = 0; o < region_.outputs.size(); ++o) {
    const Output& output = region_.outputs[o];
    for (const BoundaryLayout& layout : layouts_.outputs[o]) {
      const NodeId twin =
          AppendView(&graph, output.node, StoredMap(region_.node(output.node).type.shape, layout));
      graph.outputs.push_back({absl::StrCat(output.name, LayoutText(layout)), twin});
    }
  }
  return graph;
}

// Declares the view of each stored leaf equal to the input, so that the rules may read either.
absl::Status LayoutTerms::UniteLeaves(TermGraph* terms) const {
  Graph leaves;
  leaves.name = region_.name;
  leaves.dims = region_.dims;
  std::vector<TermGraph::Equality> equal;
  const std::vector<NodeId> inputs = region_.InputIds();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ClassId value = terms->ClassOf(inputs[i]);
    if (!value.valid()) continue;
    const TensorType& type = region_.node(inputs[i]).type;
    for (const BoundaryLayout& layout : layouts_.inputs[i]) {
      const NodeId leaf =
          Append(&leaves, Op::kInput, {}, {}, StoredType(type, layout), LeafName(i, layout));
      equal.emplace_back(AppendView(&leaves, leaf, ValueMap(type.shape, layout)), value);
    }
  }
  return terms->Import(leaves, equal).status();
}

absl::StatusOr<std::unique_ptr<LayoutTerms>> LayoutTerms::Create(const Graph& region,
                                                                 const PortLayouts& layouts,
                                                                 const RuleChoice& rules,
                                                                 const SaturationOptions& options,
                                                                 const NodeCosts& costs) {
  std::unique_ptr<LayoutTerms> made(new LayoutTerms(region, layouts));
  ASSIGN_OR_RETURN(std::unique_ptr<TermGraph> terms, TermGraph::Create(made->WithEnds()));
  RETURN_IF_ERROR(made->UniteLeaves(terms.get()));
  ASSIGN_OR_RETURN(made->saturated_, SaturatedTerms::Of(std::move(terms), rules, options));
  made->costs_ = made->saturated_->CostsOf(costs);
  const TermGraph& done = *made->saturated_->terms;
  for (uint32_t i = 0; i < done.terms().node_bound(); ++i) {
    const ENode n{i};
    if (!done.terms().alive(n) || !IsInput(ToOp(done.terms().op(n)))) continue;
    made->leaves_.emplace_back(done.language().declaration(done.terms().payload(n)).name, i);
  }
  return made;
}

// Makes leaves in other layouts infinitely expensive, so that no choice reads them.
std::unique_ptr<RegionTerms> LayoutTerms::Under(const LayoutTuple& tuple) const {
  std::set<std::string> there;
  std::vector<size_t> outputs;
  for (size_t i = 0; i < tuple.inputs.size(); ++i) there.insert(LeafName(i, tuple.inputs[i]));
  for (size_t o = 0; o < tuple.outputs.size(); ++o) {
    outputs.push_back(OutputAt(o, tuple.outputs[o]));
  }
  std::vector<double> costs = costs_;
  for (const auto& [name, node] : leaves_) {
    if (!there.contains(name)) costs[node] = std::numeric_limits<double>::infinity();
  }
  std::unique_ptr<RegionTerms> terms = RegionTerms::Over(saturated_, outputs, std::move(costs));
  return terms->Computable() ? std::move(terms) : nullptr;
}

// Reduces the extracted graph, which has all ends, to those of the tuple.
absl::StatusOr<Graph> LayoutTerms::Stored(const RegionTerms& terms, const egraph::Choice& choice,
                                          const LayoutTuple& tuple) const {
  ASSIGN_OR_RETURN(const Graph all, terms.Extract(choice));
  Graph stored;
  stored.name = region_.name;
  stored.dims = region_.dims;
  std::vector<NodeId> at(all.nodes.size(), -1);
  const std::vector<NodeId> inputs = region_.InputIds();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string leaf = LeafName(i, tuple.inputs[i]);
    for (const NodeId n : all.InputIds()) {
      if (all.node(n).name != leaf) continue;
      at[n] = Append(&stored, Op::kInput, {}, {}, all.node(n).type, region_.node(inputs[i]).name);
    }
  }
  std::vector<bool> needed(all.nodes.size());
  std::vector<NodeId> outputs;
  for (size_t o = 0; o < tuple.outputs.size(); ++o) {
    outputs.push_back(all.outputs[OutputAt(o, tuple.outputs[o])].node);
    needed[outputs.back()] = true;
  }
  for (size_t n = all.nodes.size(); n-- > 0;) {
    for (const NodeId i : all.nodes[n].inputs) needed[i] = needed[i] || needed[n];
  }
  for (size_t n = 0; n < all.nodes.size(); ++n) {
    const Node& node = all.nodes[n];
    const bool kept = IsParameter(node.op) || IsStateRead(node.op);
    if (at[n] >= 0 || (!needed[n] && !kept)) continue;
    if (IsInput(node.op)) {
      return absl::InternalError(absl::StrCat("a region reads ", node.name, " in two layouts"));
    }
    Node copy = node;
    for (NodeId& i : copy.inputs) i = at[i];
    at[n] = static_cast<NodeId>(stored.nodes.size());
    stored.nodes.push_back(std::move(copy));
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    stored.outputs.push_back({region_.outputs[o].name, at[outputs[o]]});
  }
  for (const NodeId update : all.updates) stored.updates.push_back(at[update]);
  return ComposeViews(stored);
}

std::vector<LayoutTerms::Way> LayoutTerms::Ways(const LayoutTuple& tuple, size_t limit) const {
  const std::unique_ptr<RegionTerms> terms = Under(tuple);
  if (terms == nullptr || limit == 0) return {};
  std::vector<egraph::Choice> choices = {terms->Cheapest()};
  for (egraph::Choice& c : terms->Mutations(terms->Cheapest(), limit - 1)) {
    choices.push_back(std::move(c));
  }
  std::vector<Way> ways;
  for (const egraph::Choice& choice : choices) {
    absl::StatusOr<Graph> stored = Stored(*terms, choice, tuple);
    if (stored.ok()) {
      ways.push_back({*std::move(stored), terms->Rows(choice), terms->Cost(choice)});
    }
  }
  return ways;
}

absl::StatusOr<Graph> LayoutTerms::Random(const LayoutTuple& tuple, uint64_t seed) const {
  const std::unique_ptr<RegionTerms> terms = Under(tuple);
  if (terms == nullptr) return absl::NotFoundError("no way to compute the region in this tuple");
  return Stored(*terms, terms->Random(seed), tuple);
}

}  // namespace athanor
