#include "compiler/rules/decompose_sort.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/rule_example.h"

namespace athanor {
namespace {

using Inputs = absl::Span<const NodeId>;

DType IntegersAsWideAs(DType dtype) {
  switch (DTypeBytes(dtype)) {
    case 2:
      return DType::kI16;
    case 4:
      return DType::kI32;
    default:
      return DType::kI64;
  }
}

// Integers in the order of the elements. Of floats their magnitude's bits with their sign, which
// are equal for both zeros; NaN is above all and equal to NaN.
NodeId Keys(Expansion& x, NodeId n) {
  const DType dtype = x.Type(n).dtype;
  if (!IsFloat(dtype)) return n;
  const DType integers = IntegersAsWideAs(dtype);
  const double infinity =
      static_cast<double>(EncodeFloat(dtype, std::numeric_limits<double>::infinity()));
  NodeId bits = x.Add(Op::kBitcast, {n}, {{"dtype", integers}});
  NodeId largest =
      x.Add(Op::kNot, {x.FillLike(bits, -std::ldexp(1.0, 8 * DTypeBytes(integers) - 1))});
  NodeId magnitude = x.Add(Op::kAnd, {bits, largest});
  NodeId negative = x.Add(Op::kLessThan, {bits, x.FillLike(bits, 0)});
  NodeId minus = x.Add(Op::kMul, {magnitude, x.FillLike(magnitude, -1)});
  NodeId number = x.Add(Op::kSelect, {negative, minus, magnitude});
  NodeId is_nan = x.Add(Op::kLessThan, {x.FillLike(bits, infinity), magnitude});
  return x.Add(Op::kSelect, {is_nan, largest, number});
}

// An axis of a tensor beside itself: the tensor's shape and, last, the axis again.
struct Pairs {
  Pairs(Expansion& x, const Shape& shape, int64_t axis)
      : x(x), axis(static_cast<int>(axis)), last(static_cast<int>(shape.size())), shape(shape) {
    this->shape.push_back(shape[axis]);
  }
  // By the axis itself, and by its repetition.
  NodeId Own(NodeId n) { return x.Repeat(n, last, shape); }
  NodeId Other(NodeId n) {
    std::vector<Expr> coordinates;
    for (int i = 0; i < last; ++i) coordinates.push_back(Expr::Axis(i == axis ? last : i));
    return x.Map(n, shape, std::move(coordinates));
  }
  NodeId Position(int of) {
    return x.Add(Op::kIota, {},
                 {{"shape", shape}, {"axis", static_cast<int64_t>(of)}, {"dtype", DType::kI64}});
  }
  NodeId OtherBefore() { return x.Add(Op::kLessThan, {Position(last), Position(axis)}); }

  Expansion& x;
  const int axis, last;
  Shape shape;
};

// How many elements stand before each: those below it, and those equal to it before its place.
NodeId Ranks(Expansion& x, NodeId keys, int64_t axis, bool descending) {
  Pairs pairs(x, x.Type(keys).shape, axis);
  NodeId own = pairs.Own(keys), other = pairs.Other(keys);
  if (descending) std::swap(own, other);
  NodeId below = x.Add(Op::kLessThan, {other, own});
  NodeId not_above = x.Add(Op::kNot, {x.Add(Op::kLessThan, {own, other})});
  NodeId before = x.Add(Op::kSelect, {pairs.OtherBefore(), not_above, below});
  return x.Reduce(Op::kSumReduce, x.Cast(before, DType::kI64), {pairs.last});
}

// Row-major places over $0, $1, ..., without the part of `left_out`.
Expr PlaceIn(const Shape& shape, int64_t left_out = -1) {
  Expr place = 0, stride = 1;
  for (int i = static_cast<int>(shape.size()); i-- > 0; stride *= shape[i]) {
    if (i != left_out) place += Expr::Axis(i) * stride;
  }
  return place;
}

NodeId Flat(Expansion& x, NodeId n) {
  const Shape shape = x.Type(n).shape;
  std::vector<Expr> coordinates(shape.size());
  Expr stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
    const Expr whole = FloorDiv(Expr::Axis(0), stride);
    coordinates[i] = i == 0 ? whole : Mod(whole, shape[i]);
  }
  return x.MapInside(n, {stride}, std::move(coordinates));
}

// Each row's positions in its order: what has rank r is written at place r.
NodeId InOrder(Expansion& x, NodeId n, int64_t axis, bool descending) {
  const Shape shape = x.Type(n).shape;
  Expr elements = 1, inner = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].IsConstant(0)) return x.Fill(DType::kI64, 0, shape);
    elements *= shape[i];
    if (static_cast<int64_t>(i) > axis) inner *= shape[i];
  }
  NodeId place = Ranks(x, Keys(x, n), axis, descending);
  NodeId position =
      x.Add(Op::kIota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", DType::kI64}});
  const bool flat = shape.size() == 1;
  if (!flat) {
    NodeId count = x.Add(
        Op::kIota, {}, {{"shape", Shape{elements}}, {"axis", int64_t{0}}, {"dtype", DType::kI64}});
    NodeId row = x.MapInside(count, shape, {PlaceIn(shape, axis)});
    if (!inner.IsConstant(1)) {
      place = x.Add(Op::kMul, {place, x.Size(DType::kI64, inner, shape)});
    }
    place = Flat(x, x.Add(Op::kAdd, {row, place}));
    position = Flat(x, position);
  }
  NodeId order = x.Add(Op::kScatter, {x.Fill(DType::kI64, 0, {elements}), place, position},
                       {{"axis", int64_t{0}}, {"mode", std::string("set")}});
  return flat ? order : x.MapInside(order, shape, {PlaceIn(shape)});
}

