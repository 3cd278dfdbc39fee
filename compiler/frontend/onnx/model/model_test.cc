#include "compiler/frontend/onnx/model/model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using ::onnx::FunctionProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;

NodeProto* AddNode(google::protobuf::RepeatedPtrField<NodeProto>* nodes, std::string op,
                   std::vector<std::string> inputs, std::vector<std::string> outputs,
                   std::string name = "") {
  NodeProto* node = nodes->Add();
  node->set_op_type(std::move(op));
  node->set_name(std::move(name));
  for (std::string& input : inputs) node->add_input(std::move(input));
  for (std::string& output : outputs) node->add_output(std::move(output));
  return node;
}

void SetOpset(ModelProto* model, std::string domain, int64_t version) {
  auto* opset = model->add_opset_import();
  opset->set_domain(std::move(domain));
  opset->set_version(version);
}

ModelProto Model() {
  ModelProto model;
  model.set_ir_version(8);
  SetOpset(&model, "", 17);
  GraphProto* graph = model.mutable_graph();
  graph->set_name("g");
  graph->add_input()->set_name("x");
  AddNode(graph->mutable_node(), "Relu", {"x"}, {"y"});
  graph->add_output()->set_name("y");
  return model;
}

absl::StatusOr<OnnxModel> Parse(const ModelProto& model, const GraphLimits& limits = {}) {
  absl::StatusOr<Lifted> lifted = LiftPayloads(model.SerializeAsString(), {});
  if (!lifted.ok()) return lifted.status();
  return ParseOnnx(*std::move(lifted), {}, limits);
}

std::string ErrorOf(const ModelProto& model, const GraphLimits& limits = {}) {
  const absl::StatusOr<OnnxModel> parsed = Parse(model, limits);
  if (parsed.ok()) return "no error";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(ModelTest, ReadsVersions) {
  ModelProto proto = Model();
  SetOpset(&proto, "com.microsoft", 1);
  const OnnxModel model = Parse(proto).value();
  EXPECT_EQ(model.VersionOf(""), 17);
  EXPECT_EQ(model.VersionOf("ai.onnx"), 17);
  EXPECT_EQ(model.VersionOf("com.microsoft"), 1);
  EXPECT_EQ(model.VersionOf("ai.onnx.ml"), 0);
}

TEST(ModelTest, VersionsAtTheirEdges) {
  for (const int64_t opset : {1, 6, 7, 28}) {
    ModelProto model = Model();
    model.mutable_opset_import(0)->set_version(opset);
    EXPECT_EQ(ErrorOf(model), "no error") << opset;
  }
  ModelProto model = Model();
  model.mutable_opset_import(0)->set_version(29);
  EXPECT_EQ(ErrorOf(model), "opset 29 is newer than this server reads, 28");
  model.mutable_opset_import(0)->set_version(0);
  EXPECT_EQ(ErrorOf(model), "opset 0 is not a version; versions start at 1");
  model = Model();
  SetOpset(&model, "ai.onnx", 18);
  EXPECT_EQ(ErrorOf(model),
            "opset is stated twice, as 17 and as 18; a model has one version of a domain");
  // Some exporters write an import twice; an equal one changes nothing.
  model.mutable_opset_import(1)->set_version(17);
  EXPECT_EQ(ErrorOf(model), "no error");
  EXPECT_EQ(Parse(model).value().VersionOf(""), 17);
  SetOpset(&model, "com.microsoft", 1);
  SetOpset(&model, "com.microsoft", 1);
  EXPECT_EQ(Parse(model).value().VersionOf("com.microsoft"), 1);
  SetOpset(&model, "com.microsoft", 2);
  EXPECT_EQ(ErrorOf(model),
            "domain \"com.microsoft\": opset is stated twice, as 1 and as 2; a model has one "
            "version of a domain");
  model.clear_opset_import();
  EXPECT_EQ(ErrorOf(model), "the model has no opset_import");
}

TEST(ModelTest, IrVersionsAtTheirEdges) {
  ModelProto model = Model();
  for (const int64_t ir : {3, 14}) {
    model.set_ir_version(ir);
    EXPECT_EQ(ErrorOf(model), "no error");
  }
  model.set_ir_version(2);
  EXPECT_EQ(ErrorOf(model), "IR version 2 is older than this server reads, 3");
  model.set_ir_version(15);
  EXPECT_EQ(ErrorOf(model), "IR version 15 is newer than this server reads, 14");
  model.clear_ir_version();
  EXPECT_EQ(ErrorOf(model), "the model states no ir_version");
}

TEST(ModelTest, WhatIsNoModel) {
  EXPECT_EQ(ParseOnnx({}, {}).status().message(),
            "the file is empty; it must be an onnx.ModelProto");
  EXPECT_EQ(ErrorOf([] {
              ModelProto model = Model();
              model.clear_graph();
              return model;
            }()),
            "the model has no graph");
  EXPECT_NE(std::string(ParseOnnx({"\x3a\x05"
                                   "a",
                                   {}},
                                  {})
                            .status()
                            .message())
                .find("cut off"),
            std::string::npos);
}

// Lifts and parses a truncated model. Expects INVALID_ARGUMENT or a shorter model.
TEST(ModelTest, CutAtEveryByte) {
  ModelProto proto = Model();
  FunctionProto* function = proto.add_functions();
  function->set_name("F");
  AddNode(function->mutable_node(), "Relu", {"a"}, {"b"});
  const std::string bytes = proto.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    absl::StatusOr<Lifted> lifted = LiftPayloads(std::string_view(bytes).substr(0, size), {});
    const absl::Status s =
        lifted.ok() ? ParseOnnx(*std::move(lifted), {}).status() : lifted.status();
    EXPECT_TRUE(s.ok() || s.code() == absl::StatusCode::kInvalidArgument) << s;
  }
}

