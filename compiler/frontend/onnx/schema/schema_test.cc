#include "compiler/frontend/onnx/schema/schema.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

::onnx::NodeProto Node(std::string op, std::vector<std::string> inputs,
                       std::vector<std::string> outputs) {
  ::onnx::NodeProto node;
  node.set_op_type(std::move(op));
  for (std::string& input : inputs) node.add_input(std::move(input));
  for (std::string& output : outputs) node.add_output(std::move(output));
  return node;
}

::onnx::AttributeProto* AddAttr(::onnx::NodeProto* node, std::string name,
                                ::onnx::AttributeProto::AttributeType type) {
  auto* attr = node->add_attribute();
  attr->set_name(std::move(name));
  attr->set_type(type);
  return attr;
}

std::string Checked(const ::onnx::NodeProto& node, int64_t opset, std::vector<Elem> elems) {
  const SchemaRow* schema = FindSchema("", node.op_type(), opset);
  if (schema == nullptr) return "no schema";
  std::vector<Value> values(node.input_size());
  std::vector<const Value*> operands;
  for (int i = 0; i < node.input_size(); ++i) {
    if (static_cast<size_t>(i) < elems.size()) values[i].elem = elems[i];
    operands.push_back(node.input(i).empty() ? nullptr : &values[i]);
  }
  return std::string(absl::string_view(CheckNode(*schema, node, operands).message()));
}

TEST(SchemaTest, FindsTheNewestOfAtMostTheOpset) {
  EXPECT_EQ(FindSchema("", "Softmax", 12)->since, 11);
  EXPECT_EQ(FindSchema("", "Softmax", 13)->since, 13);
  EXPECT_EQ(FindSchema("", "Softmax", 28)->since, 13);
  EXPECT_EQ(FindSchema("", "Softmax", 1)->since, 1);
  EXPECT_EQ(FindSchema("", "Gelu", 19), nullptr);
  EXPECT_EQ(FindSchema("", "NoSuchOp", 28), nullptr);
  EXPECT_EQ(FindSchema("com.microsoft", "Softmax", 1), nullptr);
  EXPECT_EQ(FindSchema("com.microsoft", "FastGelu", 1)->min_inputs, 1);
}

TEST(SchemaTest, KnowsOperandsAndDefaults) {
  const SchemaRow& clip = *FindSchema("", "Clip", 13);
  ASSERT_EQ(clip.inputs.size(), 3u);
  EXPECT_FALSE(clip.inputs[0].optional);
  EXPECT_TRUE(clip.inputs[1].optional);
  EXPECT_EQ(clip.inputs[0].same_as, clip.inputs[2].same_as);
  const SchemaRow& lstm = *FindSchema("", "LSTM", 14);
  bool found = false;
  for (const SchemaAttr& attr : lstm.attrs) {
    if (attr.name == "direction") found = attr.otherwise == "forward" && !attr.required;
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(FindSchema("", "Upsample", 10)->deprecated);
}

TEST(SchemaTest, TakesWhatIsRight) {
  EXPECT_EQ(Checked(Node("Add", {"a", "b"}, {"y"}), 14, {Elem::kInt64, Elem::kInt64}), "");
  EXPECT_EQ(Checked(Node("Clip", {"x", "", "max"}, {"y"}), 13, {}), "");
  EXPECT_EQ(Checked(Node("Concat", {"a", "b", "c"}, {"y"}), 4, {}),
            "has no attribute \"axis\", which Concat-4 needs");
  EXPECT_EQ(Checked(Node("Where", {"c", "a", "b"}, {"y"}), 16,
                    {Elem::kBool, Elem::kDouble, Elem::kDouble}),
            "");
}

TEST(SchemaTest, SaysWhatIsWrong) {
  EXPECT_EQ(Checked(Node("Add", {"a"}, {"y"}), 14, {}), "has 1 operands; Add-14 takes 2");
  EXPECT_EQ(Checked(Node("Add", {"a", "b"}, {"y", "z"}), 14, {}), "has 2 results; Add-14 gives 1");
  EXPECT_EQ(Checked(Node("Add", {"", "b"}, {"y"}), 14, {}),
            "operand 0 (A) is left out; Add-14 needs it");
  EXPECT_EQ(Checked(Node("Max", {"", "b"}, {"y"}), 13, {}),
            "operand 0 (data_0) is left out; Max-13 needs it");
  EXPECT_EQ(Checked(Node("Concat", {"a", ""}, {"y"}), 13, {}),
            "operand 1 (inputs) is left out; Concat-13 needs it");
  EXPECT_EQ(Checked(Node("Add", {"a", "b"}, {"y"}), 14, {Elem::kFloat, Elem::kInt64}),
            "operand 1 (B) is of type int64, operand 0 of float; Add-14 needs one type for both, "
            "so a Cast before it");
  EXPECT_EQ(Checked(Node("Sqrt", {"x"}, {"y"}), 13, {Elem::kInt32}),
            "operand 0 (X) is of type int32; Sqrt-13 takes float, float16, double, bfloat16");
  EXPECT_EQ(Checked(Node("Upsample", {"x", "s"}, {"y"}), 10, {}),
            "the op was removed in version 10 of its domain; convert the model or import an "
            "older opset");
}

TEST(SchemaTest, TypesOfAnOldVersionAreTheVersions) {
  // Add takes integers since opset 7.
  EXPECT_NE(Checked(Node("Add", {"a", "b"}, {"y"}), 6, {Elem::kInt8, Elem::kInt8}), "");
  EXPECT_EQ(Checked(Node("Add", {"a", "b"}, {"y"}), 14, {Elem::kInt8, Elem::kInt8}), "");
}

TEST(SchemaTest, HoldsAttributesAgainstTheSchema) {
  ::onnx::NodeProto node = Node("LeakyRelu", {"x"}, {"y"});
  AddAttr(&node, "alpha", ::onnx::AttributeProto::FLOAT);
  EXPECT_EQ(Checked(node, 16, {}), "");
  node.mutable_attribute(0)->set_type(::onnx::AttributeProto::INT);
  EXPECT_EQ(Checked(node, 16, {}), "attribute \"alpha\" is of kind INT; LeakyRelu-16 takes FLOAT");
  node.mutable_attribute(0)->set_type(::onnx::AttributeProto::FLOAT);
  AddAttr(&node, "alpha", ::onnx::AttributeProto::FLOAT);
  EXPECT_EQ(Checked(node, 16, {}), "has attribute \"alpha\" twice; give it once");
  node.mutable_attribute(1)->set_name("beta");
  EXPECT_EQ(Checked(node, 16, {}),
            "has attribute \"beta\", which LeakyRelu-16 has not; it takes alpha");
}

TEST(SchemaTest, ATypeThatIsNotKnownIsNotChecked) {
  const ::onnx::NodeProto node = Node("Add", {"a", "b"}, {"y"});
  Value a, b;
  a.elem = Elem::kFloat;
  b.elem = Elem::kInt64;
  b.poisoned = true;
  EXPECT_TRUE(CheckNode(*FindSchema("", "Add", 14), node, {&a, &b}).ok());
}

}  // namespace
}  // namespace athanor::onnx
