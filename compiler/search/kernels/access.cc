#include "compiler/search/kernels/access.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {

namespace {

class Walk {
 public:
  Walk(const Graph& graph, const std::vector<bool>& has_memory, Bounds bounds, NodeId first)
      : graph_(graph), has_memory_(has_memory), bounds_(std::move(bounds)), first_(first) {}

  void Visit(NodeId id, const std::vector<Expr>& coordinates, bool root);
  Accesses Take() && {
    result_.bounds = std::move(bounds_);
    return std::move(result_);
  }

 private:
  Expr Fresh(const Expr& extent) {
    std::string name = absl::StrCat("$r", fresh_++);
    bounds_.SetExtent(name, extent);
    return Expr::Symbol(name);
  }
  void VisitReduction(const Node& node, const std::vector<Expr>& coordinates);
  void VisitContract(const Node& node, const std::vector<Expr>& coordinates);
  void VisitMap(const Node& node, const std::vector<Expr>& coordinates);
  void VisitGather(const Node& node, const std::vector<Expr>& coordinates);
  void VisitSelect(const Node& node, const std::vector<Expr>& coordinates);

  const Graph& graph_;
  const std::vector<bool>& has_memory_;
  Bounds bounds_;
  const NodeId first_;
  Accesses result_;
  std::set<std::string> seen_;
  int fresh_ = 0;
  bool inside_reduction_ = false;
};

void Walk::Visit(NodeId id, const std::vector<Expr>& coordinates, bool root) {
  // Visits a node once per coordinates; otherwise shared nodes would take exponential time.
  std::string key = absl::StrCat(id, inside_reduction_ ? "r" : "");
  for (const Expr& c : coordinates) absl::StrAppend(&key, ";", c.ToString());
  if (!seen_.insert(key).second) return;
  const Node& node = graph_.node(id);
  result_.widest_bytes = std::max(result_.widest_bytes, DTypeBytes(AccumulatorOf(node.type.dtype)));
  if ((has_memory_[id] || id < first_) && !root) {
    result_.loads.push_back({id, coordinates, inside_reduction_});
    return;
  }
  switch (FormOf(node.op)) {
    case OpForm::kLiteral:
      return;
    case OpForm::kCount:
      result_.indices.push_back(coordinates[GetAttr<int64_t>(node.attrs, "axis")]);
      return;
    case OpForm::kRandom:
      result_.indices.push_back(RowMajorOffset(node.type.shape, coordinates));
      return Visit(node.inputs[0], {}, false);
    case OpForm::kView:
      return VisitMap(node, coordinates);
    case OpForm::kGather:
      return VisitGather(node, coordinates);
    case OpForm::kReduce:
      result_.reductions.push_back({id, coordinates, inside_reduction_});
      return VisitReduction(node, coordinates);
    case OpForm::kContract:
      result_.reductions.push_back({id, coordinates, inside_reduction_});
      return VisitContract(node, coordinates);
    case OpForm::kAttention:
    case OpForm::kBags:
    case OpForm::kLoop:
    case OpForm::kOrder:
    case OpForm::kScatter:
    case OpForm::kStateWrite:
      // These can only be roots or anchors: their kernels read the operands themselves.
      result_.reductions.push_back({id, coordinates, inside_reduction_});
      return;
    default:
      if (IsSelect(node.op)) return VisitSelect(node, coordinates);
      for (NodeId input : node.inputs) Visit(input, coordinates, false);
  }
}

void Walk::VisitReduction(const Node& node, const std::vector<Expr>& coordinates) {
  const Shape& operand = graph_.node(node.inputs[0]).type.shape;
  const auto& axes = GetAttr<std::vector<int64_t>>(node.attrs, "axes");
  std::vector<Expr> point;
  size_t kept = 0;
  for (size_t a = 0; a < operand.size(); ++a) {
    bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(a)) != axes.end();
    point.push_back(reduced ? Fresh(operand[a]) : coordinates[kept++]);
  }
  bool outer = std::exchange(inside_reduction_, true);
  Visit(node.inputs[0], point, false);
  inside_reduction_ = outer;
}

