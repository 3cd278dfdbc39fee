// Tests of a model's functions: calls with operands and attributes, nested calls, refusals inside.
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using testing::HasSubstr;

constexpr char kDomain[] = "my.domain";

::onnx::FunctionProto* AddFunction(::onnx::ModelProto* model, const std::string& name,
                                   std::vector<std::string> inputs,
                                   std::vector<std::string> outputs, const TestGraph& body) {
  if (model->opset_import_size() < 3) {
    auto* opset = model->add_opset_import();
    opset->set_domain(kDomain);
    opset->set_version(1);
  }
  auto* function = model->add_functions();
  function->set_domain(kDomain);
  function->set_name(name);
  for (std::string& input : inputs) function->add_input(std::move(input));
  for (std::string& output : outputs) function->add_output(std::move(output));
  *function->mutable_node() = body.proto.node();
  function->add_opset_import()->set_version(13);
  auto* opset = function->add_opset_import();
  opset->set_domain(kDomain);
  opset->set_version(1);
  return function;
}

std::string Message(const absl::Status& status) {
  return std::string(absl::string_view(status.message()));
}

class FunctionsTest : public testing::Test {
 protected:
  void Add(const TestModel& graph) { model_ = graph.Model(); }
  std::vector<float> Run(std::vector<float> x) {
    const auto n = static_cast<int64_t>(x.size());
    const auto y =
        Evaluate(ImportBytes(model_.SerializeAsString()), {Tensor::Of<float>(DType::kF32, {n}, x)});
    EXPECT_TRUE(y.ok()) << y.status();
    if (!y.ok()) return {};
    return {y->front().data<float>(), y->front().data<float>() + n};
  }

  ::onnx::ModelProto model_;
};

TEST_F(FunctionsTest, ACallIsItsBodyInPlace) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Node("Twice", {"x"}, {"t"}, {}, kDomain);
  m.Node("Twice", {"t"}, {"y"}, {}, kDomain).Output("y", Elem::kFloat);
  Add(m);
  TestGraph body;
  body.Node("Add", {"a", "a"}, {"r"});
  AddFunction(&model_, "Twice", {"a"}, {"r"}, body);
  EXPECT_EQ(Run({1, 2}), (std::vector<float>{4, 8}));
}

TEST_F(FunctionsTest, AttributesAreGivenOrDefaultOrAbsent) {
  TestGraph body;
  body.Node("LeakyRelu", {"a"}, {"r"}, {{"alpha", 0.f}});
  auto* alpha = body.proto.mutable_node(0)->mutable_attribute(0);
  alpha->clear_f();
  alpha->set_ref_attr_name("slope");
  const auto model = [&](std::map<std::string, TestAttr> attrs) {
    TestModel m(21);
    m.Input("x", Elem::kFloat, {2}).Node("F", {"x"}, {"y"}, attrs, kDomain);
    m.Output("y", Elem::kFloat);
    Add(m);
    return AddFunction(&model_, "F", {"a"}, {"r"}, body);
  };
  model({{"slope", 0.5f}})->add_attribute("slope");
  EXPECT_EQ(Run({-1, 2}), (std::vector<float>{-0.5, 2}));
  model({})->add_attribute("slope");  // LeakyRelu's own default, 0.01, applies
  EXPECT_EQ(Run({-1, 2}), (std::vector<float>{-0.01f, 2}));
  auto* standard = model({})->add_attribute_proto();
  standard->set_name("slope");
  standard->set_type(::onnx::AttributeProto::FLOAT);
  standard->set_f(0.25);
  EXPECT_EQ(Run({-1, 2}), (std::vector<float>{-0.25, 2}));
  model({{"other", 0.5f}})->add_attribute("slope");
  EXPECT_THAT(Message(ImportBytes(model_.SerializeAsString()).status),
              HasSubstr("has attribute \"other\", but function \"F\" has no such attribute"));
  model({{"slope", int64_t{1}}})->add_attribute("slope");
  EXPECT_THAT(Message(ImportBytes(model_.SerializeAsString()).status),
              HasSubstr("attribute \"alpha\" is of kind FLOAT, but attribute \"slope\""));
}

