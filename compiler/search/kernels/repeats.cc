#include "compiler/search/kernels/repeats.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/search/kernels/extents.h"

namespace athanor {
namespace {

constexpr double kMost = 1e12;  // counts saturate here
// A value that is computed more often than this pays for being written and read: one read through
// windows, and any other.
constexpr double kMostOverlap = 1.5;
constexpr double kMostRepeats = 4;
// Operations per element, in additions, from which on many rows should share them.
constexpr double kDear = 8;

bool IsArithmetic(const Node& node) {
  const Rounding rounding = OpInfo(node.op).traits.rounding;
  return IsElementwise(node.op) && rounding != Rounding::kConverts && rounding != Rounding::kBits;
}

// Roots and reciprocals, correctly rounded though they are no cheaper than divisions, count as one
// addition.
double CostOf(const Node& node) {
  const OpRow& row = OpInfo(node.op);
  const bool divides = row.traits.flops >= kDear && row.min_inputs == 2;
  return divides || row.ulp > 0 ? kDear : 1;
}

// Reports whether some coordinate moves with two axes.
bool MovesWithTwo(const Node& node) {
  if (!IsIndexMap(node.op)) return false;
  const IndexMap& map = GetAttr<IndexMap>(node.attrs, "map");
  return std::any_of(map.coordinates.begin(), map.coordinates.end(), [&](const Expr& c) {
    int axes = 0;
    for (size_t i = 0; i < map.shape.size(); ++i) axes += c.Uses(absl::StrCat("$", i)) ? 1 : 0;
    return axes > 1;
  });
}

// Axes that a cheap function of the position alone moves with; nullopt for any other node.
using PlaceAxes = std::optional<std::set<int64_t>>;

PlaceAxes PlaceAxesOf(const Node& node, const std::vector<PlaceAxes>& known) {
  if (IsConstant(node.op) && node.type.shape.empty()) return std::set<int64_t>();
  if (FormOf(node.op) == OpForm::kCount)
    return std::set<int64_t>{GetAttr<int64_t>(node.attrs, "axis")};
  const bool map = IsIndexMap(node.op) && !node.attrs.contains("fill");
  const bool cheap = IsElementwise(node.op) && CostOf(node) < kDear;
  if (!map && !cheap) return std::nullopt;
  std::set<int64_t> axes;
  for (NodeId i : node.inputs) {
    if (!known[i]) return std::nullopt;
    axes.insert(known[i]->begin(), known[i]->end());
  }
  if (!map) return axes;
  const IndexMap& places = GetAttr<IndexMap>(node.attrs, "map");
  std::set<int64_t> moved;
  for (int64_t a : axes) {
    for (size_t i = 0; i < places.shape.size(); ++i) {
      if (places.coordinates[a].Uses(absl::StrCat("$", i))) moved.insert(static_cast<int64_t>(i));
    }
  }
  return moved;
}

}  // namespace

bool ReadsWindows(const Graph& graph, const Node& node) {
  // Looks at few nodes, because this is asked of each reduction.
  constexpr int kMostLooked = 64;
  std::vector<NodeId> open(node.inputs.begin(), node.inputs.end());
  for (int looked = 0; !open.empty() && looked < kMostLooked; ++looked) {
    const Node& at = graph.node(open.back());
    open.pop_back();
    if (MovesWithTwo(at)) return true;
    const bool passes = IsElementwise(at.op) || IsIndexMap(at.op);
    if (passes) open.insert(open.end(), at.inputs.begin(), at.inputs.end());
  }
  return false;
}

bool IsShortReduction(const Graph& graph, const Node& node) {
  // Most lanes along so few elements would idle, so lanes run along the result instead.
  constexpr int64_t kShort = 4, kShortWindow = 16, kMostTaps = 1024;
  const Shape& operand = graph.node(node.inputs[0]).type.shape;
  int64_t taps = 1, last = 1;
  for (int64_t axis : GetAttr<std::vector<int64_t>>(node.attrs, "axes")) {
    const std::optional<int64_t> extent = operand[axis].constant();
    if (!extent || *extent > kMostTaps) return false;
    taps *= std::max<int64_t>(*extent, 1);
    if (taps > kMostTaps) return false;
    if (axis + 1 == static_cast<int64_t>(operand.size())) last = *extent;
  }
  const Shape& shape = node.type.shape;
  if (shape.empty() || graph.DimBounds().Maximum(shape.back()).value_or(kShort) < kShort) {
    return false;
  }
  return last <= kShort || (last <= kShortWindow && ReadsWindows(graph, node));
}

Repeats::Repeats(const Graph& graph)
    : graph_(graph),
      bounds_(graph.DimBounds()),
      elements_(graph.nodes.size(), -1),
      place_cost_(graph.nodes.size(), -1),
      again_(graph.nodes.size(), 1),
      window_(graph.nodes.size()),
      rows_place_(graph.nodes.size()) {
  std::vector<PlaceAxes> axes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    axes.push_back(PlaceAxesOf(node, axes));
    rows_place_[n] = axes[n] && !node.type.shape.empty() &&
                     !axes[n]->contains(static_cast<int64_t>(node.type.shape.size()) - 1);
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool moves = IsIndexMap(node.op);
    if (FormOf(node.op) == OpForm::kCount ||
        std::all_of(node.type.shape.begin(), node.type.shape.end(),
                    [](const Expr& e) { return e.IsConstant(1); })) {
      place_cost_[n] = 0;
    } else if (moves || IsElementwise(node.op)) {
      double cost = moves ? 0 : CostOf(node);
      for (NodeId i : node.inputs) {
        cost = place_cost_[i] < 0 || cost < 0 ? -1 : std::min(kMost, cost + place_cost_[i]);
      }
      place_cost_[n] = cost;
    }
  }
}

double Repeats::Elements(NodeId n) {
  if (elements_[n] < 0) {
    const std::optional<int64_t> most = bounds_.Maximum(Product(graph_.node(n).type.shape));
    elements_[n] = most ? std::max(1.0, static_cast<double>(*most)) : kMost;
  }
  return elements_[n];
}

// Reports whether the user reads the surroundings of each position, so that elements are read
// several times.
bool Repeats::IsWindow(NodeId user, NodeId n) {
  const Node& u = graph_.node(user);
  if (FormOf(u.op) == OpForm::kGather) return u.inputs[0] == n;
  return MovesWithTwo(u) && Elements(user) > Elements(n);
}

bool Repeats::Pay(NodeId n, absl::Span<const NodeId> users, const std::vector<bool>& has_memory) {
  double again = 0, most = 0;
  bool window = false;
  for (NodeId u : users) {
    const Op op = graph_.node(u).op;
    const bool inside = !has_memory[u];
    const double outer = inside ? again_[u] : 1;
    window = window || IsWindow(u, n) || (inside && window_[u]);
    if (IsIndexMap(op) || FormOf(op) == OpForm::kGather) {
      // On average a view reads an element as often as it has more elements than its operand.
      again += outer * Elements(u) / Elements(n);
    } else {
      most = std::max(most, outer);  // users at one position share its value
    }
  }
  again_[n] = again = std::min(kMost, std::max(again, most));
  window_[n] = window;
  const Node& node = graph_.node(n);
  if (window && again > kMostOverlap && (IsArithmetic(node) || FormOf(node.op) == OpForm::kGather))
    return true;
  return again >= kMostRepeats && place_cost_[n] >= kDear && IsElementwise(node.op);
}

}  // namespace athanor
