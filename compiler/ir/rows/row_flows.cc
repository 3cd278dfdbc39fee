#include "compiler/ir/rows/row_flows.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace athanor {

// Operands and result have the same axes.
Flow Alike(const Graph& graph, const Node& node) {
  Flow flow;
  for (NodeId input : node.inputs) {
    flow.emplace_back();
    for (size_t i = 0; i < graph.node(input).type.shape.size(); ++i) {
      flow.back().push_back(static_cast<int>(i));
    }
  }
  return flow;
}

Flow AcrossAxis(const Graph& graph, const Node& node) {
  Flow flow = Alike(graph, node);
  flow[0][GetAttr<int64_t>(node.attrs, "axis")] = kMixed;
  return flow;
}

// Mixes the last axis of each operand, which for scale and bias is the only one.
Flow AcrossLast(const Graph& graph, const Node& node) {
  Flow flow = Alike(graph, node);
  for (std::vector<int>& axes : flow) axes.back() = kMixed;
  return flow;
}

Flow Reduced(const Graph& graph, const Node& node) {
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

// Computes result[p, i, s] = data[p, indices[i], s].
Flow Gathered(const Graph& graph, const Node& node) {
  const auto axis = static_cast<int>(GetAttr<int64_t>(node.attrs, "axis"));
  const int selected = static_cast<int>(graph.node(node.inputs[1]).type.shape.size());
  Flow flow = Alike(graph, node);
  for (int& to : flow[0]) to = to < axis ? to : to == axis ? kMixed : to - 1 + selected;
  for (int& to : flow[1]) to += axis;
  return flow;
}

// data[p, indices[i], s] is replaced by or combined with updates[p, i, s]. Updates of one element
// are applied in row-major order, which within a row is the same for any number of rows.
Flow Scattered(const Graph& graph, const Node& node) {
  const auto axis = static_cast<int>(GetAttr<int64_t>(node.attrs, "axis"));
  const int selected = static_cast<int>(graph.node(node.inputs[1]).type.shape.size());
  Flow flow = Alike(graph, node);
  flow[0][axis] = kMixed;
  for (int& to : flow[1]) to = kMixed;
  for (int& to : flow[2]) {
    to = to < axis ? to : to < axis + selected ? kMixed : to - selected + 1;
  }
  return flow;
}

// Takes x [N, C, D...] and w [M, C/group, K...] to [N, M, out...]. The group of a row of w depends
// on the number of rows, so M is mixed.
Flow Convolved(const Graph& graph, const Node& node) {
  Flow flow = Alike(graph, node);
  for (std::vector<int>& axes : flow) std::fill(axes.begin(), axes.end(), kMixed);
  flow[0][0] = 0;
  return flow;
}

// Takes x [N, C, D...] to [N, C, out...].
Flow Pooled(const Graph& graph, const Node& node) {
  Flow flow = Alike(graph, node);
  std::fill(flow[0].begin() + 2, flow[0].end(), kMixed);
  return flow;
}

Flow Contracted(const Graph&, const Node& node) {
  const ContractSpec spec = ContractSpec::Parse(GetAttr<std::string>(node.attrs, "spec")).value();
  Flow flow;
  for (const std::string& letters : {spec.lhs, spec.rhs}) {
    flow.emplace_back();
    for (char letter : letters) {
      const size_t axis = spec.result.find(letter);
      flow.back().push_back(axis == std::string::npos ? kMixed : static_cast<int>(axis));
    }
  }
  return flow;
}

// Takes q [..., Lq, D], k [..., Lk, D], v [..., Lk, Dv] and mask [Lq, Lk] or [..., Lq, Lk] to [...,
// Lq, Dv].
Flow Attended(const Graph& graph, const Node& node) {
  Flow flow = Alike(graph, node);
  const int rank = static_cast<int>(flow[0].size());
  // With `causal`, a query sees the keys up to its position among all queries.
  const int query = GetAttrOr<bool>(node.attrs, "causal", false) ? kMixed : rank - 2;
  flow[0][rank - 2] = query;
  flow[0][rank - 1] = flow[1][rank - 1] = kMixed;
  flow[1][rank - 2] = flow[2][rank - 2] = kMixed;
  if (flow.size() < 4) return flow;
  const Shape& mask = graph.node(node.inputs[3]).type.shape;
  const int leading = static_cast<int>(mask.size()) - 2;
  for (int i = 0; i < leading; ++i) {
    if (mask[i].IsConstant(1)) flow[3][i] = kMixed;  // broadcast: no axis of the result
  }
  flow[3][leading] = query;
  flow[3][leading + 1] = kMixed;
  return flow;
}

// Takes x [..., L, D], cos and sin [L, R/2] or [..., L, R/2] to x's shape.
Flow Rotated(const Graph& graph, const Node& node) {
  Flow flow = Alike(graph, node);
  const int rank = static_cast<int>(flow[0].size());
  flow[0][rank - 1] = kMixed;
  for (int operand : {1, 2}) {
    const Shape& angles = graph.node(node.inputs[operand]).type.shape;
    const int leading = static_cast<int>(angles.size()) - 2;
    for (int i = 0; i < leading; ++i) {
      if (angles[i].IsConstant(1)) flow[operand][i] = kMixed;  // broadcast: no axis of the result
    }
    flow[operand][leading] = rank - 2;
    flow[operand][leading + 1] = kMixed;
  }
  return flow;
}

// Elements are packed along the last axis. If scale blocks hold more than one element each, no
// block may end within a row.
Flow Dequantized(const Graph& graph, const Node& node) {
  Flow flow = Alike(graph, node);
  const int64_t width = 8 * DTypeBytes(graph.node(node.inputs[0]).type.dtype);
  const bool packed = GetAttrOr<int64_t>(node.attrs, "bits", width) != width;
  if (packed) flow[0].back() = kMixed;
  const auto axis = static_cast<size_t>(GetAttrOr<int64_t>(node.attrs, "axis", 0));
  const bool blocks = GetAttrOr<int64_t>(node.attrs, "block", 0) > 0;
  if (blocks) flow[0][axis] = kMixed;
  for (size_t i = 1; i < flow.size(); ++i) {
    if (blocks) {
      flow[i][axis] = kMixed;
    } else if (!flow[i].empty()) {
      flow[i] = {static_cast<int>(axis)};
    }
  }
  return flow;
}

// Offsets are positions among the ids of all bags, and a bag ends where the next begins.
Flow Bagged(const Graph&, const Node&) { return {{kMixed, 1}, {kMixed}, {kMixed}}; }

}  // namespace athanor
