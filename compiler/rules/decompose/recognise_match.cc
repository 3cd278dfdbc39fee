#include "compiler/rules/decompose/recognise_match.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {

namespace {

const IndexMap* ViewOf(const Node& node) {
  if (node.op != Op::kIndexMap || node.attrs.contains("fill")) return nullptr;
  return &GetAttr<IndexMap>(node.attrs, "map");
}

enum class Passed { kPermutations, kRepetitions, kUnitAxes };

// Returns the axis of `shape` that each coordinate is as a whole; nullopt if a coordinate is none
// or an axis occurs twice. With `units`, -1 for an axis of size 1 that is none of them.
std::optional<std::vector<int>> WholeAxes(const std::vector<Expr>& coordinates,
                                          const Shape& operand, const Shape& shape, bool units) {
  std::vector<int> axes;
  std::vector<bool> taken(shape.size());
  for (size_t j = 0; j < coordinates.size(); ++j) {
    int found = -1;
    for (size_t i = 0; i < shape.size() && found < 0; ++i) {
      // The coordinate of an axis of size 1 may be written as 0 or as $i.
      bool only = coordinates[j].IsConstant(0) && operand[j].IsConstant(1);
      bool same = coordinates[j] == Expr::Axis(static_cast<int>(i)) || only;
      if (same && !taken[i] && shape[i] == operand[j]) found = static_cast<int>(i);
    }
    if (found < 0 && !(units && operand[j].IsConstant(1))) return std::nullopt;
    if (found >= 0) taken[found] = true;
    axes.push_back(found);
  }
  return axes;
}

Lettered Descend(const RecognitionSite& site, const Lettered& v, Passed what,
                 std::vector<NodeId>* passed) {
  Lettered best = v;
  const Shape& shape = site.node(v.node).type.shape;
  std::vector<Expr> at;
  for (size_t i = 0; i < shape.size(); ++i) at.push_back(Expr::Axis(static_cast<int>(i)));
  std::vector<NodeId> path;
  for (NodeId n = v.node; const IndexMap* map = ViewOf(site.node(n));) {
    at = Compose(*map, at);
    path.push_back(n);
    n = site.node(n).inputs[0];
    const Shape& operand = site.node(n).type.shape;
    if (what == Passed::kPermutations && operand.size() != shape.size()) continue;
    std::optional<std::vector<int>> axes = WholeAxes(at, operand, shape, what == Passed::kUnitAxes);
    if (!axes) continue;
    best = {n, ""};
    for (int axis : *axes) best.letters += axis < 0 ? kUnitLetter : v.letters[axis];
    if (passed != nullptr) passed->insert(passed->end(), path.begin(), path.end());
    path.clear();
  }
  return best;
}

}  // namespace

std::vector<Expr> Compose(const IndexMap& map, const std::vector<Expr>& coordinates) {
  std::map<std::string, Expr, std::less<>> axes;
  for (size_t i = 0; i < coordinates.size(); ++i) axes[absl::StrCat("$", i)] = coordinates[i];
  std::vector<Expr> source;
  for (const Expr& c : map.coordinates) source.push_back(c.Substitute(axes));
  return source;
}

Lettered SourceOf(const RecognitionSite& site, const Lettered& v, std::vector<NodeId>* passed) {
  return Descend(site, v, Passed::kRepetitions, passed);
}

Lettered UnitSourceOf(const RecognitionSite& site, const Lettered& v, std::vector<NodeId>* passed) {
  return Descend(site, v, Passed::kUnitAxes, passed);
}

Lettered PermutedSourceOf(const RecognitionSite& site, const Lettered& v,
                          std::vector<NodeId>* passed) {
  return Descend(site, v, Passed::kPermutations, passed);
}

std::optional<LetteredView> ViewWithoutRepetition(const RecognitionSite& site, const Lettered& v) {
  const Shape& shape = site.node(v.node).type.shape;
  std::vector<Expr> at;
  for (size_t i = 0; i < shape.size(); ++i) at.push_back(Expr::Axis(static_cast<int>(i)));
  NodeId n = v.node;
  while (const IndexMap* map = ViewOf(site.node(n))) {
    at = Compose(*map, at);
    n = site.node(n).inputs[0];
  }
  if (n == v.node) return std::nullopt;
  LetteredView r;
  IndexMap view;
  std::map<std::string, Expr, std::less<>> renamed;
  for (size_t i = 0; i < shape.size(); ++i) {
    const std::string axis = absl::StrCat("$", i);
    bool used = std::any_of(at.begin(), at.end(), [&](const Expr& e) { return e.Uses(axis); });
    if (!used) continue;
    renamed[axis] = Expr::Axis(static_cast<int>(view.shape.size()));
    view.shape.push_back(shape[i]);
    r.letters += v.letters[i];
  }
  for (const Expr& e : at) view.coordinates.push_back(e.Substitute(renamed));
  r.operand = {n, std::move(view)};
  return r;
}