TEST(ModelTest, Names) {
  ModelProto model = Model();
  model.mutable_graph()->mutable_node(0)->set_output(0, "\xff");
  EXPECT_NE(ErrorOf(model).find("UTF-8"), std::string::npos) << ErrorOf(model);
  model = Model();
  model.mutable_graph()->mutable_input(0)->set_name(std::string(1025, 'a'));
  EXPECT_NE(ErrorOf(model).find("input name"), std::string::npos) << ErrorOf(model);
  model = Model();
  model.mutable_graph()->mutable_node(0)->clear_op_type();
  EXPECT_EQ(ErrorOf(model), "node \"y\" has no op_type");
  // Inside a branch of a branch.
  model = Model();
  GraphProto* branch = AddNode(model.mutable_graph()->mutable_node(), "If", {"x"}, {"z"})
                           ->add_attribute()
                           ->mutable_g();
  branch = AddNode(branch->mutable_node(), "If", {"x"}, {"z2"})->add_attribute()->add_graphs();
  AddNode(branch->mutable_node(), "Relu", {"x"}, {"\xff"});
  EXPECT_NE(ErrorOf(model).find("result name"), std::string::npos) << ErrorOf(model);
}

TEST(ModelTest, NumberOfNodes) {
  ModelProto model = Model();
  GraphProto* branch = AddNode(model.mutable_graph()->mutable_node(), "If", {"x"}, {"z"})
                           ->add_attribute()
                           ->mutable_g();
  AddNode(branch->mutable_node(), "Relu", {"x"}, {"a"});
  EXPECT_EQ(ErrorOf(model, {.max_nodes = 3}), "no error");
  EXPECT_EQ(ErrorOf(model, {.max_nodes = 2}),
            "the model has more than 2 nodes; the limit is 2 (--max_nodes)");
}

FunctionProto* AddFunction(ModelProto* model, std::string name, std::vector<std::string> calls) {
  FunctionProto* function = model->add_functions();
  function->set_domain("d");
  function->set_name(std::move(name));
  for (std::string& callee : calls) {
    AddNode(function->mutable_node(), std::move(callee), {}, {"r"})->set_domain("d");
  }
  return function;
}

TEST(ModelTest, Functions) {
  ModelProto proto = Model();
  AddFunction(&proto, "A", {"B", "C"});
  AddFunction(&proto, "B", {"C", "C"});
  AddFunction(&proto, "C", {"Relu"});
  AddFunction(&proto, "C", {})->set_overload("v2");
  const OnnxModel model = Parse(proto).value();
  EXPECT_EQ(model.FindFunction("d", "A", "")->name(), "A");
  EXPECT_EQ(model.FindFunction("d", "C", "v2")->overload(), "v2");
  EXPECT_EQ(model.FindFunction("d", "C", "v3"), nullptr);
  EXPECT_EQ(model.FindFunction("", "A", ""), nullptr);
}

