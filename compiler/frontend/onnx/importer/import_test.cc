#include "compiler/frontend/onnx/importer/import.h"

#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Tensor F32(std::vector<int64_t> shape, std::vector<float> values) {
  return Tensor::Of<float>(DType::kF32, std::move(shape), values);
}
Tensor I64(std::vector<int64_t> shape, std::vector<int64_t> values) {
  return Tensor::Of<int64_t>(DType::kI64, std::move(shape), values);
}
std::vector<float> Values(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.elements()};
}
std::vector<int64_t> Integers(const Tensor& t) {
  return {t.data<int64_t>(), t.data<int64_t>() + t.elements()};
}
std::string Message(const absl::Status& status) {
  return std::string(absl::string_view(status.message()));
}
std::string Refusals(const TestImport& import) {
  std::string text;
  for (const ImportRefusal& r : import.refusals) {
    text += r.node + " " + r.op + "-" + std::to_string(r.version) + ": " + r.reason + "\n";
  }
  return text;
}
ImportOptions WithBatch() {
  ImportOptions options;
  options.dims = {{.name = "b", .min = 1, .max = 8}};
  return options;
}

TEST(ImportTest, NodesBecomeAGraph) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {"b", 2}).Initializer("w", F32({2}, {10, 20}));
  m.Node("Add", {"x", "w"}, {"sum"}).Node("Relu", {"sum"}, {"y"}).Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes(), WithBatch());
  ASSERT_TRUE(import.status.ok()) << import.status;
  EXPECT_EQ(import.imported.graph.dims, (std::vector<Dim>{{"b", 1, 8}}));
  const auto y = Evaluate(import, {F32({2, 2}, {1, 2, -30, -40})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(Values(y->front()), (std::vector<float>{11, 22, 0, 0}));
  EXPECT_EQ(import.imported.graph.outputs[0].name, "y");
}

TEST(ImportTest, NodesKeepTheNamesOfTheirResults) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Node("Exp", {"x"}, {"a\nb"}).Node("Log", {"a\nb"}, {"y"});
  m.Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_TRUE(import.status.ok()) << import.status;
  std::vector<std::string> names;
  for (const Node& node : import.imported.graph.nodes) names.push_back(node.name);
  EXPECT_THAT(names, testing::Contains("a_b"));
  EXPECT_THAT(names, testing::Contains("y"));
}

TEST(ImportTest, NodesThatNothingNeedsGo) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Initializer("w", F32({128}, std::vector<float>(128, 1)));
  m.Node("Exp", {"x"}, {"unused"}).Node("Exp", {"w"}, {"too"}).Node("Log", {"x"}, {"y"});
  m.Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_TRUE(import.status.ok()) << import.status;
  EXPECT_EQ(import.imported.graph.nodes.size(), 2u);
  EXPECT_TRUE(import.imported.parameters.empty());
}

TEST(ImportTest, LargeInitialisersAreParameters) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {100}).Initializer("w", F32({100}, std::vector<float>(100, 2)));
  m.Initializer("scale", F32({}, {3}));
  m.Node("Mul", {"x", "w"}, {"p"}).Node("Mul", {"p", "scale"}, {"y"}).Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_TRUE(import.status.ok()) << import.status;
  const Graph& graph = import.imported.graph;
  ASSERT_EQ(graph.ParameterIds().size(), 1u);
  EXPECT_EQ(graph.node(graph.ParameterIds()[0]).name, "w");
  EXPECT_EQ(import.imported.parameters[0].name, "w");
  const auto y = Evaluate(import, {F32({100}, std::vector<float>(100, 5))});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(Values((*y)[0])[99], 30);
}

TEST(ImportTest, AnInputWithAnInitialiserIsAWeight) {
  TestModel m(9);
  m.Input("x", Elem::kFloat, {1}).Input("w", Elem::kFloat, {1}).Initializer("w", F32({1}, {4}));
  m.Node("Mul", {"x", "w"}, {"y"}).Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_TRUE(import.status.ok()) << import.status;
  EXPECT_EQ(import.imported.graph.InputIds().size(), 1u);
  ASSERT_EQ(import.imported.notes.size(), 1u);
  EXPECT_THAT(import.imported.notes[0], HasSubstr("input w has an initializer"));
}