struct Cumulation {
  bool add, exclusive, reverse;
};

// Of each element all those that count for it, chosen from the whole axis.
NodeId CumulatedByPairs(Expansion& x, const Cumulation& c, NodeId n, int64_t axis) {
  Pairs pairs(x, x.Type(n).shape, axis);
  NodeId terms = pairs.Other(n);
  // Others before, or all but those behind; the other way round in reverse.
  NodeId own = pairs.Position(pairs.axis), other = pairs.Position(pairs.last);
  if (c.reverse != c.exclusive) std::swap(own, other);
  NodeId taken = x.Add(Op::kLessThan, {own, other});
  if (!c.exclusive) taken = x.Add(Op::kNot, {taken});
  NodeId chosen = x.Add(Op::kSelect, {taken, terms, x.FillLike(terms, c.add ? 0 : 1)});
  return x.Reduce(c.add ? Op::kSumReduce : Op::kMulReduce, chosen, {pairs.last});
}

// A block's elements are paired; a lane each.
constexpr int64_t kBlock = 16;
// 16 to the power of that is longer than any axis.
constexpr int kMostLevels = 16;

// A long axis in blocks: what counts in the element's own block, and the blocks before it as a
// whole, which are cumulated likewise. With n elements 16 n terms instead of n^2.
NodeId Cumulated(Expansion& x, const Cumulation& c, NodeId n, int64_t axis, int level = 0) {
  const Shape shape = x.Type(n).shape;
  const std::optional<int64_t> longest = x.DimBounds().Maximum(shape[axis]);
  if ((longest && *longest <= 2 * kBlock) || level == kMostLevels) {
    return CumulatedByPairs(x, c, n, axis);
  }
  const DType dtype = x.Type(n).dtype;
  Shape blocks = shape;
  blocks[axis] = CeilDiv(shape[axis], kBlock);
  blocks.insert(blocks.begin() + axis + 1, kBlock);
  std::vector<Expr> split, element, block;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    const Expr at = Expr::Axis(i);
    split.push_back(i == axis ? at * kBlock + Expr::Axis(i + 1) : Expr::Axis(i > axis ? i + 1 : i));
    block.push_back(i == axis ? FloorDiv(at, kBlock) : at);
    element.push_back(block.back());
    if (i == axis) element.push_back(Mod(at, kBlock));
  }
  const Scalar none = LoadScalar(Tensor::Zeros(dtype, {}), 0);
  const Scalar one = IsFloat(dtype)    ? Scalar::Float(dtype, 1)
                     : IsSigned(dtype) ? Scalar::Signed(dtype, 1)
                                       : Scalar::Unsigned(dtype, 1);
  const NodeId parts = x.MapOr(n, std::move(blocks), std::move(split), c.add ? none : one);
  const NodeId within = CumulatedByPairs(x, c, parts, axis + 1);
  const NodeId whole = x.Reduce(c.add ? Op::kSumReduce : Op::kMulReduce, parts, {axis + 1});
  const NodeId before = Cumulated(x, {c.add, true, c.reverse}, whole, axis, level + 1);
  return x.Add(c.add ? Op::kAdd : Op::kMul, {x.MapInside(within, shape, std::move(element)),
                                             x.MapInside(before, shape, std::move(block))});
}

}  // namespace

NodeId ExpandSort(Expansion& x, const Node& node, Inputs in) {
  return InOrder(x, in[0], GetAttr<int64_t>(node.attrs, "axis"),
                 GetAttrOr<bool>(node.attrs, "descending", false));
}

NodeId ExpandTopK(Expansion& x, const Node& node, Inputs in) {
  NodeId order = InOrder(x, in[0], GetAttr<int64_t>(node.attrs, "axis"),
                         GetAttrOr<bool>(node.attrs, "largest", true));
  const Shape shape = node.type.shape;
  std::vector<Expr> coordinates;
  for (size_t i = 0; i < shape.size(); ++i) coordinates.push_back(Expr::Axis(static_cast<int>(i)));
  return x.MapInside(order, shape, std::move(coordinates));
}

NodeId ExpandCumulate(Expansion& x, const Node& node, Inputs in) {
  const Cumulation c{GetAttr<std::string>(node.attrs, "op") == "add",
                     GetAttrOr<bool>(node.attrs, "exclusive", false),
                     GetAttrOr<bool>(node.attrs, "reverse", false)};
  const NodeId terms = x.Cast(in[0], AccumulatorOf(node.type.dtype));
  return x.Cast(Cumulated(x, c, terms, GetAttr<int64_t>(node.attrs, "axis")), node.type.dtype);
}

void SortExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size(), e.Size()});
  e.Output(e.x().Add(Op::kSort, {x}, {{"axis", e.Pick(0, 2)}, {"descending", e.Coin()}}));
}

void TopKExample(ExampleBuilder& e) {
  const int64_t size = e.ConstantSize(), k = e.Pick(0, size);
  const NodeId x = e.Input({e.Size(), size});
  e.Output(
      e.x().Add(Op::kTopK, {x}, {{"axis", int64_t{1}}, {"k", Shape{k}}, {"largest", e.Coin()}}));
}

// Products of numbers up to 1: others may leave the range on one side only.
void CumulateExample(ExampleBuilder& e) {
  const bool add = e.Coin();
  NodeId x = e.Input({e.Size(), e.Size()});
  if (!add) x = e.x().Add(Op::kTanh, {x});
  e.Output(e.x().Add(Op::kCumulate, {x},
                     {{"axis", e.Pick(0, 1)},
                      {"op", std::string(add ? "add" : "mul")},
                      {"exclusive", e.Coin()},
                      {"reverse", e.Coin()}}));
}

}  // namespace athanor