void Walk::VisitContract(const Node& node, const std::vector<Expr>& coordinates) {
  ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  std::map<char, Expr> at;
  for (size_t i = 0; i < spec.result.size(); ++i) at[spec.result[i]] = coordinates[i];
  bool outer = std::exchange(inside_reduction_, true);
  for (int side = 0; side < 2; ++side) {
    const std::string& letters = side == 0 ? spec.lhs : spec.rhs;
    const Shape& shape = graph_.node(node.inputs[side]).type.shape;
    std::vector<Expr> point;
    for (size_t i = 0; i < letters.size(); ++i) {
      if (!at.contains(letters[i])) at[letters[i]] = Fresh(shape[i]);
      point.push_back(at[letters[i]]);
    }
    Visit(node.inputs[side], point, false);
  }
  inside_reduction_ = outer;
}

void Walk::VisitMap(const Node& node, const std::vector<Expr>& coordinates) {
  const IndexMap& map = GetAttr<IndexMap>(node.attrs, "map");
  const Shape& operand = graph_.node(node.inputs[0]).type.shape;
  std::vector<Expr> source = MapCoordinates(map, coordinates, bounds_);
  if (node.attrs.contains("fill")) {
    for (size_t i = 0; i < source.size(); ++i) {
      if (bounds_.NonNegative(source[i]) && bounds_.Less(source[i], operand[i])) continue;
      result_.indices.push_back(source[i]);
      result_.conditions.push_back({source[i], operand[i]});
    }
  }
  Visit(node.inputs[0], source, false);
}

void Walk::VisitGather(const Node& node, const std::vector<Expr>& coordinates) {
  const Shape& data = graph_.node(node.inputs[0]).type.shape;
  size_t index_rank = graph_.node(node.inputs[1]).type.shape.size();
  auto first = coordinates.begin() + GetAttr<int64_t>(node.attrs, "axis");
  auto last = first + static_cast<std::ptrdiff_t>(index_rank);
  Visit(node.inputs[1], std::vector<Expr>(first, last), false);
  std::vector<Expr> source(coordinates.begin(), first);
  // The index is data, so any position along the axis may be read.
  source.push_back(Fresh(data[source.size()]));
  source.insert(source.end(), last, coordinates.end());
  Visit(node.inputs[0], source, false);
}

void Walk::VisitSelect(const Node& node, const std::vector<Expr>& coordinates) {
  std::optional<Condition> choice;
  // Nodes that are not decided about yet may still get memory.
  if (first_ == 0) choice = ChoiceOf(graph_, has_memory_, node, coordinates, bounds_);
  if (choice) {
    if (const std::optional<int> taken = Decided(*choice, bounds_)) {
      return Visit(node.inputs[*taken], coordinates, false);
    }
    result_.choices.push_back(*std::move(choice));
    // The condition becomes index arithmetic, which no lane's width depends on.
    const int widest = result_.widest_bytes;
    Visit(node.inputs[0], coordinates, false);
    result_.widest_bytes = widest;
  }
  for (NodeId input : node.inputs) Visit(input, coordinates, false);
}

// Returns the value of an i64 node that is a function of the position and cannot overflow; nullopt
// for any other node.
std::optional<Expr> PlaceValue(const Graph& graph, const std::vector<bool>& has_memory, NodeId id,
                               const std::vector<Expr>& coordinates, const Bounds& bounds) {
  const Node& node = graph.node(id);
  if (has_memory[id] || node.type.dtype != DType::kI64) return std::nullopt;
  switch (FormOf(node.op)) {
    case OpForm::kCount:
      return coordinates[GetAttr<int64_t>(node.attrs, "axis")];
    case OpForm::kLiteral: {
      const Tensor& value = GetAttr<Tensor>(node.attrs, "value");
      if (value.elements() != 1) return std::nullopt;
      return Expr(LoadScalar(value, 0).i);
    }
    case OpForm::kView:
      if (node.attrs.contains("fill")) return std::nullopt;
      return PlaceValue(graph, has_memory, node.inputs[0],
                        MapCoordinates(GetAttr<IndexMap>(node.attrs, "map"), coordinates, bounds),
                        bounds);
    default:
      return std::nullopt;
  }
}

}  // namespace

Accesses CollectAccesses(const Graph& graph, const std::vector<bool>& has_memory, NodeId root,
                         const std::vector<Expr>& coordinates, Bounds bounds, NodeId first) {
  Walk walk(graph, has_memory, std::move(bounds), first);
  walk.Visit(root, coordinates, /*root=*/true);
  return std::move(walk).Take();
}