std::optional<double> ScalarValue(const RecognitionSite& site, NodeId n) {
  const Node& node = site.node(n);
  if (!IsFloat(node.type.dtype) || AccumulatorOf(node.type.dtype) != node.type.dtype)
    return std::nullopt;
  if (node.op == Op::kConstant) {
    const Tensor& value = GetAttr<Tensor>(node.attrs, "value");
    if (value.elements() != 1) return std::nullopt;
    return LoadScalar(value, 0).f;
  }
  if (ViewOf(node) != nullptr) return ScalarValue(site, node.inputs[0]);
  if (node.op != Op::kSqrt && node.op != Op::kRecip && node.op != Op::kDiv) return std::nullopt;
  std::optional<double> a = ScalarValue(site, node.inputs[0]), b = 1;
  if (node.op == Op::kDiv) b = ScalarValue(site, node.inputs[1]);
  if (!a || !b) return std::nullopt;
  double value = node.op == Op::kSqrt ? std::sqrt(*a) : node.op == Op::kRecip ? 1 / *a : *a / *b;
  return node.type.dtype == DType::kF32 ? static_cast<double>(static_cast<float>(value)) : value;
}

std::optional<ScaledOperand> ScaledOperandOf(const RecognitionSite& site, NodeId n) {
  const Shape& shape = site.node(n).type.shape;
  std::vector<Expr> at;
  for (size_t i = 0; i < shape.size(); ++i) at.push_back(Expr::Axis(static_cast<int>(i)));
  NodeId below = n;
  while (const IndexMap* map = ViewOf(site.node(below))) {
    at = Compose(*map, at);
    below = site.node(below).inputs[0];
  }
  const Node& node = site.node(below);
  if (node.op != Op::kMul && node.op != Op::kDiv) return std::nullopt;
  for (int i = 0; i < (node.op == Op::kMul ? 2 : 1); ++i) {
    std::optional<double> factor = ScalarValue(site, node.inputs[1 - i]);
    if (!factor) continue;
    ScaledOperand r{{node.inputs[i], std::nullopt}, node.op == Op::kMul ? *factor : 1 / *factor};
    if (below != n) r.operand.view = IndexMap{shape, std::move(at)};
    return r;
  }
  return std::nullopt;
}

namespace {

Range RangeOfConstant(const Tensor& value) {
  Range r{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (int64_t i = 0; i < value.elements(); ++i) {
    const double element = LoadScalar(value, i).f;
    // A NaN lies in no finite range.
    if (std::isnan(element)) return {element, element};
    r = {std::min(r.low, element), std::max(r.high, element)};
  }
  return r;
}

Range RangeOf(Op op, const Range& a, const Range& b) {
  if (op == Op::kSelect) return {std::min(a.low, b.low), std::max(a.high, b.high)};
  if (op == Op::kAdd) return {a.low + b.low, a.high + b.high};
  auto [low, high] = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
  return {low, high};
}

}  // namespace

std::optional<Range> FiniteRange(const RecognitionSite& site, NodeId n, int depth) {
  const Node& node = site.node(n);
  const DType dtype = node.type.dtype;
  if (dtype == DType::kBool) return Range{0, 1};
  const double ends = IsInteger(dtype) ? std::ldexp(1.0, 8 * DTypeBytes(dtype)) : 0;
  if (IsInteger(dtype)) return Range{-ends, ends};
  if (depth == 0 || AccumulatorOf(dtype) != dtype) return std::nullopt;
  std::optional<Range> r;
  if (node.op == Op::kConstant) {
    r = RangeOfConstant(GetAttr<Tensor>(node.attrs, "value"));
  } else if (node.op == Op::kCast || ViewOf(node) != nullptr) {
    r = FiniteRange(site, node.inputs[0], depth - 1);
  } else if (node.op == Op::kSelect || node.op == Op::kAdd || node.op == Op::kMul) {
    const int first = node.op == Op::kSelect ? 1 : 0;
    std::optional<Range> a = FiniteRange(site, node.inputs[first], depth - 1);
    std::optional<Range> b = a ? FiniteRange(site, node.inputs[first + 1], depth - 1) : a;
    if (b) r = RangeOf(node.op, *a, *b);
  }
  const double most = dtype == DType::kF64 ? std::numeric_limits<double>::max()
                                           : double{std::numeric_limits<float>::max()};
  return r && r->low >= -most && r->high <= most ? r : std::nullopt;
}

std::optional<Expr> IndexValue(const RecognitionSite& site, NodeId n,
                               const std::vector<Expr>& coordinates, const Bounds& bounds) {
  const Node& node = site.node(n);
  const DType dtype = node.type.dtype;
  if (dtype != DType::kI64 && dtype != DType::kI32) return std::nullopt;
  std::optional<Expr> value;
  if (node.op == Op::kIota) {
    value = coordinates[GetAttr<int64_t>(node.attrs, "axis")];
  } else if (node.op == Op::kConstant) {
    const Tensor& literal = GetAttr<Tensor>(node.attrs, "value");
    if (literal.elements() == 1) value = Expr(LoadScalar(literal, 0).i);
  } else if (const IndexMap* map = ViewOf(node)) {
    value = IndexValue(site, node.inputs[0], Compose(*map, coordinates), bounds);
  } else if (node.op == Op::kAdd || node.op == Op::kMul) {
    std::optional<Expr> a = IndexValue(site, node.inputs[0], coordinates, bounds);
    std::optional<Expr> b = IndexValue(site, node.inputs[1], coordinates, bounds);
    if (a && b) value = node.op == Op::kAdd ? *a + *b : *a * *b;
  }
  if (!value) return std::nullopt;
  // Proves that the value does not wrap; otherwise returns no value.
  std::optional<int64_t> low = bounds.Minimum(*value), high = bounds.Maximum(*value);
  if (!low || !high) return std::nullopt;
  if (dtype == DType::kI32 && (*low < INT32_MIN || *high > INT32_MAX)) return std::nullopt;
  return value;
}

}  // namespace athanor