TEST(ImportTest, AllRefusalsAreCollected) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2});
  m.Node("NonZero", {"x"}, {"a"}).Node("Sqrt", {"a"}, {"b"});
  m.Node("NoSuchOp", {"b"}, {"c"}).Node("Exp", {"c", "x"}, {"d"}).Node("Exp", {"x"}, {"fine"});
  m.Node("Relu", {"c"}, {"e"}, {{"slope", int64_t{1}}}).Output("e", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes());
  EXPECT_EQ(Refusals(import),
            "a NonZero-13: its X depends on the value of input \"x\", which only requests carry; "
            "give it at upload, values={\"x\": ...}\n"
            "c NoSuchOp-0: opset 21 of \"ai.onnx\" has no such op\n"
            "d Exp-13: has 2 operands; Exp-13 takes 1\n"
            "e Relu-14: has attribute \"slope\", which Relu-14 has not; it takes none\n");
  EXPECT_EQ(import.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(import.status), HasSubstr("4 refusals: NonZero-13 (\"a\"): its X"));
}

TEST(ImportTest, WhatIsInsideARefusedNodeIsCheckedToo) {
  TestGraph body;
  body.Node("SequenceEmpty", {}, {"s"}).Node("Exp", {"x"}, {"z"}).Output("z", Elem::kFloat);
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Node("NonZero", {"x"}, {"n"});
  m.Node("If", {"n"}, {"y"}, {{"then_branch", body.proto}, {"else_branch", body.proto}});
  m.Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes());
  EXPECT_THAT(Refusals(import), HasSubstr("y/then_branch/s SequenceEmpty-11"));
  EXPECT_THAT(Refusals(import), HasSubstr("y/else_branch/s SequenceEmpty-11"));
}

TEST(ImportTest, StatusNamesEveryGroupWithinItsBytes) {
  std::vector<ImportRefusal> refusals;
  for (int i = 0; i < 100; ++i) {
    refusals.push_back({.node = "n" + std::to_string(i),
                        .op = "NonZero",
                        .version = 13,
                        .reason = "how many results it has depends on data"});
    refusals.push_back({.node = "m" + std::to_string(i),
                        .domain = "x.y",
                        .op = "Foo",
                        .reason = std::string(1000, 'r')});
  }
  EXPECT_EQ(ToStatus(refusals, 2048).code(), absl::StatusCode::kUnimplemented);
  for (size_t bytes : {100, 300, 2048}) {
    const std::string text = Message(ToStatus(refusals, bytes));
    EXPECT_LE(text.size(), bytes);
    EXPECT_THAT(text, HasSubstr("200 refusals of 2 kinds: NonZero-13"));
    EXPECT_THAT(text, HasSubstr("x.y.Foo"));
  }
  EXPECT_THAT(Message(ToStatus(refusals, 2048)), HasSubstr("\"n7\" and 92 more"));
  refusals[3].code = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(ToStatus(refusals, 2048).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ToStatus({}, 2048).ok());
}

TEST(ImportTest, RefusalsBeyondTheLimitAreCounted) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2});
  for (int i = 0; i < 5; ++i) m.Node("NonZero", {"x"}, {"n" + std::to_string(i)});
  m.Output("n0", Elem::kInt64);
  ImportOptions options;
  options.limits.max_refusals = 3;
  const TestImport import = ImportBytes(m.Bytes(), options);
  ASSERT_EQ(import.refusals.size(), 3u);
  EXPECT_EQ(import.refusals[2].reason, "3 more refusals are not listed");
}

