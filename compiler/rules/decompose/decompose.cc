#include "compiler/rules/decompose/decompose.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/rules/decompose/decompose_models.h"
#include "compiler/rules/decompose/decompose_sort.h"
#include "compiler/rules/decompose/decompose_window.h"
#include "compiler/rules/decompose/rule_example.h"

namespace athanor {

NodeId Expansion::Add(Op op, std::vector<NodeId> inputs, Attrs attrs) {
  if (!status_.ok()) return 0;
  absl::StatusOr<NodeId> n = builder_.Add(op, std::move(inputs), std::move(attrs));
  if (!n.ok()) status_ = n.status();
  return n.ok() ? *n : 0;
}

NodeId Expansion::Fill(DType dtype, double value, Shape shape) {
  Tensor t = Tensor::Zeros(dtype, {});
  Scalar s = IsFloat(dtype)    ? Scalar::Float(dtype, value)
             : IsSigned(dtype) ? Scalar::Signed(dtype, static_cast<int64_t>(value))
                               : Scalar::Unsigned(dtype, static_cast<uint64_t>(value));
  StoreScalar(t, 0, s);
  return Map(Add(Op::kConstant, {}, {{"value", std::move(t)}}), shape, {});
}

NodeId Expansion::Cast(NodeId n, DType dtype) {
  return Type(n).dtype == dtype ? n : Add(Op::kCast, {n}, {{"dtype", dtype}});
}

NodeId Expansion::Map(NodeId n, Shape shape, std::vector<Expr> coordinates) {
  if (!status_.ok()) return 0;
  return MapOr(n, std::move(shape), std::move(coordinates),
               LoadScalar(Tensor::Zeros(Type(n).dtype, {}), 0));
}

NodeId Expansion::MapOr(NodeId n, Shape shape, std::vector<Expr> coordinates,
                        const Scalar& outside) {
  if (!status_.ok()) return 0;
  Attrs attrs = {{"map", IndexMap{std::move(shape), std::move(coordinates)}}};
  const absl::StatusOr<NodeId> inside = builder_.Add(Op::kIndexMap, {n}, attrs);
  if (inside.ok()) return *inside;
  Tensor fill = Tensor::Zeros(Type(n).dtype, {});
  StoreScalar(fill, 0, outside);
  attrs["fill"] = std::move(fill);
  return Add(Op::kIndexMap, {n}, std::move(attrs));
}

NodeId Expansion::Reduce(Op op, NodeId n, std::vector<int64_t> axes) {
  return Add(op, {n}, {{"axes", std::move(axes)}});
}

NodeId Expansion::Repeat(NodeId n, int64_t axis, Shape shape) {
  std::vector<Expr> coordinates;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (static_cast<int64_t>(i) != axis) coordinates.push_back(Expr::Axis(static_cast<int>(i)));
  }
  return Map(n, shape, std::move(coordinates));
}

NodeId Expansion::Size(DType dtype, const Expr& size, Shape shape) {
  if (std::optional<int64_t> c = size.constant())
    return Fill(dtype, static_cast<double>(*c), shape);
  // Takes element `size` of 0, 1, 2, ...
  NodeId count =
      Add(Op::kIota, {}, {{"shape", Shape{size + 1}}, {"axis", int64_t{0}}, {"dtype", dtype}});
  return Map(count, shape, {size});
}

