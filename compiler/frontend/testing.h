// Short builders of messages for tests.
//
//   GraphMessage m;
//   m.Dim("b", 1, 64).Input("x", "f32", {"b", "16"}).Node("y", "Relu", {"x"}).Output("y", "y");
//   ImportGraph(m.graph)
#ifndef ATHANOR_COMPILER_FRONTEND_TESTING_H_
#define ATHANOR_COMPILER_FRONTEND_TESTING_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/expr_proto.h"
#include "compiler/ir/expr/expr.h"
#include "proto/athanor/v1/graph.pb.h"
#include "proto/inference/open_inference_grpc.pb.h"

namespace athanor {

// Each method returns the object. node() is the last node added, for changes that no method makes.
struct GraphMessage {
  using Names = std::vector<std::string>;

  v1::Graph graph;

  v1::GraphNode& node() { return *graph.mutable_nodes(graph.nodes_size() - 1); }
  v1::AttrValue& attr(const std::string& name) { return (*node().mutable_attrs())[name]; }

  GraphMessage& Dim(const std::string& name, int64_t min, int64_t max) {
    v1::GraphDim* dim = graph.add_dims();
    dim->set_name(name);
    dim->set_min(min);
    dim->set_max(max);
    return *this;
  }
  GraphMessage& Node(const std::string& name, const std::string& op, const Names& inputs) {
    v1::GraphNode* node = graph.add_nodes();
    node->set_name(name);
    node->set_op(op);
    for (const std::string& input : inputs) node->add_inputs(input);
    return *this;
  }
  // States the type of the last node; sizes are expressions as text.
  GraphMessage& Typed(const std::string& dtype, const Names& sizes) {
    node().set_dtype(dtype);
    for (const std::string& size : sizes) {
      *node().add_shape() = ExprToProto(Expr::Parse(size).value());
    }
    node().set_has_type(true);
    return *this;
  }
  GraphMessage& Input(const std::string& name, const std::string& dtype, const Names& sizes) {
    return Node(name, "Input", {}).Typed(dtype, sizes);
  }
  GraphMessage& Parameter(const std::string& name, const std::string& dtype, const Names& sizes) {
    Node(name, "Parameter", {}).Typed(dtype, sizes);
    node().set_content_hash(std::string(32, name[0]));
    return *this;
  }
  GraphMessage& Constant(const std::string& name, const std::string& dtype,
                         const std::vector<int64_t>& shape, std::string data) {
    Node(name, "Constant", {});
    v1::TensorLiteral* literal = attr("value").mutable_tensor();
    literal->set_dtype(dtype);
    for (int64_t size : shape) literal->add_shape(size);
    literal->set_data(std::move(data));
    return *this;
  }
  GraphMessage& Output(const std::string& name, const std::string& node) {
    v1::GraphOutput* output = graph.add_outputs();
    output->set_name(name);
    output->set_node(node);
    return *this;
  }
};

// A request with raw contents.
struct RequestMessage {
  inference::ModelInferRequest request;

  inference::ModelInferRequest::InferInputTensor& tensor() {
    return *request.mutable_inputs(request.inputs_size() - 1);
  }
  RequestMessage& Tensor(const std::string& name, const std::string& datatype,
                         const std::vector<int64_t>& shape) {
    auto* tensor = request.add_inputs();
    tensor->set_name(name);
    tensor->set_datatype(datatype);
    for (int64_t size : shape) tensor->add_shape(size);
    return *this;
  }
  RequestMessage& Raw(std::string bytes) {
    request.add_raw_input_contents(std::move(bytes));
    return *this;
  }
  RequestMessage& Want(const std::string& output) {
    request.add_outputs()->set_name(output);
    return *this;
  }
  inference::InferParameter& parameter(const std::string& name) {
    return (*request.mutable_parameters())[name];
  }
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_TESTING_H_
