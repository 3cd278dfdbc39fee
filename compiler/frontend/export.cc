// Converts an IR graph to its message.
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/frontend/attr_proto.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// Returns a unique name per node: its own, or one made from its id.
std::vector<std::string> NodeNames(const Graph& graph) {
  absl::flat_hash_set<std::string> taken;
  for (const Node& node : graph.nodes) taken.insert(node.name);
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    std::string name = graph.nodes[i].name;
    if (name.empty()) {
      name = Cat("n", i);
      while (!taken.insert(name).second) name += "_";
    }
    names.push_back(std::move(name));
  }
  return names;
}

void WriteType(const TensorType& type, v1::GraphNode* out) {
  out->set_dtype(std::string(DTypeName(type.dtype)));
  ShapeToProto(type.shape, out->mutable_shape());
  out->set_has_type(true);
}

}  // namespace

v1::Graph GraphToProto(const Graph& graph, absl::Span<const std::string> parameter_hashes) {
  v1::Graph message;
  message.set_name(graph.name);
  for (const Dim& dim : graph.dims) {
    v1::GraphDim* out = message.add_dims();
    out->set_name(dim.name);
    out->set_min(dim.min);
    out->set_max(dim.max);
  }
  const std::vector<std::string> names = NodeNames(graph);
  size_t parameters = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    v1::GraphNode* out = message.add_nodes();
    out->set_name(names[i]);
    out->set_op(std::string(OpName(node.op)));
    for (NodeId input : node.inputs) out->add_inputs(names[input]);
    for (const auto& [name, value] : node.attrs) {
      // Omitted: the reader of the message finds it from the contents.
      if (IsParameter(node.op) && name == kMagnitude) continue;
      (*out->mutable_attrs())[name] = AttrToProto(value);
    }
    if (IsDeclared(node.op)) WriteType(node.type, out);
    if (IsParameter(node.op) && parameters < parameter_hashes.size()) {
      out->set_content_hash(parameter_hashes[parameters++]);
    }
  }
  for (const Output& output : graph.outputs) {
    v1::GraphOutput* out = message.add_outputs();
    out->set_name(output.name);
    out->set_node(names[output.node]);
  }
  for (NodeId update : graph.updates) message.add_updates(names[update]);
  return message;
}

v1::Graph GraphToProto(const ImportedGraph& imported) {
  v1::Graph message = GraphToProto(imported.graph, imported.parameter_hashes);
  const std::vector<NodeId> inputs = imported.graph.InputIds();
  for (size_t i = 0; i < imported.input_elements.size(); ++i) {
    message.mutable_nodes(inputs[i])->set_element(imported.input_elements[i]);
  }
  for (size_t i = 0; i < imported.output_elements.size(); ++i) {
    message.mutable_outputs(static_cast<int>(i))->set_element(imported.output_elements[i]);
  }
  return message;
}

}  // namespace athanor
