#include "compiler/ir/sample/widen.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/graph/accepted_limits.h"
#include "compiler/ir/graph/input_value.h"
#include "compiler/ir/graph/scan.h"
#include "compiler/ir/graph/state.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

// Reports whether the node's floats are copies of its operands' floats, bit for bit.
bool OnlyChooses(const Node& node) {
  const Rounding rounding = OpInfo(node.op).traits.rounding;
  return rounding == Rounding::kChooses || rounding == Rounding::kKeeps ||
         (rounding == Rounding::kByMode && ModeChooses(node.attrs));
}

bool IsLeaf(Op op) { return OpInfo(op).op_class == OpClass::kLeaf; }

Tensor Widened(const Tensor& narrow) {
  Tensor wide = Tensor::Zeros(DType::kF64, narrow.shape);
  for (int64_t i = 0; i < narrow.elements(); ++i) {
    StoreScalar(wide, i, Scalar::Float(DType::kF64, LoadScalar(narrow, i).f));
  }
  return wide;
}

class Widening {
 public:
  explicit Widening(const Graph& graph) : from_(graph) {
    to_.name = graph.name;
    to_.dims = graph.dims;
  }

  // Widens a nested graph: its float inputs and outputs are f64.
  absl::StatusOr<Graph> RunInside() {
    inside_ = true;
    absl::StatusOr<Graph> wide = Run();
    if (!wide.ok()) return wide;
    GraphBuilder builder(&*wide, AcceptedLimits());
    for (Output& o : wide->outputs) {
      const DType dtype = wide->node(o.node).type.dtype;
      if (!IsFloat(dtype) || dtype == DType::kF64) continue;
      ASSIGN_OR_RETURN(o.node, builder.Add(Op::kCast, {o.node}, {{"dtype", DType::kF64}}));
    }
    wide->dims.clear();
    return wide;
  }

  absl::StatusOr<Graph> Run() {
    GraphBuilder builder(&to_, AcceptedLimits());
    for (NodeId n = 0; n < static_cast<NodeId>(from_.nodes.size()); ++n) {
      ASSIGN_OR_RETURN(NodeId made, Make(builder, from_.node(n)));
      made_.push_back(made);
    }
    for (const Output& o : from_.outputs) to_.outputs.push_back({o.name, made_[o.node]});
    for (NodeId update : from_.updates) to_.updates.push_back(made_[update]);
    return std::move(to_);
  }

 private:
  DType Now(NodeId made) const { return to_.node(made).type.dtype; }

  absl::StatusOr<NodeId> As(GraphBuilder& builder, NodeId made, DType dtype) {
    if (Now(made) == dtype) return made;
    auto [known, added] = casts_.try_emplace({made, dtype}, -1);
    if (added) {
      absl::StatusOr<NodeId> cast = builder.Add(Op::kCast, {made}, {{"dtype", dtype}});
      if (!cast.ok()) return cast;
      known->second = *cast;
    }
    return known->second;
  }

  absl::StatusOr<NodeId> Make(GraphBuilder& builder, const Node& node) {
    if (IsInput(node.op) && inside_) {
      const bool wide = IsFloat(node.type.dtype);
      return builder.Input(node.name, {wide ? DType::kF64 : node.type.dtype, node.type.shape});
    }
    if (IsInput(node.op)) {
      const Tensor* value = ValueOf(node);
      return builder.Input(node.name, node.type,
                           value == nullptr ? std::nullopt : std::optional<Tensor>(*value));
    }
    if (IsParameter(node.op)) return builder.Parameter(node.name, node.type);
    if (IsStateRead(node.op)) return builder.State(node.name, node.type, RoleOf(node));
    const Rounding rounding = OpInfo(node.op).traits.rounding;
    std::vector<NodeId> in;
    for (NodeId n : node.inputs) in.push_back(made_[n]);
    if (IsStateWrite(node.op)) {  // a state keeps its dtype
      ASSIGN_OR_RETURN(in[2], As(builder, in[2], node.type.dtype));
      return builder.Add(node.op, std::move(in), node.attrs, node.name);
    }
    if (rounding == Rounding::kConverts) return MakeCast(builder, node, in[0]);
    if (rounding == Rounding::kBits) {
      absl::StatusOr<NodeId> own = As(builder, in[0], from_.node(node.inputs[0]).type.dtype);
      if (!own.ok()) return own;
      return builder.Add(node.op, {*own}, node.attrs, node.name);
    }
    bool any_wide = false;
    for (size_t i = 0; i < in.size(); ++i) {
      any_wide = any_wide || Now(in[i]) != from_.node(node.inputs[i]).type.dtype;
    }
    Attrs attrs = node.attrs;
    // Copies of narrow floats are as exact as wide ones, so such an op stays narrow unless an
    // operand is wide already.
    if (!IsLeaf(node.op) && (any_wide || !OnlyChooses(node))) {
      for (NodeId& operand : in) {
        if (!IsFloat(Now(operand))) continue;
        absl::StatusOr<NodeId> wide = As(builder, operand, DType::kF64);
        if (!wide.ok()) return wide;
        operand = *wide;
      }
      if (attrs.contains("dtype")) attrs["dtype"] = DType::kF64;
      if (IsLoop(node.op)) {
        ASSIGN_OR_RETURN(Graph body, Widening(BodyOf(ViewScan(node), from_.dims)).RunInside());
        attrs["body"] = SubGraph(std::move(body));
      }
      auto fill = attrs.find("fill");
      if (fill != attrs.end() && IsFloat(std::get<Tensor>(fill->second).dtype)) {
        fill->second = Widened(std::get<Tensor>(fill->second));
      }
    }
    return builder.Add(node.op, std::move(in), std::move(attrs), node.name);
  }

  absl::StatusOr<NodeId> MakeCast(GraphBuilder& builder, const Node& node, NodeId operand) {
    const DType to = GetAttr<DType>(node.attrs, "dtype");
    return As(builder, operand, IsFloat(to) && Computes(to) ? DType::kF64 : to);
  }

  const Graph& from_;
  Graph to_;
  bool inside_ = false;
  std::vector<NodeId> made_;  // by node of from_
  std::map<std::pair<NodeId, DType>, NodeId> casts_;
};

}  // namespace

absl::StatusOr<Graph> WidenToF64(const Graph& graph) { return Widening(graph).Run(); }

}  // namespace athanor
