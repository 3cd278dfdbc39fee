#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/graph/check.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

absl::Status CheckDim(const Dim& dim, const GraphLimits& limits) {
  RETURN_IF_ERROR(CheckName("dim", dim.name, limits));
  if (!Expr::IsSymbolName(dim.name) || dim.name.find('$') != std::string::npos) {
    return Invalid("dim ", Quoted(dim.name),
                   ": the name must be a letter or _ followed by letters, digits, _ or .");
  }
  if (dim.min < 0 || dim.max < dim.min) {
    return Invalid("dim ", dim.name, " has bounds [", dim.min, ", ", dim.max,
                   "]; they must be 0 <= min <= max");
  }
  return absl::OkStatus();
}

absl::Status CheckDims(const Graph& graph, const GraphLimits& limits) {
  if (static_cast<int64_t>(graph.dims.size()) > limits.max_dims) {
    return Invalid("the graph has ", graph.dims.size(), " dims; ",
                   LimitIs(limits.max_dims, "max_dims"));
  }
  absl::flat_hash_set<std::string> names;
  for (const Dim& dim : graph.dims) {
    RETURN_IF_ERROR(CheckDim(dim, limits));
    if (!names.insert(dim.name).second) {
      return Invalid("dim ", dim.name, " is declared twice; declare it once");
    }
  }
  return absl::OkStatus();
}

// Returns the error for operand `index` of node `id`, which breaks the topological order.
absl::Status BadOperand(NodeId id, size_t index, NodeId operand, size_t nodes) {
  if (operand < 0 || static_cast<size_t>(operand) >= nodes) {
    return Invalid("operand ", index, " is %", operand,
                   ", which is not a node of the graph (%0 to %", nodes - 1, ")");
  }
  return Invalid("operand ", index, " is %", operand,
                 operand == id ? ", the node itself" : ", a later node",
                 "; nodes must come after their operands, without cycles");
}

absl::Status CheckNode(const Graph& graph, NodeId id, const NodeChecker& checker) {
  const Node& node = graph.nodes[id];
  if (IsDeclared(node.op)) {
    if (!node.inputs.empty()) {
      return Invalid("has ", node.inputs.size(), " operands; ", OpName(node.op), " takes 0");
    }
    if (node.name.empty()) return Invalid("it has no name; every ", OpName(node.op), " needs one");
    return checker.CheckDeclared(node.op, node.type, node.attrs);
  }
  std::vector<TensorType> types;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const NodeId operand = node.inputs[i];
    if (operand < 0 || operand >= id) return BadOperand(id, i, operand, graph.nodes.size());
    types.push_back(graph.nodes[operand].type);
  }
  ASSIGN_OR_RETURN(TensorType type, checker.Infer(node.op, types, node.attrs));
  if (node.type == type) return absl::OkStatus();
  const std::string stated =
      IsKnown(node.type.dtype) && node.type.shape.size() <= 2 * type.shape.size() + 16
          ? TypeToString(node.type)
          : "a malformed type";
  return Invalid("has type ", stated, "; its operands and attributes give ", TypeToString(type));
}

