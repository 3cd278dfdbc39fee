// Decomposes ops that run along one axis in its order: TopK, Cumulate.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/decompose/decompose_families.h"
#include "compiler/rules/decompose/rule_example.h"

namespace athanor {
namespace {

// An axis of a tensor beside itself: the tensor's shape and, last, the axis again.
struct Pairs {
  Pairs(Expansion& x, const Shape& shape, int64_t axis)
      : x(x), axis(static_cast<int>(axis)), last(static_cast<int>(shape.size())), shape(shape) {
    this->shape.push_back(shape[axis]);
  }
  // Own varies along the axis itself, Other along its repetition.
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

  Expansion& x;
  const int axis, last;
  Shape shape;
};

struct Cumulation {
  bool add, exclusive, reverse;
};

// Chooses for each element all those that count for it, from the whole axis.
NodeId CumulatedByPairs(Expansion& x, const Cumulation& c, NodeId n, int64_t axis) {
  Pairs pairs(x, x.Type(n).shape, axis);
  NodeId terms = pairs.Other(n);
  // The elements before it count, or all except those behind it; in reverse, the other way round.
  NodeId own = pairs.Position(pairs.axis), other = pairs.Position(pairs.last);
  if (c.reverse != c.exclusive) std::swap(own, other);
  NodeId taken = x.Add(Op::kLessThan, {own, other});
  if (!c.exclusive) taken = x.Add(Op::kNot, {taken});
  NodeId chosen = x.Add(Op::kSelect, {taken, terms, x.FillLike(terms, c.add ? 0 : 1)});
  return x.Reduce(c.add ? Op::kSumReduce : Op::kMulReduce, chosen, {pairs.last});
}

// Number of elements in a block, which are paired with each other, one per lane.
constexpr int64_t kBlock = 16;
// 16 to this power exceeds the length of any axis.
constexpr int kMostLevels = 16;

// Splits a long axis into blocks: combines the elements within each block, and the whole blocks
// before it, which are cumulated in the same way. n elements need 16 n terms instead of n^2.
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
  return x.Add(c.add ? Op::kAdd : Op::kMul,
               {x.Map(within, shape, std::move(element)), x.Map(before, shape, std::move(block))});
}

NodeId ExpandTopK(Expansion& x, const Node& node, Inputs in) {
  const NodeId order = x.Add(Op::kSort, {in[0]},
                             {{"axis", GetAttr<int64_t>(node.attrs, "axis")},
                              {"descending", GetAttrOr<bool>(node.attrs, "largest", true)}});
  const Shape shape = node.type.shape;
  std::vector<Expr> coordinates;
  for (size_t i = 0; i < shape.size(); ++i) coordinates.push_back(Expr::Axis(static_cast<int>(i)));
  return x.Map(order, shape, std::move(coordinates));
}

NodeId ExpandCumulate(Expansion& x, const Node& node, Inputs in) {
  const Cumulation c{GetAttr<std::string>(node.attrs, "op") == "add",
                     GetAttrOr<bool>(node.attrs, "exclusive", false),
                     GetAttrOr<bool>(node.attrs, "reverse", false)};
  const NodeId terms = x.Cast(in[0], AccumulatorOf(node.type.dtype));
  return x.Cast(Cumulated(x, c, terms, GetAttr<int64_t>(node.attrs, "axis")), node.type.dtype);
}

void TopKExample(ExampleBuilder& e) {
  const int64_t size = e.ConstantSize(), k = e.Pick(0, size);
  const NodeId x = e.Input({e.Size(), size});
  e.Output(
      e.x().Add(Op::kTopK, {x}, {{"axis", int64_t{1}}, {"k", Shape{k}}, {"largest", e.Coin()}}));
}

// Products of numbers up to 1, because larger ones could overflow on one side only.
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

constexpr DecompositionRow kRows[] = {
    {Op::kTopK, "top_k", "the beginning of sort", ExpandTopK, TopKExample},
    {Op::kCumulate, "cumulate",
     "the sum or product of what is selected for each element, in blocks", ExpandCumulate,
     CumulateExample},
};

}  // namespace

absl::Span<const DecompositionRow> OrderDecompositions() { return kRows; }

}  // namespace athanor
