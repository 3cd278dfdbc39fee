// Decomposes activations: Sigmoid, Gelu, Silu, Relu.
#include <cmath>
#include <string>

#include "compiler/rules/decompose/decompose_families.h"
#include "compiler/rules/decompose/rule_example.h"

namespace athanor {
namespace {

// -inf becomes finite, so that its product with the gate's zero is zero.
NodeId Finite(Expansion& x, NodeId n) {
  return x.Add(Op::kMax, {n, x.FillLike(n, Lowest(x.Type(n).dtype))});
}

NodeId OnePlusExpMinus(Expansion& x, NodeId n) {
  NodeId e = x.Add(Op::kExp, {x.Add(Op::kMul, {n, x.FillLike(n, -1)})});
  return x.Add(Op::kAdd, {e, x.FillLike(e, 1)});
}

NodeId ExpandSigmoid(Expansion& x, const Node& node, Inputs in) {
  return x.Cast(x.Add(Op::kRecip, {OnePlusExpMinus(x, Up(x, in[0]))}), node.type.dtype);
}

NodeId ExpandSilu(Expansion& x, const Node& node, Inputs in) {
  NodeId v = Up(x, in[0]);
  return x.Cast(x.Add(Op::kDiv, {Finite(x, v), OnePlusExpMinus(x, v)}), node.type.dtype);
}

NodeId ExpandGelu(Expansion& x, const Node& node, Inputs in) {
  NodeId v = Up(x, in[0]);
  NodeId inner;
  Op gate = Op::kErf;
  if (GetAttrOr<std::string>(node.attrs, "approximate", "none") == "tanh") {
    gate = Op::kTanh;
    NodeId cube = x.Add(Op::kMul, {x.Add(Op::kMul, {v, v}), v});
    NodeId sum = x.Add(Op::kAdd, {v, x.Add(Op::kMul, {cube, x.FillLike(v, 0.044715)})});
    inner = x.Add(Op::kMul, {sum, x.FillLike(v, std::sqrt(2 / M_PI))});
  } else {
    inner = x.Add(Op::kMul, {v, x.FillLike(v, std::sqrt(0.5))});
  }
  NodeId g = x.Add(gate, {inner});
  NodeId half = x.Add(Op::kMul, {Finite(x, v), x.FillLike(v, 0.5)});
  return x.Cast(x.Add(Op::kMul, {half, x.Add(Op::kAdd, {g, x.FillLike(g, 1)})}), node.type.dtype);
}

NodeId ExpandRelu(Expansion& x, const Node&, Inputs in) {
  return x.Add(Op::kMax, {in[0], x.FillLike(in[0], 0)});
}

template <Op kOp>
void ElementwiseExample(ExampleBuilder& e) {
  e.Output(e.x().Add(kOp, {e.Input({e.Size(), e.Size()})}));
}

void GeluExample(ExampleBuilder& e) {
  e.Output(e.x().Add(Op::kGelu, {e.Input({e.Size()})},
                     {{"approximate", std::string(e.Coin() ? "tanh" : "none")}}));
}

constexpr DecompositionRow kRows[] = {
    {Op::kSigmoid, "sigmoid", "1 / (1 + exp(-x))", ExpandSigmoid, ElementwiseExample<Op::kSigmoid>},
    {Op::kGelu, "gelu", "x/2 * (1 + erf(x / sqrt 2)), or its tanh form", ExpandGelu, GeluExample},
    {Op::kSilu, "silu", "x / (1 + exp(-x))", ExpandSilu, ElementwiseExample<Op::kSilu>},
    {Op::kRelu, "relu", "max(x, 0)", ExpandRelu, ElementwiseExample<Op::kRelu>},
};

}  // namespace

absl::Span<const DecompositionRow> ActivationDecompositions() { return kRows; }

}  // namespace athanor