absl::Status CheckNodes(const Graph& graph, const GraphLimits& limits) {
  if (static_cast<int64_t>(graph.nodes.size()) > limits.max_nodes) {
    return Invalid("the graph has ", graph.nodes.size(), " nodes; ",
                   LimitIs(limits.max_nodes, "max_nodes"));
  }
  const Bounds bounds = graph.DimBounds();
  const NodeChecker checker(graph.dims, bounds, limits);
  absl::flat_hash_set<std::string> names;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& node = graph.nodes[i];
    if (static_cast<size_t>(node.op) >= OpTable().size()) {
      return Unimplemented("%", id, ": op ", static_cast<int>(node.op), " is not in the op table");
    }
    absl::Status s = CheckName("name", node.name, limits);
    if (s.ok()) s = CheckNode(graph, id, checker);
    if (s.ok() && !node.name.empty() && !names.insert(node.name).second) {
      s = Invalid("another node is already named ", Quoted(node.name), "; names must be unique");
    }
    if (!s.ok()) return Prefixed(graph.Describe(id) + ": ", s);
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const Graph& graph, const GraphLimits& limits) {
  if (graph.outputs.empty()) return Invalid("the graph has no outputs; it needs at least one");
  if (static_cast<int64_t>(graph.outputs.size()) > limits.max_nodes) {
    return Invalid("the graph has ", graph.outputs.size(), " outputs; ",
                   LimitIs(limits.max_nodes, "max_nodes"));
  }
  absl::flat_hash_set<std::string> names;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Output& output = graph.outputs[i];
    if (output.name.empty()) return Invalid("output ", i, " has no name");
    RETURN_IF_ERROR(CheckName("output", output.name, limits));
    if (!names.insert(output.name).second) {
      return Invalid("output ", Quoted(output.name), " is there twice; names must be unique");
    }
    if (output.node < 0 || static_cast<size_t>(output.node) >= graph.nodes.size()) {
      return Invalid("output ", Quoted(output.name), " is %", output.node,
                     ", which is not a node of the graph");
    }
  }
  return absl::OkStatus();
}

// Checks that each StateWrite is an update, once, that it writes a state, and that nothing else
// reads what the state held before.
absl::Status CheckUpdates(const Graph& graph) {
  std::vector<NodeId> write_of(graph.nodes.size(), -1);  // by StateRead: its write
  std::vector<bool> is_update(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.updates.size(); ++i) {
    const NodeId id = graph.updates[i];
    if (id < 0 || static_cast<size_t>(id) >= graph.nodes.size()) {
      return Invalid("update ", i, " is %", id, ", which is not a node of the graph");
    }
    if (!IsStateWrite(graph.nodes[id].op)) {
      return Invalid("update ", i, " is ", graph.Describe(id), "; it must be a StateWrite");
    }
    if (is_update[id]) return Invalid("update ", i, ", ", graph.Describe(id), ", is there twice");
    is_update[id] = true;
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (!IsStateWrite(graph.nodes[id].op)) continue;
    const NodeId state = graph.nodes[id].inputs[0];
    if (!is_update[id]) {
      return Invalid(graph.Describe(id), ": is none of the graph's updates; each write is one");
    }
    if (!IsStateRead(graph.nodes[state].op)) {
      return Invalid(graph.Describe(id), ": writes ", graph.Describe(state),
                     "; it must write a StateRead");
    }
    if (write_of[state] >= 0) {
      return Invalid(graph.Describe(state), ": is written by ", graph.Describe(write_of[state]),
                     " and by ", graph.Describe(id), "; a state has one write at most");
    }
    write_of[state] = id;
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    for (size_t i = 0; i < graph.nodes[id].inputs.size(); ++i) {
      const NodeId read = graph.nodes[id].inputs[i];
      if (write_of[read] < 0 || (write_of[read] == id && i == 0)) continue;
      return Invalid(graph.Describe(id), ": reads ", graph.Describe(read), ", which ",
                     graph.Describe(write_of[read]), " writes; read the result of the write");
    }
  }
  for (const Output& output : graph.outputs) {
    if (write_of[output.node] < 0) continue;
    return Invalid("output ", Quoted(output.name), " is ", graph.Describe(output.node), ", which ",
                   graph.Describe(write_of[output.node]), " writes; name the result of the write");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Verify(const Graph& graph, const GraphLimits& limits) {
  absl::Status status = CheckName("graph", graph.name, limits);
  if (status.ok()) status = CheckDims(graph, limits);
  if (status.ok()) status = CheckNodes(graph, limits);
  if (status.ok()) status = CheckOutputs(graph, limits);
  if (status.ok()) status = CheckUpdates(graph);
  return status;
}

}  // namespace athanor
