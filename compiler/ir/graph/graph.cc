#include "compiler/ir/graph/graph.h"

#include <utility>

#include "compiler/ir/graph/check.h"
#include "compiler/ir/graph/input_value.h"
#include "compiler/ir/graph/state.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

std::vector<NodeId> IdsOf(const Graph& graph, Op op) {
  std::vector<NodeId> ids;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == op) ids.push_back(static_cast<NodeId>(i));
  }
  return ids;
}

std::string DescribeNew(Op op, const std::string& name, size_t id) {
  return name.empty() ? Cat("%", id, " (", OpName(op), ")")
                      : Cat(Quoted(name), " (", OpName(op), ")");
}

}  // namespace

std::vector<NodeId> Graph::InputIds() const { return IdsOf(*this, Op::kInput); }
std::vector<NodeId> Graph::ParameterIds() const { return IdsOf(*this, Op::kParameter); }
std::vector<NodeId> Graph::StateIds() const { return IdsOf(*this, Op::kStateRead); }

std::vector<NodeId> Graph::ArgumentIds() const {
  std::vector<NodeId> ids = InputIds();
  for (const std::vector<NodeId>& more : {ParameterIds(), StateIds()}) {
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

SubGraph::SubGraph(Graph graph) : graph_(std::make_shared<const Graph>(std::move(graph))) {}

Graph& SubGraph::Edit() {
  auto own = std::make_shared<Graph>(*graph_);
  graph_ = own;
  return *own;
}

bool SubGraph::operator==(const SubGraph& other) const {
  if (graph_ == other.graph_) return true;
  return graph_ != nullptr && other.graph_ != nullptr && ToText(*graph_) == ToText(*other.graph_);
}

Bounds Graph::DimBounds() const {
  Bounds bounds;
  for (const Dim& dim : dims) bounds.Set(dim.name, dim.min, dim.max);
  return bounds;
}

std::string Graph::Describe(NodeId id) const {
  if (id < 0 || static_cast<size_t>(id) >= nodes.size()) return Cat("%", id, " (no such node)");
  return DescribeNew(nodes[id].op, nodes[id].name, id);
}

GraphBuilder::GraphBuilder(Graph* graph, const GraphLimits& limits)
    : graph_(graph), bounds_(graph->DimBounds()), limits_(limits) {
  for (const Node& node : graph->nodes) {
    if (!node.name.empty()) names_.insert(node.name);
  }
}

absl::StatusOr<NodeId> GraphBuilder::Input(std::string name, TensorType type,
                                           std::optional<Tensor> value) {
  Attrs attrs;
  if (value) attrs.emplace(kInputValue, *std::move(value));
  return AddDeclared(Op::kInput, std::move(name), std::move(type), std::move(attrs));
}

absl::StatusOr<NodeId> GraphBuilder::Parameter(std::string name, TensorType type) {
  return AddDeclared(Op::kParameter, std::move(name), std::move(type), {});
}

absl::StatusOr<NodeId> GraphBuilder::State(std::string name, TensorType type, std::string role) {
  return AddDeclared(Op::kStateRead, std::move(name), std::move(type),
                     {{std::string(kRole), std::move(role)}});
}

absl::StatusOr<NodeId> GraphBuilder::Write(NodeId state, NodeId index, NodeId update) {
  absl::StatusOr<NodeId> id = Add(Op::kStateWrite, {state, index, update});
  if (id.ok()) graph_->updates.push_back(*id);
  return id;
}

absl::StatusOr<NodeId> GraphBuilder::Constant(Tensor value) {
  Attrs attrs;
  attrs.emplace("value", std::move(value));
  return Add(Op::kConstant, {}, std::move(attrs));
}

absl::Status GraphBuilder::CheckNew(Op op, const std::string& name) const {
  if (static_cast<int64_t>(graph_->nodes.size()) >= limits_.max_nodes) {
    return Invalid("the graph has more than ", limits_.max_nodes,
                   " nodes, the limit (--max_nodes)");
  }
  RETURN_IF_ERROR(CheckName("name", name, limits_));
  if (names_.contains(name)) {
    return Invalid("another node is already named ", Quoted(name), "; names must be unique");
  }
  if (IsDeclared(op) && name.empty())
    return Invalid("it has no name; every ", OpName(op), " needs one");
  return absl::OkStatus();
}

NodeId GraphBuilder::Append(Node node) {
  if (!node.name.empty()) names_.insert(node.name);
  graph_->nodes.push_back(std::move(node));
  return static_cast<NodeId>(graph_->nodes.size() - 1);
}

absl::StatusOr<NodeId> GraphBuilder::AddDeclared(Op op, std::string name, TensorType type,
                                                 Attrs attrs) {
  const NodeChecker checker(graph_->dims, bounds_, limits_);
  absl::Status status = CheckNew(op, name);
  if (status.ok()) status = checker.CheckDeclared(op, type, attrs);
  if (!status.ok()) {
    return Prefixed(DescribeNew(op, name, graph_->nodes.size()) + ": ", status);
  }
  return Append(Node{op, {}, std::move(attrs), std::move(type), std::move(name)});
}

absl::StatusOr<NodeId> GraphBuilder::Add(Op op, std::vector<NodeId> inputs, Attrs attrs,
                                         std::string name) {
  const std::string prefix = DescribeNew(op, name, graph_->nodes.size()) + ": ";
  if (static_cast<size_t>(op) >= OpTable().size()) {
    return Unimplemented(prefix, "op ", static_cast<int>(op), " is not in the op table");
  }
  if (absl::Status s = CheckNew(op, name); !s.ok()) return Prefixed(prefix, s);
  std::vector<TensorType> types;
  for (NodeId input : inputs) {
    if (input < 0 || static_cast<size_t>(input) >= graph_->nodes.size()) {
      return Invalid(prefix, "operand ", types.size(), " is %", input,
                     ", which is not a node of the graph so far");
    }
    types.push_back(graph_->nodes[input].type);
  }
  const NodeChecker checker(graph_->dims, bounds_, limits_);
  absl::StatusOr<TensorType> type = checker.Infer(op, types, attrs);
  if (!type.ok()) return Prefixed(prefix, type.status());
  return Append(Node{op, std::move(inputs), std::move(attrs), *std::move(type), std::move(name)});
}

}  // namespace athanor