std::optional<Condition> ChoiceOf(const Graph& graph, const std::vector<bool>& has_memory,
                                  const Node& select, const std::vector<Expr>& coordinates,
                                  const Bounds& bounds) {
  if (!IsSelect(select.op) || has_memory[select.inputs[0]]) return std::nullopt;
  const Node& less = graph.node(select.inputs[0]);
  if (!IsComparison(less.op)) return std::nullopt;
  std::optional<Expr> sides[2];
  for (int i = 0; i < 2; ++i) {
    sides[i] = PlaceValue(graph, has_memory, less.inputs[i], coordinates, bounds);
    if (!sides[i]) return std::nullopt;
  }
  return Condition{*std::move(sides[0]), *std::move(sides[1])};
}

std::optional<int> Decided(const Condition& choice, const Bounds& bounds) {
  if (bounds.Less(choice.coordinate, choice.extent)) return 1;
  if (bounds.NonNegative(choice.coordinate - choice.extent)) return 2;
  return std::nullopt;
}

Expr RowMajorOffset(const Shape& shape, const std::vector<Expr>& coordinates) {
  Expr offset = 0;
  for (size_t i = 0; i < shape.size(); ++i) offset = offset * shape[i] + coordinates[i];
  return offset;
}

std::vector<Expr> MapCoordinates(const IndexMap& map, const std::vector<Expr>& coordinates,
                                 const Bounds& bounds) {
  std::map<std::string, Expr, std::less<>> axes;
  for (size_t i = 0; i < coordinates.size(); ++i) axes[absl::StrCat("$", i)] = coordinates[i];
  std::vector<Expr> source;
  source.reserve(map.coordinates.size());
  for (const Expr& c : map.coordinates) source.push_back(bounds.Simplify(c.Substitute(axes)));
  return source;
}

namespace {

// A mixed-radix digit of axis `axis` inside a coordinate: `place` times $i, $i mod m, floordiv($i,
// weight) or floordiv($i, weight) mod m.
struct Digit {
  size_t axis;
  Expr place;
  Expr weight;
};

// Reads `t` as a digit: the factor beside its one atom $i (weight 1) or floordiv($i, weight).
// nullopt if it has no such atom, or is negative, like the term that mod subtracts.
std::optional<Digit> DigitOf(const Expr::Term& t, size_t axis) {
  if (t.coefficient <= 0) return std::nullopt;
  const Expr whole = Expr::Axis(static_cast<int>(axis));
  Digit d{axis, Expr(t.coefficient), Expr(0)};
  for (const AtomRef& atom : t.monomial) {
    const bool divided = atom->kind == Atom::Kind::kFloorDiv && atom->args[0] == whole;
    if (Expr::Of(atom) == whole || divided) {
      if (!d.weight.IsConstant(0)) return std::nullopt;
      d.weight = divided ? atom->args[1] : Expr(1);
    } else {
      d.place *= Expr::Of(atom);
    }
  }
  if (d.weight.IsConstant(0)) return std::nullopt;
  return d;
}

bool Divides(const Expr& divisor, const Expr& e) {
  return Divide(e, divisor).quotient * divisor == e;
}

// Returns the digits that sum to the coordinate, the highest place first; empty if it is no such
// sum. This is a guess: the caller checks the inverse.
std::vector<Digit> DigitsOf(const Expr& coordinate, size_t rank) {
  std::vector<Digit> digits;
  for (size_t i = 0; i < rank; ++i) {
    if (!coordinate.Uses(absl::StrCat("$", i))) continue;
    std::optional<Digit> found;
    for (const Expr::Term& t : coordinate.terms()) {
      if (!found) found = DigitOf(t, i);
    }
    if (!found) return {};
    auto lower = std::find_if(digits.begin(), digits.end(),
                              [&](const Digit& d) { return Divides(d.place, found->place); });
    digits.insert(lower, *std::move(found));
  }
  return digits;
}

}  // namespace

