// Converts nested graphs between their messages and the IR.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/frontend/attr_proto.h"
#include "compiler/frontend/names.h"
#include "compiler/ir/value/limit_text.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

class BodyReader {
 public:
  BodyReader(const v1::Graph& message, const MessageLimits& limits)
      : message_(message), limits_(limits) {
    --limits_.graph.max_bodies;
  }

  absl::StatusOr<SubGraph> Read() {
    if (limits_.graph.max_bodies < 0) {
      return Invalid("is nested too deep; graphs may be nested ", GraphLimits().max_bodies,
                     " deep");
    }
    if (message_.dims_size() > 0) {
      return Invalid("declares dim ", Quoted(message_.dims(0).name()),
                     "; its sizes are over the dims of the graph around it");
    }
    if (message_.nodes_size() > limits_.graph.max_nodes) {
      return Invalid("has ", message_.nodes_size(), " nodes; ",
                     LimitIs(limits_.graph.max_nodes, "max_nodes"));
    }
    graph_.name = message_.name();
    for (const v1::GraphNode& node : message_.nodes()) {
      const absl::Status read = ReadNode(node);
      if (!read.ok()) return Prefixed(Cat("node ", Quoted(node.name()), ": "), read);
    }
    for (const v1::GraphOutput& output : message_.outputs()) {
      const auto id = ids_.find(output.node());
      if (id == ids_.end()) {
        return Invalid("output ", Quoted(output.name()), " is ", Quoted(output.node()),
                       ", which is not a node of this graph");
      }
      graph_.outputs.push_back({output.name(), id->second});
    }
    return SubGraph(std::move(graph_));
  }

 private:
  absl::Status ReadNode(const v1::GraphNode& message) {
    const std::optional<Op> op = ParseOp(message.op());
    if (!op) return Unimplemented("op ", Quoted(message.op()), " is not in the op table");
    if (!message.has_type()) return Invalid("has no type; state those of all nodes of the graph");
    ASSIGN_OR_RETURN(DType dtype, DTypeFromProto("dtype", message.dtype()));
    ASSIGN_OR_RETURN(Shape shape, ShapeFromProto("shape", message.shape(), limits_));
    Node node{*op, {}, {}, {dtype, std::move(shape)}, ""};
    // Names of computed nodes are dropped: in the message they only link operands.
    if (IsInput(*op)) node.name = message.name();
    for (const std::string& input : message.inputs()) {
      const auto id = ids_.find(input);
      if (id == ids_.end()) {
        return Invalid("operand ", Quoted(input), " is not a node before this one");
      }
      node.inputs.push_back(id->second);
    }
    RETURN_IF_ERROR(ReadAttrs(message, &node.attrs));
    if (!ids_.emplace(message.name(), static_cast<NodeId>(graph_.nodes.size())).second) {
      return Invalid("another node has this name");
    }
    graph_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status ReadAttrs(const v1::GraphNode& message, Attrs* attrs) const {
    const std::vector<AttrSpec>& specs = OpInfo(*ParseOp(message.op())).attrs;
    std::vector<std::string> names;  // the map has no order of its own
    for (const auto& [name, value] : message.attrs()) names.push_back(name);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const std::string_view given = name;
      const auto spec = std::find_if(specs.begin(), specs.end(),
                                     [&](const AttrSpec& s) { return s.name == given; });
      if (spec == specs.end()) {
        return Invalid(message.op(), " has no attribute ", Quoted(name));
      }
      ASSIGN_OR_RETURN(AttrValue value,
                       AttrFromProto(name, spec->type, message.attrs().at(name), limits_));
      attrs->emplace(name, std::move(value));
    }
    return absl::OkStatus();
  }

  const v1::Graph& message_;
  MessageLimits limits_;
  Graph graph_;
  absl::flat_hash_map<std::string, NodeId> ids_;
};

}  // namespace

absl::StatusOr<SubGraph> BodyFromProto(std::string_view what, const v1::Graph& message,
                                       const MessageLimits& limits) {
  absl::StatusOr<SubGraph> body = BodyReader(message, limits).Read();
  if (!body.ok()) return Prefixed(Cat(what, ": "), body.status());
  return body;
}

void BodyToProto(const Graph& body, v1::Graph* message) {
  message->set_name(body.name);
  absl::flat_hash_set<std::string> taken;
  for (const Node& node : body.nodes) taken.insert(node.name);
  std::vector<std::string> names;
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const Node& node = body.nodes[i];
    std::string name = IsInput(node.op) ? node.name : Cat("n", i);
    while (!IsInput(node.op) && !taken.insert(name).second) name += "_";
    names.push_back(std::move(name));
    v1::GraphNode* out = message->add_nodes();
    out->set_name(names.back());
    out->set_op(std::string(OpName(node.op)));
    for (NodeId input : node.inputs) out->add_inputs(names[input]);
    for (const auto& [name, value] : node.attrs) (*out->mutable_attrs())[name] = AttrToProto(value);
    out->set_dtype(std::string(DTypeName(node.type.dtype)));
    ShapeToProto(node.type.shape, out->mutable_shape());
    out->set_has_type(true);
  }
  for (const Output& output : body.outputs) {
    v1::GraphOutput* out = message->add_outputs();
    out->set_name(output.name);
    out->set_node(names[output.node]);
  }
}

}  // namespace athanor
