// The reference evaluator: runs every node's reference function, in order.
#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/graph/input_value.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::StatusOr<std::vector<int64_t>> ConcreteShape(const Shape& shape, const Expr::Env& dims) {
  std::vector<int64_t> sizes;
  for (const Expr& e : shape) {
    const std::optional<int64_t> size = e.Evaluate(dims);
    if (!size || *size < 0) {
      return absl::InvalidArgumentError(absl::StrCat("axis ", sizes.size(), " has size ",
                                                     e.ToString(), ", which is ",
                                                     size ? absl::StrCat(*size) : "not a number",
                                                     " for these inputs; it must not be negative"));
    }
    sizes.push_back(*size);
  }
  return sizes;
}

namespace {

absl::Status AtNode(const Graph& graph, NodeId id, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(graph.Describe(id), ": ", absl::string_view(status.message())));
}

absl::Status CheckDType(const Graph& graph, NodeId id, DType got) {
  const DType wanted = graph.node(id).type.dtype;
  if (got == wanted) return absl::OkStatus();
  const std::string name(DTypeName(wanted));
  return AtNode(graph, id,
                absl::InvalidArgumentError(absl::StrCat("expects ", name, ", got ",
                                                        std::string(DTypeName(got)),
                                                        "; Cast it to ", name, " first")));
}

absl::Status CheckBytes(const Graph& graph, NodeId id, const Tensor& tensor) {
  const size_t bytes = static_cast<size_t>(tensor.elements()) * DTypeBytes(tensor.dtype);
  if (tensor.bytes.size() == bytes) return absl::OkStatus();
  return AtNode(graph, id,
                absl::InvalidArgumentError(
                    absl::StrCat("has ", tensor.bytes.size(), " bytes, its shape needs ", bytes)));
}

absl::Status CheckValue(const Graph& graph, NodeId id, std::string_view bytes) {
  const Tensor* value = ValueOf(graph.node(id));
  if (value == nullptr) return absl::OkStatus();
  const std::optional<ValueDifference> other = DifferenceFrom(*value, bytes);
  if (!other) return absl::OkStatus();
  return AtNode(graph, id,
                absl::InvalidArgumentError(
                    absl::StrCat(other->element, other->element.empty() ? "is " : " is ",
                                 other->got, "; its attribute value makes it ", other->wanted)));
}

// Checks the caller's tensors and solves the dims. Checks byte counts last, because only a shape
// that fits its declaration is known to have one.
absl::StatusOr<Expr::Env> BindArguments(const Graph& graph, absl::Span<const NodeId> ids,
                                        absl::Span<const Tensor> inputs, const Expr::Env* given) {
  if (ids.size() != inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the graph takes ", ids.size(),
                     " tensors (inputs, then parameters, then states), got ", inputs.size()));
  }
  std::vector<std::vector<int64_t>> shapes;
  for (size_t i = 0; i < ids.size(); ++i) {
    RETURN_IF_ERROR(CheckDType(graph, ids[i], inputs[i].dtype));
    shapes.push_back(inputs[i].shape);
  }
  absl::StatusOr<Expr::Env> dims = given != nullptr ? *given : BindDims(graph, shapes);
  for (size_t i = 0; i < ids.size() && dims.ok(); ++i) {
    absl::Status s = CheckBytes(graph, ids[i], inputs[i]);
    if (s.ok()) s = CheckValue(graph, ids[i], inputs[i].bytes);
    if (!s.ok()) return s;
  }
  return dims;
}

class Evaluator {
 public:
  Evaluator(const Graph& graph, Expr::Env dims)
      : graph_(graph),
        dims_(std::move(dims)),
        own_(graph.nodes.size()),
        values_(graph.nodes.size(), nullptr) {}

  void SetArgument(NodeId id, const Tensor* value) { values_[id] = value; }

  absl::Status Run(NodeId id) {
    const Node& node = graph_.node(id);
    if (values_[id] != nullptr) return absl::OkStatus();
    absl::StatusOr<std::vector<int64_t>> shape = ConcreteShape(node.type.shape, dims_);
    if (!shape.ok()) return AtNode(graph_, id, shape.status());
    own_[id] = Tensor::Zeros(node.type.dtype, *std::move(shape));
    std::vector<const Tensor*> operands;
    for (NodeId input : node.inputs) operands.push_back(values_[input]);
    absl::Status status = OpInfo(node.op).reference(operands, node.attrs, dims_, &own_[id]);
    if (!status.ok()) return AtNode(graph_, id, status);
    values_[id] = &own_[id];
    return absl::OkStatus();
  }

  const Tensor& value(NodeId id) const { return *values_[id]; }
  void Release(NodeId id) { own_[id] = Tensor(); }

 private:
  const Graph& graph_;
  const Expr::Env dims_;
  std::vector<Tensor> own_;
  std::vector<const Tensor*> values_;  // point into own_ or to the caller's tensors
};

absl::StatusOr<Evaluator> Prepare(const Graph& graph, absl::Span<const Tensor> inputs,
                                  const Expr::Env* given) {
  const std::vector<NodeId> ids = graph.ArgumentIds();
  ASSIGN_OR_RETURN(Expr::Env dims, BindArguments(graph, ids, inputs, given));
  Evaluator evaluator(graph, std::move(dims));
  for (size_t i = 0; i < ids.size(); ++i) evaluator.SetArgument(ids[i], &inputs[i]);
  return evaluator;
}

// Returns by state the node whose value it is left with.
std::vector<NodeId> StatesLeft(const Graph& graph) {
  std::vector<NodeId> left = graph.StateIds();
  for (NodeId update : graph.updates) {
    std::replace(left.begin(), left.end(), graph.node(update).inputs[0], update);
  }
  return left;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph& graph, absl::Span<const Tensor> inputs,
                                             const Expr::Env* dims) {
  ASSIGN_OR_RETURN(Evaluator evaluator, Prepare(graph, inputs, dims));
  const auto nodes = static_cast<NodeId>(graph.nodes.size());
  // By node: its last reader among the nodes that outputs need. Its memory is freed then.
  std::vector<NodeId> last_use(nodes, -1);
  const std::vector<NodeId> states = StatesLeft(graph);
  for (const Output& output : graph.outputs) last_use[output.node] = nodes;
  for (NodeId id : states) last_use[id] = nodes;
  for (NodeId id = nodes; id-- > 0;) {
    if (last_use[id] < 0) continue;
    for (NodeId input : graph.node(id).inputs) last_use[input] = std::max(last_use[input], id);
  }
  for (NodeId id = 0; id < nodes; ++id) {
    if (last_use[id] < 0) continue;
    RETURN_IF_ERROR(evaluator.Run(id));
    for (NodeId input : graph.node(id).inputs) {
      if (last_use[input] == id) evaluator.Release(input);
    }
  }
  std::vector<Tensor> outputs;
  for (const Output& output : graph.outputs) outputs.push_back(evaluator.value(output.node));
  for (NodeId id : states) outputs.push_back(evaluator.value(id));
  return outputs;
}

absl::StatusOr<std::vector<Tensor>> EvaluateAll(const Graph& graph, absl::Span<const Tensor> inputs,
                                                const Expr::Env* dims) {
  ASSIGN_OR_RETURN(Evaluator evaluator, Prepare(graph, inputs, dims));
  std::vector<Tensor> values;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    RETURN_IF_ERROR(evaluator.Run(id));
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    values.push_back(evaluator.value(id));
  }
  return values;
}

}  // namespace athanor
