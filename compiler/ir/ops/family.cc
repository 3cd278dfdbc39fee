// Axis flows and sampling that several families share (family.h).
#include "compiler/ir/ops/family.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/ir/ops/cutter.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

void SortDistinct(Positions* positions) {
  std::sort(positions->begin(), positions->end());
  positions->erase(std::unique(positions->begin(), positions->end()), positions->end());
}

absl::Status SampleRows(Cutter& cutter, NodeId n, int64_t axis) {
  const Node& node = cutter.graph().node(n);
  // TopK's result is shorter than the rows it depends on.
  const int64_t length = cutter.ShapeOf(node.inputs[0])[axis], kept = cutter.ShapeOf(n)[axis];
  const int64_t inner = Product(cutter.ShapeOf(n).subspan(axis + 1));
  const auto first_of = [&](int64_t p) { return p / inner / kept * length * inner + p % inner; };
  Positions firsts;
  for (int64_t p : cutter.Wanted(n)) firsts.push_back(first_of(p));
  SortDistinct(&firsts);
  const int64_t rows = Count(firsts);
  RETURN_IF_ERROR(cutter.Spend(n, rows, length));
  Positions picks;
  for (int64_t p : cutter.Wanted(n)) {
    const auto row = std::lower_bound(firsts.begin(), firsts.end(), first_of(p)) - firsts.begin();
    picks.push_back(row * kept + p / inner % kept);
  }
  std::vector<Cutter::Handle> operands = {
      cutter.Pull(node.inputs[0], {rows, length}, Sums(firsts, UpTo(length, inner)))};
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    RETURN_IF_ERROR(cutter.Spend(n, length));
    operands.push_back(cutter.Pull(node.inputs[i], {length}, UpTo(length)));
  }
  cutter.RecipeOf(n) = [&cutter, n, rows, kept, operands,
                        picks = std::move(picks)]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> ids;
    for (Cutter::Handle operand : operands) {
      ASSIGN_OR_RETURN(NodeId id, cutter.Get(operand));
      ids.push_back(id);
    }
    Attrs attrs = cutter.graph().node(n).attrs;
    if (attrs.contains("axis")) attrs.find("axis")->second = int64_t{1};
    if (attrs.contains("k")) attrs.find("k")->second = Shape{kept};
    return cutter.Add(Op::kGather,
                      {cutter.Flatten(cutter.builder().Add(cutter.graph().node(n).op,
                                                           std::move(ids), std::move(attrs)),
                                      {rows, kept}),
                       cutter.IndexLiteral({Count(picks)}, picks)},
                      {{"axis", int64_t{0}}});
  };
  return absl::OkStatus();
}

}  // namespace

// Operands and result have the same axes.
AxisFlow AlikeFlow(const Graph& graph, const Node& node) {
  AxisFlow flow;
  for (NodeId input : node.inputs) {
    flow.emplace_back();
    for (size_t i = 0; i < graph.node(input).type.shape.size(); ++i) {
      flow.back().push_back(static_cast<int>(i));
    }
  }
  return flow;
}

AxisFlow AcrossAxisFlow(const Graph& graph, const Node& node) {
  AxisFlow flow = AlikeFlow(graph, node);
  flow[0][GetAttr<int64_t>(node.attrs, "axis")] = kMixed;
  return flow;
}

AxisFlow ReduceFlow(const Graph& graph, const Node& node) {
  const auto& reduced = GetAttr<std::vector<int64_t>>(node.attrs, "axes");
  std::vector<int> axes;
  int next = 0;
  for (size_t i = 0; i < graph.node(node.inputs[0]).type.shape.size(); ++i) {
    const bool kept =
        std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(i)) == reduced.end();
    axes.push_back(kept ? next++ : kMixed);
  }
  return {axes};
}

absl::Status SampleElementwise(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const int64_t count = Count(cutter.Wanted(n));
  RETURN_IF_ERROR(cutter.Spend(n, count, static_cast<int64_t>(node.inputs.size())));
  std::vector<Cutter::Handle> operands;
  for (NodeId i : node.inputs) operands.push_back(cutter.Pull(i, {count}, cutter.Wanted(n)));
  cutter.RecipeOf(n) = [&cutter, n, operands]() -> absl::StatusOr<NodeId> {
    std::vector<NodeId> ids;
    for (Cutter::Handle operand : operands) {
      ASSIGN_OR_RETURN(NodeId id, cutter.Get(operand));
      ids.push_back(id);
    }
    return cutter.builder().Add(cutter.graph().node(n).op, std::move(ids),
                                cutter.graph().node(n).attrs);
  };
  return absl::OkStatus();
}

absl::Status SampleReduce(Cutter& cutter, NodeId n) {
  const Node& node = cutter.graph().node(n);
  const absl::Span<const int64_t> shape = cutter.ShapeOf(node.inputs[0]);
  const auto& axes = GetAttr<std::vector<int64_t>>(node.attrs, "axes");
  const std::vector<int64_t> strides = Strides(shape);
  std::vector<int64_t> kept_strides, sizes, term_strides;
  for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
      kept_strides.push_back(strides[axis]);
    } else {
      sizes.push_back(shape[axis]);
      term_strides.push_back(strides[axis]);
    }
  }
  const int64_t count = Count(cutter.Wanted(n)), terms = Product(sizes);
  RETURN_IF_ERROR(cutter.Spend(n, count, terms));
  Positions bases;
  for (int64_t p : cutter.Wanted(n))
    bases.push_back(Dot(CoordinatesOf(cutter.ShapeOf(n), p), kept_strides));
  const Cutter::Handle operand =
      cutter.Pull(node.inputs[0], {count, terms}, Sums(bases, OffsetsOf(sizes, term_strides)));
  cutter.RecipeOf(n) = [&cutter, n, operand] {
    return cutter.Add(cutter.graph().node(n).op, {cutter.Get(operand)},
                      {{"axes", std::vector<int64_t>{1}}});
  };
  return absl::OkStatus();
}

absl::Status SampleAlongAxis(Cutter& cutter, NodeId n) {
  return SampleRows(cutter, n, GetAttr<int64_t>(cutter.graph().node(n).attrs, "axis"));
}

absl::Status SampleAlongLast(Cutter& cutter, NodeId n) {
  return SampleRows(cutter, n, static_cast<int64_t>(cutter.graph().node(n).type.shape.size()) - 1);
}

}  // namespace athanor