TEST(ModelTest, FunctionsAreRefusedByName) {
  ModelProto model = Model();
  AddFunction(&model, "A", {});
  AddFunction(&model, "A", {});
  EXPECT_EQ(ErrorOf(model), "function \"d.A\" is defined twice");
  model = Model();
  AddFunction(&model, "A", {"B"});
  AddFunction(&model, "B", {"C"});
  AddFunction(&model, "C", {"Relu", "B"});
  EXPECT_EQ(ErrorOf(model), "functions call each other without end: \"d.B\" -> \"d.C\" -> \"d.B\"");
  model = Model();
  FunctionProto* function = AddFunction(&model, "A", {});
  GraphProto* branch =
      AddNode(function->mutable_node(), "If", {}, {"r"})->add_attribute()->mutable_g();
  AddNode(branch->mutable_node(), "A", {}, {"s"})->set_domain("d");
  EXPECT_EQ(ErrorOf(model), "functions call each other without end: \"d.A\" -> \"d.A\"");
  model = Model();
  auto* opset = AddFunction(&model, "A", {})->add_opset_import();
  opset->set_version(29);
  EXPECT_EQ(ErrorOf(model), "function \"d.A\": opset 29 is newer than this server reads, 28");
}

TEST(ModelTest, LongChainsOfFunctions) {
  ModelProto model = Model();
  for (int i = 0; i < 20'000; ++i) {
    AddFunction(&model, "F" + std::to_string(i), {"F" + std::to_string(i + 1)});
  }
  EXPECT_EQ(ErrorOf(model), "no error");
}

TEST(NodeNameTest, NameOrResultOrOp) {
  ModelProto model;
  auto* nodes = model.mutable_graph()->mutable_node();
  EXPECT_EQ(NodeName(*AddNode(nodes, "Relu", {}, {"y"}, "n")), "n");
  EXPECT_EQ(NodeName(*AddNode(nodes, "Relu", {}, {"", "z"})), "z");
  EXPECT_EQ(NodeName(*AddNode(nodes, "Relu", {}, {})), "Relu");
}

// --- OrderOf

GraphProto Graph(std::vector<std::string> inputs,
                 std::vector<std::pair<std::vector<std::string>, std::string>> nodes) {
  GraphProto graph;
  for (std::string& input : inputs) graph.add_input()->set_name(std::move(input));
  for (auto& [operands, result] : nodes) AddNode(graph.mutable_node(), "Add", operands, {result});
  return graph;
}

bool NoneAround(std::string_view) { return false; }