namespace {

using Inputs = absl::Span<const NodeId>;

NodeId Up(Expansion& x, NodeId n) { return x.Cast(n, AccumulatorOf(x.Type(n).dtype)); }

double Lowest(DType dtype) {
  return dtype == DType::kF64 ? std::numeric_limits<double>::lowest()
                              : static_cast<double>(std::numeric_limits<float>::lowest());
}

// Makes -inf finite, so that its product with a gate of zero is zero.
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

NodeId ExpandSoftmax(Expansion& x, const Node& node, Inputs in) {
  int64_t axis = GetAttr<int64_t>(node.attrs, "axis");
  const Shape shape = node.type.shape;
  NodeId v = Up(x, in[0]);
  NodeId peak = x.Repeat(x.Reduce(Op::kMaxReduce, v, {axis}), axis, shape);
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

// Returns v / sqrt(mean(v^2) + epsilon) * scale over the last axis.
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
  NodeId centred = x.Sub(v, x.Repeat(LastAxisMean(x, v), axis, shape));
  NodeId y = Normalized(x, centred, in[1], GetAttr<double>(node.attrs, "epsilon"));
  NodeId bias = x.Map(Up(x, in[2]), shape, {Expr::Axis(static_cast<int>(axis))});
  return x.Cast(x.Add(Op::kAdd, {y, bias}), node.type.dtype);
}

NodeId ExpandContract(Expansion& x, const Node& node, Inputs in) {
  ContractSpec spec = *ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec"));
  // The joint axes: first the result's, then the summed ones.
  std::string letters = spec.result;
  std::map<char, Expr> extents;
  for (int side = 0; side < 2; ++side) {
    const std::string& own = side == 0 ? spec.lhs : spec.rhs;
    for (size_t i = 0; i < own.size(); ++i) {
      extents[own[i]] = x.Type(in[side]).shape[i];
      if (letters.find(own[i]) == std::string::npos) letters += own[i];
    }
  }
  Shape joint;
  for (char c : letters) joint.push_back(extents[c]);
  auto expand = [&](NodeId n, const std::string& own) {
    std::vector<Expr> coordinates;
    for (char c : own) coordinates.push_back(Expr::Axis(static_cast<int>(letters.find(c))));
    return x.Map(Up(x, n), joint, std::move(coordinates));
  };
  NodeId product = x.Add(Op::kMul, {expand(in[0], spec.lhs), expand(in[1], spec.rhs)});
  std::vector<int64_t> axes;
  for (size_t i = spec.result.size(); i < letters.size(); ++i)
    axes.push_back(static_cast<int64_t>(i));
  return x.Cast(x.Reduce(Op::kSumReduce, product, std::move(axes)), node.type.dtype);
}

NodeId ExpandAttention(Expansion& x, const Node& node, Inputs in) {
  NodeId q = Up(x, in[0]), k = Up(x, in[1]), v = Up(x, in[2]);
  const size_t rank = x.Type(q).shape.size();
  const DType dtype = x.Type(q).dtype;
  const std::string batch = std::string("abcdefghijklmn").substr(0, rank - 2);
  auto spec = [&](const char* a, const char* b, const char* c) {
    return Attrs{{"spec", batch + a + "," + batch + b + "->" + batch + c}};
  };
  NodeId scores = x.Add(Op::kContract, {q, k}, spec("qz", "kz", "qk"));
  const Shape shape = x.Type(scores).shape;
  const int64_t keys = static_cast<int64_t>(rank) - 1;
  NodeId factor;
  if (node.attrs.contains("scale")) {
    factor = x.Fill(dtype, GetAttr<double>(node.attrs, "scale"), shape);
  } else {
    factor = x.Add(Op::kRecip, {x.Add(Op::kSqrt, {x.Size(dtype, x.Type(q).shape.back(), shape)})});
  }
  scores = x.Add(Op::kMul, {scores, factor});
  NodeId hidden = x.Fill(dtype, -std::numeric_limits<double>::infinity(), shape);
  if (in.size() > 3) {
    const Shape& mask_shape = x.Type(in[3]).shape;
    std::vector<Expr> coordinates;
    for (size_t i = 0; i < mask_shape.size(); ++i) {
      int axis = static_cast<int>(i + rank - mask_shape.size());
      coordinates.push_back(mask_shape[i].IsConstant(1) ? Expr(0) : Expr::Axis(axis));
    }
    NodeId mask = x.Map(in[3], shape, std::move(coordinates));
    if (x.Type(mask).dtype == DType::kBool) {
      scores = x.Add(Op::kSelect, {mask, scores, hidden});
    } else {
      // A mask of -inf hides even a NaN score.
      mask = x.Cast(mask, dtype);
      NodeId hides = x.Add(Op::kLessThan, {mask, x.FillLike(mask, Lowest(dtype))});
      scores = x.Add(Op::kSelect, {hides, hidden, x.Add(Op::kAdd, {scores, mask})});
    }
  }
  if (GetAttrOr<bool>(node.attrs, "causal", false)) {
    auto iota = [&](int64_t axis) {
      return x.Add(Op::kIota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", DType::kI64}});
    };
    NodeId ahead = x.Size(DType::kI64, x.Type(k).shape[rank - 2], shape);
    NodeId behind = x.Size(DType::kI64, x.Type(q).shape[rank - 2], shape);
    NodeId last = x.Add(Op::kAdd, {iota(keys - 1), x.Sub(ahead, behind)});
    scores = x.Add(Op::kSelect, {x.Add(Op::kLessThan, {last, iota(keys)}), hidden, scores});
  }
  NodeId peak = x.Reduce(Op::kMaxReduce, scores, {keys});
  NodeId none = x.Add(Op::kLessThan, {peak, x.FillLike(peak, Lowest(dtype))});
  NodeId base = x.Add(Op::kSelect, {none, x.FillLike(peak, 0), peak});
  NodeId e = x.Add(Op::kExp, {x.Sub(scores, x.Repeat(base, keys, shape))});
  NodeId total = x.Reduce(Op::kSumReduce, e, {keys});
  NodeId sum = x.Add(Op::kContract, {e, v}, spec("qk", "kz", "qz"));
  const Shape result = x.Type(sum).shape;
  // A row whose keys are all hidden is zero.
  NodeId divided = x.Add(Op::kDiv, {sum, x.Repeat(total, keys, result)});
  NodeId some = x.Add(Op::kSelect, {x.Repeat(none, keys, result), x.FillLike(divided, 0), divided});
  return x.Cast(some, node.type.dtype);
}

// Pairs every position of `ids` with every bag: a row of the gathered table counts if offsets[bag]
// <= position < offsets[bag + 1].
NodeId ExpandEmbeddingBag(Expansion& x, const Node& node, Inputs in) {
  const std::string& mode = GetAttr<std::string>(node.attrs, "mode");
  const Expr bags = node.type.shape[0], width = node.type.shape[1], ids = x.Type(in[1]).shape[0];
  const Shape cells = {bags, ids}, joint = {bags, ids, width};
  const Expr bag = Expr::Axis(0), position = Expr::Axis(1);
  NodeId rows = Up(x, x.Add(Op::kGather, {in[0], in[1]}, {{"axis", int64_t{0}}}));
  NodeId offsets = x.Cast(in[2], DType::kI64);
  auto iota = [&](int64_t axis) {
    return x.Add(Op::kIota, {}, {{"shape", cells}, {"axis", axis}, {"dtype", DType::kI64}});
  };
  NodeId first = x.Map(offsets, cells, {bag});
  Tensor zero = Tensor::Zeros(DType::kI64, {});
  NodeId next = x.Add(Op::kIndexMap, {offsets},
                      {{"map", IndexMap{cells, {bag + 1}}}, {"fill", std::move(zero)}});
  NodeId is_inner = x.Add(Op::kLessThan, {iota(0), x.Size(DType::kI64, bags - 1, cells)});
  NodeId last = x.Add(Op::kSelect, {is_inner, next, x.Size(DType::kI64, ids, cells)});
  NodeId before = x.Add(Op::kLessThan, {iota(1), first});
  NodeId member =
      x.Add(Op::kAnd, {x.Add(Op::kNot, {before}), x.Add(Op::kLessThan, {iota(1), last})});
  NodeId wide = x.Map(member, joint, {bag, position});
  NodeId values = x.Map(rows, joint, {position, Expr::Axis(2)});
  const bool max = mode == "max";
  NodeId other = x.FillLike(values, max ? -std::numeric_limits<double>::infinity() : 0);
  NodeId chosen = x.Add(Op::kSelect, {wide, values, other});
  NodeId result = x.Reduce(max ? Op::kMaxReduce : Op::kSumReduce, chosen, {1});
  if (mode != "sum") {
    NodeId ones = x.Cast(member, x.Type(result).dtype);
    NodeId count = x.Map(x.Reduce(Op::kSumReduce, ones, {1}), node.type.shape, {bag});
    NodeId some = x.Add(Op::kLessThan, {x.FillLike(count, 0), count});
    NodeId value = max ? result : x.Add(Op::kDiv, {result, count});
    result = x.Add(Op::kSelect, {some, value, x.FillLike(result, 0)});
  }
  return x.Cast(result, node.type.dtype);
}

template <Op kOp>
void ElementwiseExample(ExampleBuilder& e) {
  e.Output(e.x().Add(kOp, {e.Input({e.Size(), e.Size()})}));
}

void GeluExample(ExampleBuilder& e) {
  e.Output(e.x().Add(Op::kGelu, {e.Input({e.Size()})},
                     {{"approximate", std::string(e.Coin() ? "tanh" : "none")}}));
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

void ContractExample(ExampleBuilder& e) {
  const char* const kSpecs[] = {"mk,kn->mn", "mk,nk->nm", "bqd,bkd->bqk", "k,k->", "m,n->mn"};
  const ContractSpec spec = *ContractSpec::Parse(kSpecs[e.Pick(0, std::size(kSpecs) - 1)]);
  std::map<char, Expr> extents;
  const auto operand = [&](const std::string& letters) {
    Shape shape;
    for (const char c : letters) shape.push_back(extents.try_emplace(c, e.Size()).first->second);
    return e.Input(std::move(shape));
  };
  const NodeId lhs = operand(spec.lhs);
  e.Output(e.x().Add(Op::kContract, {lhs, operand(spec.rhs)}, {{"spec", spec.ToString()}}));
}

void AttentionExample(ExampleBuilder& e) {
  const Expr batch = e.Size(), queries = e.Size(), keys = e.Size();
  const int64_t width = e.ConstantSize(1);
  const NodeId q = e.Input({batch, queries, width}, ExampleEdges::kNaN);
  const NodeId k = e.Input({batch, keys, width}, ExampleEdges::kNaN);
  std::vector<NodeId> inputs = {q, k, e.FiniteInput({batch, keys, e.ConstantSize()})};
  if (e.Coin()) inputs.push_back(e.Input({queries, keys}, e.Coin() ? DType::kBool : e.dtype()));
  Attrs attrs = {{"causal", e.Coin()}};
  if (e.Coin()) attrs["scale"] = 0.25;
  e.Output(e.x().Add(Op::kAttention, std::move(inputs), std::move(attrs)));
}

void EmbeddingBagExample(ExampleBuilder& e) {
  const int64_t rows = e.ConstantSize(1), ids = e.ConstantSize(), bags = e.ConstantSize(1);
  std::vector<int64_t> offsets(bags);  // 0 first, then non-decreasing, at most the number of ids
  for (int64_t i = 1; i < bags; ++i) offsets[i] = e.Pick(offsets[i - 1], ids);
  const NodeId table = e.Parameter({rows, e.ConstantSize()}), index = e.Indices({ids}, rows);
  const NodeId at =
      e.x().Add(Op::kConstant, {}, {{"value", Tensor::Of<int64_t>(DType::kI64, {bags}, offsets)}});
  const char* const kModes[] = {"sum", "mean", "max"};
  e.Output(e.x().Add(Op::kEmbeddingBag, {table, index, at},
                     {{"mode", std::string(kModes[e.Pick(0, 2)])}}));
}

constexpr DecompositionRow kRows[] = {
    {Op::kConv, "conv",
     "contraction of windows, or their products summed where a group is a channel", ExpandConv,
     ConvExample},
    {Op::kPool, "pool", "windows reduced, over how many positions count", ExpandPool, PoolExample},
    {Op::kContract, "contract", "sum of products over expanded operands", ExpandContract,
     ContractExample},
    {Op::kSigmoid, "sigmoid", "1 / (1 + exp(-x))", ExpandSigmoid, ElementwiseExample<Op::kSigmoid>},
    {Op::kGelu, "gelu", "x/2 * (1 + erf(x / sqrt 2)), or its tanh form", ExpandGelu, GeluExample},
    {Op::kSilu, "silu", "x / (1 + exp(-x))", ExpandSilu, ElementwiseExample<Op::kSilu>},
    {Op::kRelu, "relu", "max(x, 0)", ExpandRelu, ElementwiseExample<Op::kRelu>},
    {Op::kSoftmax, "softmax", "exp(x - max) / sum(exp(x - max))", ExpandSoftmax, SoftmaxExample},
    {Op::kLayerNorm, "layer_norm", "(x - mean) / sqrt(var + eps) * scale + bias", ExpandLayerNorm,
     LayerNormExample},
    {Op::kRmsNorm, "rms_norm", "x / sqrt(mean(x^2) + eps) * scale", ExpandRmsNorm, RmsNormExample},
    {Op::kAttention, "attention", "softmax(scale * q k^T + mask) v", ExpandAttention,
     AttentionExample},
    {Op::kEmbeddingBag, "embedding_bag", "select rows by bag, reduce", ExpandEmbeddingBag,
     EmbeddingBagExample},
    {Op::kTopK, "top_k", "the beginning of sort", ExpandTopK, TopKExample},
    {Op::kCumulate, "cumulate",
     "the sum or product of what is selected for each element, in blocks", ExpandCumulate,
     CumulateExample},
    {Op::kRotary, "rotary", "x * cos + partner * sin", ExpandRotary, RotaryExample},
    {Op::kDequantize, "dequantize", "(unpacked - zero) * scale", ExpandDequantize,
     DequantizeExample},
};

}  // namespace

absl::Span<const DecompositionRow> DecompositionRows() { return kRows; }

absl::StatusOr<Graph> Decompose(const Graph& graph, absl::FunctionRef<bool(const Node&)> wanted) {
  Graph out;
  out.name = graph.name;
  out.dims = graph.dims;
  Expansion x(&out);
  std::vector<NodeId> at(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<NodeId> inputs;
    for (NodeId i : node.inputs) inputs.push_back(at[i]);
    auto row = std::find_if(std::begin(kRows), std::end(kRows),
                            [&](const DecompositionRow& r) { return r.op == node.op; });
    if (row != std::end(kRows) && wanted(node)) {
      at[n] = row->expand(x, node, inputs);
      if (!x.status().ok()) {
        return absl::InternalError(absl::StrCat("decomposition of ",
                                                graph.Describe(static_cast<NodeId>(n)), ": ",
                                                x.status().message()));
      }
    } else {
      at[n] = static_cast<NodeId>(out.nodes.size());
      out.nodes.push_back(node);
      out.nodes.back().inputs = std::move(inputs);
    }
  }
  for (const Output& o : graph.outputs) out.outputs.push_back({o.name, at[o.node]});
  return out;
}

absl::StatusOr<Graph> WidenScatters(const Graph& graph) {
  Graph out;
  out.name = graph.name;
  out.dims = graph.dims;
  Expansion x(&out);
  std::vector<NodeId> at(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<NodeId> inputs;
    for (NodeId i : node.inputs) inputs.push_back(at[i]);
    const DType dtype = node.type.dtype, wide = AccumulatorOf(dtype);
    const auto computes = [&] {
      const std::string& mode = GetAttr<std::string>(node.attrs, "mode");
      return mode == "add" || mode == "mul";
    };
    if (node.op == Op::kScatter && wide != dtype && computes()) {
      NodeId result =
          x.Add(node.op, {x.Cast(inputs[0], wide), inputs[1], x.Cast(inputs[2], wide)}, node.attrs);
      at[n] = x.Cast(result, dtype);
      continue;
    }
    at[n] = static_cast<NodeId>(out.nodes.size());
    out.nodes.push_back(node);
    out.nodes.back().inputs = std::move(inputs);
  }
  if (!x.status().ok())
    return absl::InternalError(absl::StrCat("widening: ", x.status().message()));
  for (const Output& o : graph.outputs) out.outputs.push_back({o.name, at[o.node]});
  return out;
}

}  // namespace athanor
