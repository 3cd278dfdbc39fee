// Decomposes normalisation: Softmax, LayerNorm, RmsNorm.
#include <vector>

#include "compiler/rules/decompose/decompose_families.h"
#include "compiler/rules/decompose/rule_example.h"

namespace athanor {
namespace {

NodeId ExpandSoftmax(Expansion& x, const Node& node, Inputs in) {
  int64_t axis = GetAttr<int64_t>(node.attrs, "axis");
  const Shape shape = node.type.shape;
  NodeId v = Up(x, in[0]);
  NodeId peak = x.Repeat(x.Reduce(Op::kMaxReduce, v, {axis}), axis, shape);
  // Subtracting the largest element keeps the exponentials from overflowing.
  NodeId e = x.Add(Op::kExp, {x.Sub(v, peak)});
  NodeId sum = x.Repeat(x.Reduce(Op::kSumReduce, e, {axis}), axis, shape);
  return x.Cast(x.Add(Op::kDiv, {e, sum}), node.type.dtype);
}

NodeId LastAxisMean(Expansion& x, NodeId v) {
  const Shape shape = x.Type(v).shape;
  int64_t axis = static_cast<int64_t>(shape.size()) - 1;
  NodeId sum = x.Reduce(Op::kSumReduce, v, {axis});
  return x.Add(Op::kDiv, {sum, x.Size(x.Type(v).dtype, shape.back(), x.Type(sum).shape)});
}

// v / sqrt(mean(v^2) + epsilon) * scale over the last axis.
NodeId Normalized(Expansion& x, NodeId v, NodeId scale, double epsilon) {
  const Shape shape = x.Type(v).shape;
  int64_t axis = static_cast<int64_t>(shape.size()) - 1;
  NodeId square = LastAxisMean(x, x.Add(Op::kMul, {v, v}));
  NodeId root = x.Add(Op::kSqrt, {x.Add(Op::kAdd, {square, x.FillLike(square, epsilon)})});
  NodeId y = x.Add(Op::kMul, {v, x.Repeat(x.Add(Op::kRecip, {root}), axis, shape)});
  NodeId wide = x.Map(Up(x, scale), shape, {Expr::Axis(static_cast<int>(axis))});
  return x.Add(Op::kMul, {y, wide});
}

NodeId ExpandRmsNorm(Expansion& x, const Node& node, Inputs in) {
  double epsilon = GetAttr<double>(node.attrs, "epsilon");
  return x.Cast(Normalized(x, Up(x, in[0]), in[1], epsilon), node.type.dtype);
}

NodeId ExpandLayerNorm(Expansion& x, const Node& node, Inputs in) {
  NodeId v = Up(x, in[0]);
  const Shape shape = node.type.shape;
  int64_t axis = static_cast<int64_t>(shape.size()) - 1;
  // The mean of the squares less the square of the mean would cancel.
  NodeId centred = x.Sub(v, x.Repeat(LastAxisMean(x, v), axis, shape));
  NodeId y = Normalized(x, centred, in[1], GetAttr<double>(node.attrs, "epsilon"));
  NodeId bias = x.Map(Up(x, in[2]), shape, {Expr::Axis(static_cast<int>(axis))});
  return x.Cast(x.Add(Op::kAdd, {y, bias}), node.type.dtype);
}

void SoftmaxExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size(), e.Size()});
  e.Output(e.x().Add(Op::kSoftmax, {x}, {{"axis", e.Pick(0, 2)}}));
}

void LayerNormExample(ExampleBuilder& e) {
  const int64_t width = e.ConstantSize();
  const NodeId x = e.Input({e.Size(), width}), scale = e.Parameter({width});
  e.Output(e.x().Add(Op::kLayerNorm, {x, scale, e.Parameter({width})}, {{"epsilon", 1e-5}}));
}

void RmsNormExample(ExampleBuilder& e) {
  const int64_t width = e.ConstantSize();
  const NodeId x = e.Input({e.Size(), width});
  e.Output(e.x().Add(Op::kRmsNorm, {x, e.Parameter({width})}, {{"epsilon", 1e-5}}));
}

constexpr DecompositionRow kRows[] = {
    {Op::kSoftmax, "softmax", "exp(x - max) / sum(exp(x - max))", ExpandSoftmax, SoftmaxExample},
    {Op::kLayerNorm, "layer_norm", "(x - mean) / sqrt(var + eps) * scale + bias", ExpandLayerNorm,
     LayerNormExample},
    {Op::kRmsNorm, "rms_norm", "x / sqrt(mean(x^2) + eps) * scale", ExpandRmsNorm, RmsNormExample},
};

}  // namespace

absl::Span<const DecompositionRow> NormDecompositions() { return kRows; }

}  // namespace athanor