// Finding a hint about dims takes long, so a file with many such nodes gets only a few hints.
TEST(ImportTest, HintsOfAllRefusalsTogetherAreBounded) {
  TestModel m(13);
  m.Input("x", Elem::kFloat, {"h"});
  constexpr int kParts = 60;
  for (int i = 0; i < 3'000; ++i) {
    std::vector<std::string> parts(2 + i % kParts, std::to_string(i) + "_");
    for (size_t p = 0; p < parts.size(); ++p) parts[p] += std::to_string(p);
    m.Node("Split", {"x"}, parts);
  }
  m.Output("0_0", Elem::kFloat);
  ImportOptions options;
  options.dims = {{.name = "h", .min = 1, .max = 1 << 20}};
  options.limits.max_refusals = 3'000;
  const TestImport import = ImportBytes(m.Bytes(), options);
  ASSERT_EQ(import.refusals.size(), 3'000u);
  int hints = 0;
  for (int i = 0; i < 3'000; ++i) {
    const std::string& reason = import.refusals[i].reason;
    EXPECT_THAT(reason, HasSubstr("axis 0 of size h does not divide into"));
    // A repeated pair gets the same hint again.
    if (i >= kParts) EXPECT_EQ(reason, import.refusals[i % kParts].reason);
    hints += static_cast<int>(i < kParts && reason.find("dims={") != std::string::npos);
  }
  EXPECT_THAT(import.refusals[0].reason, HasSubstr("multiples of 2: give dims={\"h\": \"2*h2\""));
  EXPECT_GT(hints, 20);
  EXPECT_LT(hints, kParts);
}

TEST(ImportTest, LongReasonsAreShortened) {
  TestModel m(21);
  std::vector<TestSize> x, y;
  ImportOptions options;
  for (char c = 'a'; c < 'g'; ++c) {
    const std::string name(1000, c);
    (c < 'd' ? x : y).push_back(name);
    options.dims.push_back({.name = name, .min = 1, .max = 8});
  }
  m.Input("x", Elem::kFloat, x).Input("y", Elem::kFloat, y).Node("Add", {"x", "y"}, {"z"});
  m.Output("z", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes(), options);
  ASSERT_EQ(import.refusals.size(), 1u);
  EXPECT_EQ(import.refusals[0].reason.size(), 2048u + 3u);
}

// Wrong shapes only give a note, since other tools only warn about them.
TEST(ImportTest, AWrongShapeIsNotedAWrongTypeRefused) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2, 3}).Node("Exp", {"x"}, {"h"}).Node("Neg", {"h"}, {"y"});
  m.Output("y", Elem::kFloat, {2, 4});
  *m.proto.add_value_info() = TestGraph().Output("h", Elem::kFloat, {6}).proto.output(0);
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_TRUE(import.status.ok()) << import.status;
  EXPECT_THAT(
      import.imported.notes,
      ElementsAre("output \"y\" has shape [2, 3], which holds; the file states [2, 4]: axis 1 is "
                  "wrong",
                  "value \"h\" has shape [2, 3], which holds; the file states [6]: its rank is "
                  "wrong"));
  const Graph& graph = import.imported.graph;
  EXPECT_EQ(ShapeToString(graph.node(graph.outputs[0].node).type.shape), "[2, 3]");
  TestModel n(21);
  n.Input("x", Elem::kFloat, {2, 3}).Node("Exp", {"x"}, {"y"}).Output("y", Elem::kDouble);
  EXPECT_THAT(Message(ImportBytes(n.Bytes()).status),
              HasSubstr("output \"y\" is stated to be of type double, but is of float"));
}

TEST(ImportTest, WrongShapesOfOutputsAreNotLostAmongOthers) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2});
  constexpr int kNodes = 1200;
  for (int i = 0; i < kNodes; ++i) {
    const std::string name = "v" + std::to_string(i);
    m.Node("Exp", {i == 0 ? "x" : "v" + std::to_string(i - 1)}, {name});
    *m.proto.add_value_info() = TestGraph().Output(name, Elem::kFloat, {3}).proto.output(0);
  }
  m.Node("Exp", {"v7"}, {"y"}).Node("Exp", {"v8"}, {"z"});
  m.Output("y", Elem::kFloat, {4}).Output("z", Elem::kFloat, {5});
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_TRUE(import.status.ok()) << import.status;
  const std::vector<std::string>& notes = import.imported.notes;
  ASSERT_EQ(notes.size(), 17u);
  EXPECT_THAT(notes[0], HasSubstr("output \"y\" has shape [2], which holds; the file states [4]"));
  EXPECT_THAT(notes[1], HasSubstr("output \"z\" has shape [2], which holds; the file states [5]"));
  EXPECT_EQ(notes[16], "and 1186 more notes");
}

TEST(ImportTest, WhatIsStatedAtLengthIsShortened) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Node("Exp", {"x"}, {"y"});
  m.Output("y", Elem::kFloat, std::vector<TestSize>(200, std::string(1000, 'n')));
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_TRUE(import.status.ok()) << import.status;
  ASSERT_EQ(import.imported.notes.size(), 1u);
  EXPECT_LT(import.imported.notes[0].size(), 8'000u);
  EXPECT_THAT(import.imported.notes[0], HasSubstr(", ...]: its rank is wrong"));
}