std::string OrderError(const GraphProto& graph, const std::vector<std::string_view>& outer = {}) {
  const auto order = OrderOf(graph, [&](std::string_view name) {
    return std::find(outer.begin(), outer.end(), name) != outer.end();
  });
  if (order.ok()) return "no error";
  EXPECT_EQ(order.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(order.status().message());
}

TEST(OrderTest, AValidOrderIsKept) {
  const GraphProto graph =
      Graph({"x"}, {{{"x"}, "a"}, {{"x"}, "b"}, {{"a", "b"}, "c"}, {{"x", ""}, "d"}});
  EXPECT_EQ(OrderOf(graph, NoneAround).value(), (std::vector<int>{0, 1, 2, 3}));
}

TEST(OrderTest, OperandsComeFirst) {
  const GraphProto graph =
      Graph({"x"}, {{{"c", "c"}, "d"}, {{"a", "b"}, "c"}, {{"x"}, "a"}, {{"x"}, "b"}});
  EXPECT_EQ(OrderOf(graph, NoneAround).value(), (std::vector<int>{2, 3, 1, 0}));
}

TEST(OrderTest, CyclesAreNamed) {
  EXPECT_EQ(OrderError(Graph({"x"}, {{{"x"}, "a"}, {{"a", "d"}, "b"}, {{"b"}, "c"}, {{"c"}, "d"}})),
            "the graph has a cycle: \"b\" -> \"c\" -> \"d\" -> \"b\"; a graph must be acyclic");
  EXPECT_EQ(OrderError(Graph({"x"}, {{{"a"}, "a"}})),
            "the graph has a cycle: \"a\" -> \"a\"; a graph must be acyclic");
  // Nodes that only depend on a cycle are not named.
  EXPECT_EQ(OrderError(Graph({}, {{{"b"}, "z"}, {{"c"}, "b"}, {{"b"}, "c"}})),
            "the graph has a cycle: \"b\" -> \"c\" -> \"b\"; a graph must be acyclic");
}

TEST(OrderTest, ABranchThatUsesItsOwnNodeIsACycle) {
  GraphProto graph = Graph({"x"}, {});
  GraphProto* branch =
      AddNode(graph.mutable_node(), "If", {"x"}, {"r"})->add_attribute()->mutable_g();
  AddNode(branch->mutable_node(), "Relu", {"r"}, {"inner"});
  EXPECT_EQ(OrderError(graph), "the graph has a cycle: \"r\" -> \"r\"; a graph must be acyclic");
}

TEST(OrderTest, WhatABranchTakesComesBeforeIt) {
  GraphProto graph = Graph({"x"}, {});
  GraphProto* branch =
      AddNode(graph.mutable_node(), "If", {"x"}, {"r"})->add_attribute()->mutable_g();
  GraphProto* nested =
      AddNode(branch->mutable_node(), "If", {"x"}, {"s"})->add_attribute()->add_graphs();
  AddNode(nested->mutable_node(), "Relu", {"late"}, {"t"});
  nested->add_output()->set_name("t");
  branch->add_output()->set_name("s");
  AddNode(graph.mutable_node(), "Relu", {"x"}, {"late"});
  EXPECT_EQ(OrderOf(graph, NoneAround).value(), (std::vector<int>{1, 0}));
  nested->mutable_node(0)->set_input(0, "never");
  EXPECT_EQ(OrderError(graph),
            "node \"r\" (If): its sub-graph's operand \"never\" is neither an "
            "input nor an initialiser nor a node's result");
  EXPECT_EQ(OrderError(graph, {"never"}), "no error");
  // A name that the branch defines itself is no capture, wherever it is defined.
  nested->mutable_node(0)->set_input(0, "own");
  AddNode(branch->mutable_node(), "Relu", {"x"}, {"own"});
  EXPECT_EQ(OrderError(graph), "no error");
}

TEST(OrderTest, NamesAreMadeOnce) {
  EXPECT_EQ(OrderError(Graph({"x"}, {{{"x"}, "a"}, {{"x"}, "a"}})),
            "node \"a\" (Add): result \"a\" is made by node \"a\" (Add) too");
  EXPECT_EQ(OrderError(Graph({"x"}, {{{"x"}, "x"}})),
            "node \"x\" (Add): result \"x\" is made by an input too");
  EXPECT_EQ(OrderError(Graph({"x", "x"}, {})), "input \"x\" is there twice");
  GraphProto graph = Graph({"x"}, {});
  graph.add_initializer()->set_name("w");
  EXPECT_EQ(OrderError(graph), "no error");
  graph.add_initializer()->set_name("x");  // an input with a value
  EXPECT_EQ(OrderError(graph), "no error");
  graph.add_sparse_initializer()->mutable_values()->set_name("w");
  EXPECT_EQ(OrderError(graph), "initialiser \"w\" is there twice");
  graph = Graph({}, {});
  graph.add_initializer()->set_name("w");
  AddNode(graph.mutable_node(), "Relu", {"w"}, {"w"}, "n");
  EXPECT_EQ(OrderError(graph), "node \"n\" (Relu): result \"w\" is made by an initialiser too");
}

TEST(OrderTest, NamesOfEnclosingGraphsAreNotHidden) {
  const std::vector<std::string_view> outer = {"x", "y"};
  EXPECT_EQ(OrderError(Graph({}, {{{"x"}, "y"}}), outer),
            "node \"y\" (Add): result \"y\" hides a value of an enclosing graph of that name");
  EXPECT_EQ(OrderError(Graph({"x"}, {}), outer),
            "input \"x\" hides a value of an enclosing graph of that name");
  GraphProto graph = Graph({}, {});
  graph.add_initializer()->set_name("y");
  EXPECT_EQ(OrderError(graph, outer),
            "initialiser \"y\" hides a value of an enclosing graph of that name");
}

TEST(OrderTest, OperandsThatNothingMakes) {
  EXPECT_EQ(OrderError(Graph({"input"}, {{{"inputt"}, "a"}})),
            "node \"a\" (Add): operand \"inputt\" is neither an input nor an initialiser nor a "
            "node's result; did you mean \"input\"?");
  GraphProto graph = Graph({"x"}, {});
  graph.add_output()->set_name("gone");
  EXPECT_EQ(OrderError(graph),
            "output \"gone\" is neither an input nor an initialiser nor a node's result");
}

TEST(OrderTest, ManyNodes) {
  GraphProto graph;
  constexpr int kNodes = 20'000;
  for (int i = 0; i < kNodes; ++i) {  // each needs the one after it
    AddNode(graph.mutable_node(), "Relu",
            i + 1 < kNodes ? std::vector<std::string>{"v" + std::to_string(i + 1)}
                           : std::vector<std::string>{},
            {"v" + std::to_string(i)});
  }
  const std::vector<int> order = OrderOf(graph, NoneAround).value();
  EXPECT_EQ(order.front(), kNodes - 1);
  EXPECT_EQ(order.back(), 0);
}

}  // namespace
}  // namespace athanor::onnx