TEST_F(FunctionsTest, AnOmittedOperandIsOmittedInside) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Initializer("low", Tensor::Of<float>(DType::kF32, {}, {0}));
  m.Node("F", {"x", "low"}, {"y"}, {}, kDomain).Output("y", Elem::kFloat);
  Add(m);
  TestGraph body;
  body.Node("Clip", {"a", "min", "max"}, {"r"});
  AddFunction(&model_, "F", {"a", "min", "max"}, {"r"}, body);
  EXPECT_EQ(Run({-1, 2}), (std::vector<float>{0, 2}));
}

TEST_F(FunctionsTest, RefusalsInsideNameThePath) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Node("Outer", {"x"}, {"y"}, {}, kDomain);
  m.Output("y", Elem::kFloat);
  Add(m);
  TestGraph outer, inner;
  outer.Node("Inner", {"a"}, {"r"}, {}, kDomain);
  inner.Node("NonZero", {"a"}, {"r"});
  AddFunction(&model_, "Outer", {"a"}, {"r"}, outer);
  AddFunction(&model_, "Inner", {"a"}, {"r"}, inner);
  const TestImport import = ImportBytes(model_.SerializeAsString());
  ASSERT_EQ(import.refusals.size(), 1u);
  EXPECT_EQ(import.refusals[0].node, "y/r/r");
  EXPECT_EQ(import.refusals[0].op, "NonZero");
}

TEST_F(FunctionsTest, NestingHasALimit) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Node("F0", {"x"}, {"y"}, {}, kDomain).Output("y", Elem::kFloat);
  Add(m);
  for (int i = 0; i < 20; ++i) {
    TestGraph body;
    if (i < 19) {
      body.Node("F" + std::to_string(i + 1), {"a"}, {"r"}, {}, kDomain);
    } else {
      body.Node("Exp", {"a"}, {"r"});
    }
    AddFunction(&model_, "F" + std::to_string(i), {"a"}, {"r"}, body);
  }
  EXPECT_THAT(Message(ImportBytes(model_.SerializeAsString()).status),
              HasSubstr("nested deeper than 16"));
}

// Each call copies the nodes that refer to its attributes, with their sub-graphs.
TEST_F(FunctionsTest, CopiesForCallsAreCounted) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2});
  std::string before = "x";
  for (int i = 0; i < 8; ++i) {
    const std::string after = "y" + std::to_string(i);
    m.Node("F", {before}, {after}, {{"slope", 0.5F}}, kDomain);
    before = after;
  }
  m.Output(before, Elem::kFloat);
  Add(m);
  TestGraph body;
  body.Node("LeakyRelu", {"a"}, {"r"}, {{"alpha", 0.0F}});
  auto* function = AddFunction(&model_, "F", {"a"}, {"r"}, body);
  function->add_attribute("slope");
  auto* node = function->mutable_node(0);
  node->mutable_attribute(0)->set_ref_attr_name("slope");
  node->set_doc_string(std::string(100'000, 'd'));  // not copied
  ImportOptions options;
  options.limits.max_copied_bytes = 1'000;
  EXPECT_TRUE(ImportBytes(model_.SerializeAsString(), options).status.ok());
  options.limits.max_copied_bytes = 100;
  const absl::Status status = ImportBytes(model_.SerializeAsString(), options).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("copies of more than 100 bytes"));
  EXPECT_THAT(Message(status), HasSubstr("--max_graph_bytes"));
}

TEST_F(FunctionsTest, WhatIsLookedAtIsCountedEachTime) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2});
  for (int i = 0; i < 8; ++i) m.Node("F", {"x"}, {"y" + std::to_string(i)}, {}, kDomain);
  m.Output("y0", Elem::kFloat);
  Add(m);
  TestGraph body;
  body.Node("Sum", std::vector<std::string>(200, "a"), {"r"});
  AddFunction(&model_, "F", {"a"}, {"r"}, body);
  ImportOptions options;
  options.limits.max_inlined_nodes = 40;
  EXPECT_TRUE(ImportBytes(model_.SerializeAsString(), options).status.ok());
  options.limits.max_inlined_nodes = 20;
  const absl::Status status = ImportBytes(model_.SerializeAsString(), options).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("more than 1280 operands, results, attributes"));
}

}  // namespace
}  // namespace athanor::onnx