TEST(ImportTest, ClaimsOfWhatNoNodeMakesAreCheckedToo) {
  // An initializer that is also listed as an input, with another type or shape.
  TestModel weight(21);
  weight.Input("x", Elem::kFloat, {2}).Initializer("w", F32({2}, {1, 2}));
  weight.Node("Add", {"x", "w"}, {"y"}).Output("y", Elem::kFloat);
  TestModel typed = weight, shaped = weight, right = weight;
  typed.Input("w", Elem::kInt64, {2});
  shaped.Input("w", Elem::kFloat, {5});
  right.Input("w", Elem::kFloat, {2});
  EXPECT_THAT(Message(ImportBytes(typed.Bytes()).status),
              HasSubstr("input \"w\" is stated to be of type int64, but is of float"));
  const TestImport noted = ImportBytes(shaped.Bytes());
  EXPECT_TRUE(noted.status.ok()) << noted.status;
  EXPECT_THAT(noted.imported.notes,
              Contains(HasSubstr("input \"w\" has shape [2], which holds; the file states [5]")));
  EXPECT_TRUE(ImportBytes(right.Bytes()).status.ok());
  // An input that is also an output.
  TestModel same(21);
  same.Input("x", Elem::kFloat, {2}).Output("x", Elem::kInt64);
  EXPECT_THAT(Message(ImportBytes(same.Bytes()).status), HasSubstr("output \"x\" is stated"));
  // The second of two claims is wrong.
  TestModel two(21);
  two.Input("x", Elem::kFloat, {2}).Node("Exp", {"x"}, {"y"}).Output("y", Elem::kFloat, {3});
  *two.proto.add_value_info() = TestGraph().Output("y", Elem::kFloat, {2}).proto.output(0);
  EXPECT_THAT(
      ImportBytes(two.Bytes()).imported.notes,
      ElementsAre(HasSubstr("output \"y\" has shape [2], which holds; the file states [3]")));
}

TEST(ImportTest, ClaimsOfSubGraphsAreChecked) {
  TestImport import;
  const auto loop = [&](Elem carried, Elem result, int64_t size = 2) {
    TestGraph body;
    body.Input("i", Elem::kInt64, {}).Input("c", Elem::kBool, {}).Input("v", carried, {size});
    body.Node("Identity", {"c"}, {"go"}).Node("Exp", {"v"}, {"w"});
    body.Output("go", Elem::kBool).Output("w", Elem::kFloat).Output("x", result);
    TestModel m(21);
    m.Input("x", Elem::kFloat, {2}).Initializer("n", I64({}, {2}));
    m.Node("Loop", {"n", "", "x"}, {"y", "all"}, {{"body", body.proto}});
    m.Output("y", Elem::kFloat).Output("all", Elem::kFloat);
    import = ImportBytes(m.Bytes());
    return Message(import.status);
  };
  EXPECT_EQ(loop(Elem::kFloat, Elem::kFloat), "");
  EXPECT_THAT(import.imported.notes, IsEmpty());
  EXPECT_EQ(loop(Elem::kFloat, Elem::kFloat, 3), "");
  EXPECT_THAT(import.imported.notes,
              Contains(HasSubstr("v\" has shape [2], which holds; the file states [3]")));
  EXPECT_THAT(loop(Elem::kDouble, Elem::kFloat),
              HasSubstr("v\" is stated to be of type double, but is of float"));
  EXPECT_THAT(loop(Elem::kFloat, Elem::kInt64),
              HasSubstr("x\" is stated to be of type int64, but is of float"));
}

TEST(ImportTest, DomainsAndVersionsAreNamed) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Node("Foo", {"x"}, {"y"}, {}, "my.domain");
  m.Output("y", Elem::kFloat);
  EXPECT_THAT(Message(ImportBytes(m.Bytes()).status),
              HasSubstr("domain \"my.domain\" is not among the model's opset_import"));
  ::onnx::ModelProto model = m.Model();
  auto* opset = model.add_opset_import();
  opset->set_domain("my.domain");
  opset->set_version(1);
  const TestImport import = ImportBytes(model.SerializeAsString());
  EXPECT_THAT(Message(import.status), HasSubstr("domain \"my.domain\" is not supported"));
  EXPECT_EQ(import.status.code(), absl::StatusCode::kUnimplemented);
}

