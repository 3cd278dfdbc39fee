#include "compiler/frontend/onnx/fold/fold.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "compiler/ir/graph/attr_exprs.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// Cost of looking at a node, in elements visited.
constexpr int64_t kNodeWork = 100;

// Returns the number of elements; nullopt unless every size is a number and their product is within
// `limit`.
std::optional<int64_t> Elements(const Shape& shape, int64_t limit) {
  int64_t elements = 1;
  bool empty = false;
  for (const Expr& size : shape) {
    const std::optional<int64_t> n = size.constant();
    if (!n || *n < 0) return std::nullopt;
    empty = empty || *n == 0;
    if (*n > 0 && elements > limit / *n) elements = limit + 1;
    if (*n > 0 && elements <= limit) elements *= *n;
  }
  if (empty) return 0;
  return elements <= limit ? std::optional(elements) : std::nullopt;
}

// Checks for dims in shapes, sizes and index maps.
bool UsesDims(const Node& node) {
  std::set<std::string> symbols;
  for (const Expr& e : node.type.shape) e.CollectSymbols(&symbols);
  ForEachExpr(node.attrs, [&](const Expr& e) { e.CollectSymbols(&symbols); });
  return std::any_of(symbols.begin(), symbols.end(),
                     [](const std::string& symbol) { return symbol[0] != '$'; });
}

// Returns approximately the number of elements that the reference evaluator visits for a node:
// those of the result and of every operand and, unless the op is linear, of the pairs of both.
std::optional<int64_t> WorkOf(const Graph& graph, const Node& node, int64_t limit) {
  if (IsLoop(node.op)) return std::nullopt;  // its steps have no bound
  std::optional<int64_t> work = Elements(node.type.shape, limit);
  if (!work) return std::nullopt;
  for (NodeId operand : node.inputs) {
    const std::optional<int64_t> elements = Elements(graph.node(operand).type.shape, limit);
    if (!elements) return std::nullopt;
    *work += *elements;
  }
  if (!OpInfo(node.op).traits.linear && !node.inputs.empty()) {
    // For each element a row of an operand is read; no row is longer than the longest of them. A
    // convolution visits its weight, the padding's part too.
    const int64_t result = *Elements(node.type.shape, limit);
    int64_t row = 0;
    for (NodeId operand : node.inputs) {
      row = std::max(row, *Elements(graph.node(operand).type.shape, limit));
    }
    if (row > 0 && result > limit / row) return std::nullopt;
    *work += result * row;
  }
  return *work <= limit ? work : std::nullopt;
}

}  // namespace

void Folder::Classify(const Graph& graph) {
  for (size_t id = literal_.size(); id < graph.nodes.size(); ++id) {
    const Node& node = graph.nodes[id];
    bool literal = !IsDeclared(node.op) && !UsesDims(node);
    for (NodeId operand : node.inputs) literal = literal && literal_[operand];
    literal_.push_back(literal);
  }
}

// Marks the node as no literal. Nodes that depend on it need at least as much work, so a chain
// behind it is not searched again for each of them.
std::nullopt_t Folder::GiveUp(NodeId node) {
  literal_[node] = false;
  return std::nullopt;
}

std::optional<Tensor> Folder::Fold(const Graph& graph, NodeId node, int64_t most) {
  Classify(graph);
  if (cancelled_ || !literal_[node]) return std::nullopt;
  const TensorType& type = graph.node(node).type;
  const std::optional<int64_t> elements =
      Elements(type.shape, std::min(most, limits_.max_result_bytes));
  if (!elements || *elements * DTypeBytes(type.dtype) > limits_.max_result_bytes) {
    return std::nullopt;
  }
  // The nodes to evaluate, starting with the node itself.
  std::vector<NodeId> needed = {node};
  std::set<NodeId> seen = {node};
  int64_t work = 0, bytes = 0;
  for (size_t i = 0; i < needed.size(); ++i) {
    const Node& one = graph.node(needed[i]);
    const std::optional<int64_t> visits =
        WorkOf(graph, one, std::min(limits_.max_node_work, limits_.max_work - work_));
    bool fits = visits.has_value();
    if (fits) {
      work += *visits;
      bytes += *Elements(one.type.shape, limits_.max_work) * DTypeBytes(one.type.dtype);
      fits = work <= limits_.max_work - work_ && bytes <= limits_.max_bytes;
    }
    if (!fits) {
      // Charged, because other nodes may search the same nodes again.
      work_ += std::min(limits_.max_work - work_, static_cast<int64_t>(i) * kNodeWork);
      return GiveUp(node);
    }
    for (NodeId operand : one.inputs) {
      if (seen.insert(operand).second) needed.push_back(operand);
    }
  }
  std::sort(needed.begin(), needed.end());  // operands come first
  work_ += work;
  absl::StatusOr<Tensor> value = Evaluate(graph, needed);
  if (cancelled_) return std::nullopt;
  if (!value.ok()) return GiveUp(node);
  if (bytes_ + static_cast<int64_t>(value->bytes.size()) > limits_.max_bytes) return std::nullopt;
  bytes_ += static_cast<int64_t>(value->bytes.size());
  return *std::move(value);
}

// Returns the value of the last node of `needed`, in which operands come before their users.
absl::StatusOr<Tensor> Folder::Evaluate(const Graph& graph, const std::vector<NodeId>& needed) {
  std::map<NodeId, Tensor> values;
  for (NodeId id : needed) {
    cancelled_ = cancelled_ || (asks_ && asks_());
    if (cancelled_) return absl::CancelledError("the import was cancelled");
    const Node& node = graph.node(id);
    ASSIGN_OR_RETURN(std::vector<int64_t> shape, ConcreteShape(node.type.shape, {}));
    std::vector<const Tensor*> operands;
    for (NodeId operand : node.inputs) operands.push_back(&values.at(operand));
    Tensor value = Tensor::Zeros(node.type.dtype, std::move(shape));
    absl::Status status = OpInfo(node.op).reference(operands, node.attrs, {}, &value);
    if (!status.ok()) return status;
    values.emplace(id, std::move(value));
  }
  return std::move(values.at(needed.back()));
}

}  // namespace athanor::onnx