std::optional<std::vector<Expr>> InvertMap(const IndexMap& map, const Shape& operand,
                                           const std::vector<Expr>& coordinates, Bounds bounds) {
  // Guess: every coordinate of the operand is a number whose digits are digits of axes.
  std::vector<Expr> result(map.shape.size(), Expr(0));
  std::vector<Expr> at;  // symbols for the operand's coordinates while the guess is checked
  for (size_t j = 0; j < map.coordinates.size(); ++j) {
    std::string name = absl::StrCat("$o", j);
    bounds.SetExtent(name, operand[j]);
    at.push_back(Expr::Symbol(name));
    if (map.coordinates[j].constant()) continue;
    const std::vector<Digit> digits = DigitsOf(map.coordinates[j], map.shape.size());
    if (digits.empty()) return std::nullopt;
    for (size_t d = 0; d < digits.size(); ++d) {
      Expr value = FloorDiv(at[j], digits[d].place);
      // The highest digit needs no modulus: nothing lies above it.
      if (d > 0) value = Mod(value, Divide(digits[d - 1].place, digits[d].place).quotient);
      result[digits[d].axis] += digits[d].weight * value;
    }
  }
  // Proof: reading at the guessed result coordinates gives the operand's coordinates back, the
  // guess lies inside the result, and both sides have equally many elements.
  std::vector<Expr> back = MapCoordinates(map, result, bounds);
  Expr operand_elements = 1, result_elements = 1;
  for (size_t j = 0; j < at.size(); ++j) {
    if (!bounds.ProvablyEqual(back[j], at[j]) && !operand[j].IsConstant(1)) return std::nullopt;
    operand_elements *= operand[j];
  }
  for (size_t i = 0; i < result.size(); ++i) {
    if (!bounds.NonNegative(result[i]) || !bounds.Less(result[i], map.shape[i]))
      return std::nullopt;
    result_elements *= map.shape[i];
  }
  // Reading gives every operand element back, so no two go to one result element. With equal counts
  // the guess is the whole inverse.
  if (!(operand_elements == result_elements)) return std::nullopt;
  std::map<std::string, Expr, std::less<>> values;
  for (size_t j = 0; j < at.size(); ++j) values[absl::StrCat("$o", j)] = coordinates[j];
  for (Expr& e : result) e = e.Substitute(values);
  return result;
}

namespace {

// Returns the nodes from `root` down to `anchor`, root first; empty if no path leads there. Tries
// each node once.
std::vector<NodeId> PathTo(const Graph& graph, const std::vector<bool>& has_memory, NodeId root,
                           NodeId anchor) {
  std::vector<NodeId> from(graph.nodes.size(), -1), open = {root};
  std::vector<bool> seen(graph.nodes.size());
  while (!open.empty() && !seen[anchor]) {
    NodeId n = open.back();
    open.pop_back();
    const Node& node = graph.node(n);
    bool passes = IsElementwise(node.op) || IsIndexMap(node.op);
    if (!passes) continue;
    for (NodeId input : node.inputs) {
      if (seen[input] || input < anchor || (has_memory[input] && input != anchor)) continue;
      seen[input] = true;
      from[input] = n;
      open.push_back(input);
    }
  }
  if (root != anchor && !seen[anchor]) return {};
  std::vector<NodeId> path = {anchor};
  while (path.back() != root) path.push_back(from[path.back()]);
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace

std::optional<std::vector<Expr>> RootCoordinates(const Graph& graph,
                                                 const std::vector<bool>& has_memory, NodeId root,
                                                 NodeId anchor,
                                                 const std::vector<Expr>& coordinates,
                                                 const Bounds& bounds) {
  std::vector<NodeId> path = PathTo(graph, has_memory, root, anchor);
  if (path.empty()) return std::nullopt;
  std::optional<std::vector<Expr>> at = coordinates;
  for (size_t i = path.size() - 1; i-- > 0 && at;) {
    const Node& node = graph.node(path[i]);
    if (!IsIndexMap(node.op)) continue;
    at = InvertMap(GetAttr<IndexMap>(node.attrs, "map"), graph.node(path[i + 1]).type.shape, *at,
                   bounds);
  }
  return at;
}

bool IsEpilogue(const Graph& graph, const std::vector<bool>& has_memory, NodeId root,
                NodeId anchor) {
  Bounds bounds = graph.DimBounds();
  const Shape& shape = graph.node(anchor).type.shape;
  std::vector<Expr> at;
  for (size_t i = 0; i < shape.size(); ++i) {
    const std::string name = absl::StrCat("x", i);
    bounds.SetExtent(name, shape[i]);
    at.push_back(shape[i].IsConstant(1) ? Expr(0) : Expr::Symbol(name));
  }
  auto places = RootCoordinates(graph, has_memory, root, anchor, at, bounds);
  if (!places) return false;
  Accesses a = CollectAccesses(graph, has_memory, root, *places, bounds, anchor);
  bool found = false;
  for (const Access& r : a.reductions) {
    if (r.node != anchor) continue;
    if (r.coordinates != at || r.inside_reduction) return false;
    found = true;
  }
  return found;
}

}  // namespace athanor