TEST(ImportTest, OldOpsThatChangedAreRefused) {
  TestModel m(1);
  m.Input("x", Elem::kFloat, {2}).Node("Abs", {"x"}, {"y"}).Output("y", Elem::kFloat);
  EXPECT_THAT(Message(ImportBytes(m.Bytes()).status), HasSubstr("opset 1 is older"));
}

TEST(ImportTest, APinnedInputIsKnownAndStays) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2, 3}).Input("axes", Elem::kInt64, {1});
  m.Node("ReduceSum", {"x", "axes"}, {"y"}, {{"keepdims", int64_t{0}}}).Output("y", Elem::kFloat);
  const TestImport open = ImportBytes(m.Bytes());
  ASSERT_EQ(open.refusals.size(), 1u);
  EXPECT_EQ(open.refusals[0].inputs, std::vector<std::string>{"axes"});
  EXPECT_EQ(open.refusals[0].code, absl::StatusCode::kUnimplemented);
  EXPECT_THAT(open.refusals[0].reason, HasSubstr("values={\"axes\": ...}"));
  ImportOptions options;
  options.values.emplace("axes", I64({1}, {1}));
  const TestImport import = ImportBytes(m.Bytes(), options);
  ASSERT_TRUE(import.status.ok()) << import.status;
  const Graph& graph = import.imported.graph;
  ASSERT_EQ(graph.InputIds().size(), 2u);
  EXPECT_EQ(GetAttr<Tensor>(graph.node(graph.InputIds()[1]).attrs, "value"), I64({1}, {1}));
  const auto y = Evaluate(import, {F32({2, 3}, {1, 2, 3, 4, 5, 6}), I64({1}, {1})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(Values(y->front()), (std::vector<float>{6, 15}));
}

TEST(ImportTest, PinnedValuesMustFit) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Node("Exp", {"x"}, {"y"}).Output("y", Elem::kFloat);
  const auto message = [&](const std::string& name, Tensor value) {
    ImportOptions options;
    options.values.emplace(name, std::move(value));
    return Message(ImportBytes(m.Bytes(), options).status);
  };
  EXPECT_THAT(message("z", F32({2}, {1, 2})),
              HasSubstr("input \"z\", but the model has no such input"));
  EXPECT_THAT(message("x", I64({2}, {1, 2})), HasSubstr("given as i64; it must be f32"));
  EXPECT_THAT(message("x", F32({1}, {1})), HasSubstr("given with shape [1], but its shape is [2]"));
  EXPECT_EQ(message("x", F32({2}, {1, 2})), "");
}

TEST(ImportTest, OddElementTypesTravelInCarriers) {
  TestModel m(21);
  m.Input("x", Elem::kFloat8E4M3FN, {2}).Input("n", Elem::kInt4, {2});
  m.Node("Cast", {"x"}, {"y"}, {{"to", int64_t{1}}});
  m.Node("Cast", {"y"}, {"z"}, {{"to", int64_t{17}}})
      .Node("Cast", {"n"}, {"k"}, {{"to", int64_t{7}}});
  m.Output("y", Elem::kFloat).Output("z", Elem::kFloat8E4M3FN).Output("k", Elem::kInt64);
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_TRUE(import.status.ok()) << import.status;
  EXPECT_EQ(import.imported.input_elements, (std::vector<std::string>{"float8e4m3fn", "int4"}));
  EXPECT_EQ(import.imported.output_elements, (std::vector<std::string>{"", "float8e4m3fn", ""}));
  const Tensor codes = Tensor::Of<uint8_t>(DType::kU8, {2}, {0x38, 0xC0});  // 1, -2
  const auto y = Evaluate(import, {codes, Tensor::Of<int8_t>(DType::kI8, {2}, {-8, 7})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(Values((*y)[0]), (std::vector<float>{1, -2}));
  EXPECT_EQ((*y)[1], codes);
  EXPECT_EQ(Integers((*y)[2]), (std::vector<int64_t>{-8, 7}));
}

TEST(ImportTest, StringsAndSequencesAreRefusedByTheirInputs) {
  TestModel m(21);
  m.Input("s", Elem::kString, {2}).Input("x", Elem::kFloat, {2});
  m.proto.add_input()->set_name("q");
  m.proto.mutable_input(2)->mutable_type()->mutable_sequence_type();
  m.Node("Exp", {"x"}, {"y"}).Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes());
  EXPECT_EQ(import.status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Refusals(import), HasSubstr("input \"s\" is of type string, which is not supported"));
  EXPECT_THAT(Refusals(import), HasSubstr("input \"q\" is a sequence; only tensors are supported"));
}

TEST(ImportTest, OutputsMayBeInputsConstantsAndTwice) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2}).Initializer("c", F32({2}, {7, 8}));
  m.Node("Identity", {"x"}, {"same"});
  m.Output("x", Elem::kFloat).Output("c", Elem::kFloat).Output("same", Elem::kFloat);
  const auto y = RunModel(m, {F32({2}, {1, 2})});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(Values((*y)[0]), (std::vector<float>{1, 2}));
  EXPECT_EQ(Values((*y)[1]), (std::vector<float>{7, 8}));
  EXPECT_EQ(Values((*y)[2]), (std::vector<float>{1, 2}));
  m.Output("x", Elem::kFloat);
  EXPECT_THAT(Message(ImportBytes(m.Bytes()).status), HasSubstr("output \"x\" is there twice"));
}

