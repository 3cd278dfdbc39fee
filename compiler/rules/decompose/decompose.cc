#include "compiler/rules/decompose/decompose.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/rules/decompose/decompose_families.h"

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

absl::Span<const DecompositionRow> DecompositionRows() {
  static const auto& rows = *[] {
    auto* all = new std::vector<DecompositionRow>;
    for (const auto family : {WindowDecompositions, ContractDecompositions,
                              ActivationDecompositions, NormDecompositions, AttentionDecompositions,
                              OrderDecompositions, TransformerDecompositions}) {
      for (const DecompositionRow& row : family()) all->push_back(row);
    }
    return all;
  }();
  return rows;
}

absl::StatusOr<Graph> Decompose(const Graph& graph, absl::FunctionRef<bool(const Node&)> wanted) {
  Graph out;
  out.name = graph.name;
  out.dims = graph.dims;
  Expansion x(&out);
  const absl::Span<const DecompositionRow> rows = DecompositionRows();
  std::vector<NodeId> at(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<NodeId> inputs;
    for (NodeId i : node.inputs) inputs.push_back(at[i]);
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const DecompositionRow& r) { return r.op == node.op; });
    if (row != rows.end() && wanted(node)) {
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
  for (NodeId update : graph.updates) out.updates.push_back(at[update]);
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
    if (FormOf(node.op) == OpForm::kScatter && wide != dtype && !ModeChooses(node.attrs)) {
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
  for (NodeId update : graph.updates) out.updates.push_back(at[update]);
  return out;
}

}  // namespace athanor