// Contents as expressions take about two hundred times the memory of the file's bytes.
TEST(ImportTest, WhatIsKnownOfContentsIsBounded) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {"b", 2}).Initializer("v0", I64({2}, {3, 2}));
  constexpr int kDoublings = 10, kSums = 20;
  for (int i = 0; i < kDoublings; ++i) {
    const std::string from = "v" + std::to_string(i);
    m.Node("Concat", {from, from}, {"v" + std::to_string(i + 1)}, {{"axis", int64_t{0}}});
  }
  const std::string all = "v" + std::to_string(kDoublings);
  for (int i = 0; i < kSums; ++i) {
    m.Node("Add", {i == 0 ? all : "s" + std::to_string(i - 1), all}, {"s" + std::to_string(i)});
  }
  m.Output("s" + std::to_string(kSums - 1), Elem::kInt64);
  // Shapes are still followed.
  m.Node("Shape", {"x"}, {"shape"}).Node("Reshape", {"x", "shape"}, {"y"});
  m.Output("y", Elem::kFloat, {"b", 2});
  ImportOptions options = WithBatch();
  for (const int64_t limit : {int64_t{1} << 18, int64_t{1} << 12}) {
    options.limits.max_known_elements = limit;
    const TestImport import = ImportBytes(m.Bytes(), options);
    ASSERT_TRUE(import.status.ok()) << import.status;
    const auto y = Evaluate(import, {F32({3, 2}, {1, 2, 3, 4, 5, 6})});
    ASSERT_TRUE(y.ok()) << y.status();
    const std::vector<int64_t> sums = Integers((*y)[0]);
    ASSERT_EQ(sums.size(), 2u << kDoublings);
    EXPECT_EQ(sums[0], 3 * (kSums + 1));
    EXPECT_EQ(sums[sums.size() - 1], 2 * (kSums + 1));
    EXPECT_EQ(Values((*y)[1]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
    // Above the limit, nodes compute the sums.
    const bool limited = limit < (int64_t{1} << 18);
    EXPECT_EQ(import.imported.graph.nodes.size() > kSums, limited);
  }
  options.limits.max_known_elements = 8;  // many small values may exceed the limit too
  const absl::Status status = ImportBytes(m.Bytes(), options).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status),
              HasSubstr("node \"v4\" (Concat): up to here the model computes constants and sizes"));
}

TEST(ImportTest, AnImportCanBeCancelled) {
  TestModel m(21);
  m.Input("x", Elem::kFloat, {2});
  std::string last = "x";
  for (int i = 0; i < 100; ++i) {
    const std::string next = "y" + std::to_string(i);
    m.Node("Exp", {last}, {next});
    last = next;
  }
  m.Output(last, Elem::kFloat);
  ImportOptions options;
  options.cancelled = [] { return true; };
  EXPECT_EQ(ImportBytes(m.Bytes(), options).status.code(), absl::StatusCode::kCancelled);
  options.cancelled = nullptr;
  options.limits.max_inlined_nodes = 50;
  EXPECT_EQ(ImportBytes(m.Bytes(), options).status.code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace athanor::onnx
