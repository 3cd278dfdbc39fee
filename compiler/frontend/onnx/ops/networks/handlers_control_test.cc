#include <cmath>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/ops/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using Ints = std::vector<int64_t>;

Tensor F32(std::vector<int64_t> shape, std::vector<double> values) {
  return Of(DType::kF32, std::move(shape), values);
}
Tensor I64(std::vector<int64_t> shape, std::vector<double> values) {
  return Of(DType::kI64, std::move(shape), values);
}
Tensor Bool(bool value) { return Of(DType::kBool, {}, {value ? 1.0 : 0.0}); }

std::vector<double> Numbers(const absl::StatusOr<std::vector<Tensor>>& results, size_t which = 0) {
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() && which < results->size() ? ValuesOf((*results)[which])
                                                 : std::vector<double>();
}

std::string RefusalOf(const TestModel& m, const ImportOptions& options = {}) {
  const TestImport import = ImportBytes(m.Bytes(), options);
  EXPECT_FALSE(import.status.ok());
  return std::string(import.status.message());
}

bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

::onnx::GraphProto Branch(const std::string& op, const std::string& operand,
                          const std::string& result) {
  TestGraph graph;
  graph.Node(op, {operand}, {result}).Output(result, Elem::kFloat);
  return graph.proto;
}

TestModel IfModel(const ::onnx::GraphProto& yes, const ::onnx::GraphProto& no) {
  TestModel m(17);
  m.Input("c", Elem::kBool, {}).Input("x", Elem::kFloat, {2});
  m.Node("If", {"c"}, {"y"}, {{"then_branch", yes}, {"else_branch", no}});
  m.Output("y", Elem::kFloat);
  return m;
}

TEST(IfTest, BothBranchesWhereOnlyDataTells) {
  const TestModel m = IfModel(Branch("Neg", "x", "a"), Branch("Abs", "x", "b"));
  EXPECT_EQ(Numbers(RunModel(m, {Bool(true), F32({2}, {1, -2})})), (std::vector<double>{-1, 2}));
  EXPECT_EQ(Numbers(RunModel(m, {Bool(false), F32({2}, {1, -2})})), (std::vector<double>{1, 2}));
}

TEST(IfTest, OneBranchWhereTheConditionIsKnown) {
  // The other branch could not be imported.
  const TestModel m = IfModel(Branch("Neg", "x", "a"), Branch("NoSuchOp", "x", "b"));
  ImportOptions options;
  options.values = {{"c", Bool(true)}};
  EXPECT_EQ(Numbers(RunModel(m, {Bool(true), F32({2}, {1, -2})}, options)),
            (std::vector<double>{-1, 2}));
  EXPECT_TRUE(Holds(RefusalOf(m), "NoSuchOp"));
}

TEST(IfTest, ShapesThatDifferAreRefusedWithTheInputThatWouldSettleIt) {
  TestGraph whole, part;
  whole.Node("Neg", {"x"}, {"a"}).Output("a", Elem::kFloat);
  part.Node("ReduceSum", {"x"}, {"b"}, {{"keepdims", 1}}).Output("b", Elem::kFloat);
  const TestModel m = IfModel(whole.proto, part.proto);
  const std::string text = RefusalOf(m);
  EXPECT_TRUE(Holds(text, "result \"y\" is float[2] or float[1]")) << text;
  EXPECT_TRUE(Holds(text, "values={\"c\"")) << text;
  EXPECT_EQ(ImportBytes(m.Bytes()).refusals[0].inputs, std::vector<std::string>{"c"});
}

TEST(IfTest, ABranchThatIsNotTakenRaisesNoErrors) {
  TestGraph yes;
  yes.Node("Gather", {"x", "i"}, {"a"}).Output("a", Elem::kFloat);
  TestGraph no;
  no.Node("ReduceSum", {"x"}, {"b"}, {{"keepdims", 0}}).Output("b", Elem::kFloat);
  TestModel m(17);
  m.Input("c", Elem::kBool, {}).Input("x", Elem::kFloat, {2}).Input("i", Elem::kInt64, {});
  m.Node("If", {"c"}, {"y"}, {{"then_branch", yes.proto}, {"else_branch", no.proto}});
  m.Output("y", Elem::kFloat);
  EXPECT_EQ(Numbers(RunModel(m, {Bool(false), F32({2}, {1, 2}), I64({}, {7})})),
            (std::vector<double>{3}));
  EXPECT_EQ(Numbers(RunModel(m, {Bool(true), F32({2}, {1, 2}), I64({}, {-1})})),
            (std::vector<double>{2}));
  EXPECT_FALSE(RunModel(m, {Bool(true), F32({2}, {1, 2}), I64({}, {7})}).ok());
}

// The body computes v = v + x, and the scan output v * i.
::onnx::GraphProto SumBody(const std::string& condition) {
  TestGraph body;
  body.Input("i", Elem::kInt64, {}).Input("going", Elem::kBool, {}).Input("v", Elem::kFloat, {2});
  body.Node("Add", {"v", "x"}, {"w"});
  body.Node("CastLike", {"i", "v"}, {"f"}).Node("Mul", {"w", "f"}, {"s"});
  if (condition == "going") {
    body.Node("Identity", {"going"}, {"on"});
  } else {  // ends when the sum is 5 or more
    body.Node("ReduceMax", {"w"}, {"m"}, {{"keepdims", 0}});
    body.Initializer("five", F32({}, {5})).Node("Less", {"m", "five"}, {"on"});
  }
  body.Output("on", Elem::kBool).Output("w", Elem::kFloat).Output("s", Elem::kFloat);
  return body.proto;
}

TestModel LoopModel(const std::string& condition, std::vector<std::string> operands,
                    bool with_scan = true) {
  TestModel m(17);
  m.Input("n", Elem::kInt64, {}).Input("c", Elem::kBool, {});
  m.Input("x", Elem::kFloat, {2}).Input("v0", Elem::kFloat, {2});
  std::vector<std::string> results = {"y"};
  if (with_scan) results.push_back("z");
  m.Node("Loop", operands, results, {{"body", SumBody(condition)}});
  m.Output("y", Elem::kFloat);
  if (with_scan) m.Output("z", Elem::kFloat);
  return m;
}

TEST(LoopTest, AKnownCountIsUnrolled) {
  const TestModel m = LoopModel("going", {"n", "", "v0"});
  for (const int64_t count : {0, 1, 3}) {
    ImportOptions options;
    options.values = {{"n", I64({}, {static_cast<double>(count)})}};
    const auto results = RunModel(
        m,
        {I64({}, {static_cast<double>(count)}), Bool(true), F32({2}, {1, 2}), F32({2}, {10, 20})},
        options);
    std::vector<double> sum = {10, 20}, scans;
    for (int64_t i = 0; i < count; ++i) {
      sum[0] += 1, sum[1] += 2;
      scans.push_back(sum[0] * i), scans.push_back(sum[1] * i);
    }
    EXPECT_EQ(Numbers(results, 0), sum);
    EXPECT_EQ(Numbers(results, 1), scans);
    EXPECT_EQ((*results)[1].shape, (Ints{count, 2}));
  }
}

TEST(LoopTest, WithoutBound) {
  EXPECT_TRUE(Holds(RefusalOf(LoopModel("going", {"", "", "v0"})), "a Loop without bound"));
  EXPECT_TRUE(Holds(RefusalOf(LoopModel("data", {"", "c", "v0"}, false)), "a Loop without bound"));
  const std::string text = RefusalOf(LoopModel("going", {"n", "", "v0"}));
  EXPECT_TRUE(Holds(text, "a Loop without bound: its trip count M")) << text;
  EXPECT_TRUE(Holds(text, "values={\"n\"")) << text;
  // A condition that is always true.
  ImportOptions options;
  options.values = {{"c", Bool(true)}};
  EXPECT_FALSE(
      ImportBytes(LoopModel("going", {"", "c", "v0"}, false).Bytes(), options).status.ok());
}

TEST(LoopTest, AStepsNumberMayBeAVector) {
  for (const double steps : {3.0, 6.0}) {  // the first is unrolled, the second a Scan
    TestGraph body;
    body.Input("i", Elem::kInt64, {1}).Input("c", Elem::kBool, {1}).Input("v", Elem::kFloat, {2});
    body.Node("Identity", {"c"}, {"go"}).Node("Cast", {"i"}, {"f"}, {{"to", int64_t{1}}});
    body.Node("Add", {"v", "f"}, {"w"}).Node("Identity", {"i"}, {"at"});
    body.Output("go", Elem::kBool).Output("w", Elem::kFloat).Output("at", Elem::kInt64);
    TestModel m(17);
    m.Input("x", Elem::kFloat, {2}).Initializer("n", I64({}, {steps}));
    m.Node("Loop", {"n", "", "x"}, {"y", "all"}, {{"body", body.proto}});
    m.Output("y", Elem::kFloat).Output("all", Elem::kInt64);
    const auto results = RunModel(m, {F32({2}, {1, 2})});
    ASSERT_TRUE(results.ok()) << results.status();
    const double sum = steps * (steps - 1) / 2;
    EXPECT_EQ(ValuesOf((*results)[0]), (std::vector<double>{1 + sum, 2 + sum}));
    EXPECT_EQ((*results)[1].shape, (Ints{static_cast<int64_t>(steps), 1}));
  }
}

TEST(LoopTest, ACountThatCannotBeUnrolledIsRefusedBeforeAnyStepIs) {
  ImportOptions options;
  options.values = {{"n", Tensor::Of<int64_t>(DType::kI64, {}, {int64_t{1} << 40})}};
  const std::string text = RefusalOf(LoopModel("going", {"n", "", "v0"}), options);
  EXPECT_TRUE(Holds(text,
                    "its trip count is 1099511627776; a loop that has to be unrolled has at "
                    "most 65536 steps"))
      << text;
}

TEST(LoopTest, AConditionThatOnlyDataTellsMasksTheRest) {
  const TestModel m = LoopModel("data", {"n", "c", "v0"}, false);
  ImportOptions options;
  options.values = {{"n", I64({}, {4})}};
  const auto run = [&](bool enter, double start) {
    return Numbers(
        RunModel(m, {I64({}, {4}), Bool(enter), F32({2}, {1, 2}), F32({2}, {0, start})}, options));
  };
  EXPECT_EQ(run(true, 0), (std::vector<double>{3, 6}));  // sums 2, 4, 6
  EXPECT_EQ(run(true, 10), (std::vector<double>{1, 12}));
  EXPECT_EQ(run(true, -10), (std::vector<double>{4, -2}));  // M ends the loop
  EXPECT_EQ(run(false, 0), (std::vector<double>{0, 0}));
  EXPECT_TRUE(Holds(RefusalOf(LoopModel("data", {"n", "c", "v0"}), options), "scan outputs"));
}

TEST(LoopTest, ACountOfDims) {
  TestModel m(17);
  m.Input("x", Elem::kFloat, {2}).Input("v0", Elem::kFloat, {2}).Input("rows", Elem::kFloat, {"r"});
  m.Node("Shape", {"rows"}, {"size"}).Node("Squeeze", {"size"}, {"n"});
  m.Node("Loop", {"n", "", "v0"}, {"y", "z"}, {{"body", SumBody("going")}});
  m.Output("y", Elem::kFloat).Output("z", Elem::kFloat);
  ImportOptions options;
  options.dims = {{.name = "r", .min = 0, .max = 4}};
  for (const int64_t rows : {0, 1, 3, 4}) {
    const auto results = RunModel(
        m, {F32({2}, {1, 2}), F32({2}, {0, 0}), Tensor::Zeros(DType::kF32, {rows})}, options);
    const double n = static_cast<double>(rows);
    EXPECT_EQ(Numbers(results, 0), (std::vector<double>{n, 2 * n}));
    EXPECT_EQ(Numbers(results, 1).size(), static_cast<size_t>(2 * rows));
    if (rows > 1) {
      EXPECT_EQ(Numbers(results, 1)[2], 2);
    }
  }
  // The import makes one Scan, for any number of steps.
  options.dims[0].max = 100'000;
  const TestImport import = ImportBytes(m.Bytes(), options);
  ASSERT_TRUE(import.status.ok()) << import.status;
  EXPECT_LT(import.imported.graph.nodes.size(), 20u);
  const auto many =
      RunModel(m, {F32({2}, {1, 2}), F32({2}, {0, 0}), Tensor::Zeros(DType::kF32, {700})}, options);
  EXPECT_EQ(Numbers(many, 0), (std::vector<double>{700, 1400}));
}

// A loop that must be unrolled, because a value grows with each step, is masked beyond its count.
TEST(LoopTest, WhatGrowsIsUnrolled) {
  TestGraph body;
  body.Input("i", Elem::kInt64, {}).Input("going", Elem::kBool, {}).Input("v", Elem::kFloat, {"k"});
  body.Node("Concat", {"v", "x"}, {"w"}, {{"axis", 0}}).Node("Identity", {"going"}, {"on"});
  body.Output("on", Elem::kBool).Output("w", Elem::kFloat);
  TestModel m(17);
  m.Input("x", Elem::kFloat, {2}).Initializer("n", I64({}, {6}));
  m.Node("Loop", {"n", "", "x"}, {"y"}, {{"body", body.proto}});
  m.Output("y", Elem::kFloat);
  EXPECT_EQ(Numbers(RunModel(m, {F32({2}, {1, 2})})).size(), 14u);
}

TEST(LoopTest, OneInsideAnotherIsAScanInsideAScan) {
  TestGraph inner;
  inner.Input("j", Elem::kInt64, {}).Input("g", Elem::kBool, {}).Input("u", Elem::kFloat, {2});
  inner.Node("Add", {"u", "x"}, {"u2"}).Node("Identity", {"g"}, {"g2"});
  inner.Output("g2", Elem::kBool).Output("u2", Elem::kFloat);
  TestGraph body;
  body.Input("i", Elem::kInt64, {}).Input("going", Elem::kBool, {}).Input("v", Elem::kFloat, {2});
  body.Node("Loop", {"n", "", "v"}, {"w"}, {{"body", inner.proto}});
  body.Node("Identity", {"going"}, {"on"});
  body.Output("on", Elem::kBool).Output("w", Elem::kFloat);
  TestModel m(17);
  m.Input("x", Elem::kFloat, {2}).Initializer("n", I64({}, {30}));
  m.Node("Loop", {"n", "", "x"}, {"y"}, {{"body", body.proto}});
  m.Output("y", Elem::kFloat);
  const TestImport import = ImportBytes(m.Bytes(), {});
  ASSERT_TRUE(import.status.ok()) << import.status;
  EXPECT_LT(import.imported.graph.nodes.size(), 10u);
  EXPECT_EQ(Numbers(RunModel(m, {F32({2}, {1, 2})})), (std::vector<double>{901, 1802}));
}

TEST(ScanTest, DirectionsAndAxes) {
  TestGraph body;
  body.Input("u", Elem::kFloat, {2}).Input("e", Elem::kFloat, {2});
  body.Node("Add", {"u", "e"}, {"t"}).Node("Identity", {"t"}, {"o"});
  body.Output("t", Elem::kFloat).Output("o", Elem::kFloat);
  TestModel m(17);
  m.Input("s0", Elem::kFloat, {2}).Input("x", Elem::kFloat, {2, "t"});
  m.Node("Scan", {"s0", "x"}, {"s", "y"},
         {{"body", body.proto},
          {"num_scan_inputs", 1},
          {"scan_input_axes", Ints{-1}},
          {"scan_input_directions", Ints{1}},
          {"scan_output_axes", Ints{1}},
          {"scan_output_directions", Ints{1}}});
  m.Output("s", Elem::kFloat).Output("y", Elem::kFloat);
  ImportOptions options;
  options.dims = {{.name = "t", .min = 0, .max = 5}};
  // Sums from the last column to the first, stored in the order of the columns.
  const auto three = RunModel(m, {F32({2}, {0, 0}), F32({2, 3}, {1, 2, 3, 10, 20, 30})}, options);
  EXPECT_EQ(Numbers(three, 0), (std::vector<double>{6, 60}));
  EXPECT_EQ(Numbers(three, 1), (std::vector<double>{6, 5, 3, 60, 50, 30}));
  const auto none = RunModel(m, {F32({2}, {4, 5}), Tensor::Zeros(DType::kF32, {2, 0})}, options);
  EXPECT_EQ(Numbers(none, 0), (std::vector<double>{4, 5}));
  EXPECT_EQ((*none)[1].shape, (Ints{2, 0}));
  options.dims[0].max = 300;
  Tensor ones = Tensor::Zeros(DType::kF32, {2, 290});
  for (int64_t i = 0; i < ones.elements(); ++i) {
    StoreScalar(ones, i, ::athanor::Scalar::Float(DType::kF32, 1));
  }
  EXPECT_EQ(Numbers(RunModel(m, {F32({2}, {0, 1}), ones}, options), 0),
            (std::vector<double>{290, 291}));
}

// A loop over bags in the form that exporters write.
TestModel BagModel(const std::string& reduction) {
  TestGraph body;
  body.Input("i", Elem::kInt64, {}).Input("going", Elem::kBool, {});
  body.Initializer("zero", I64({1}, {0}));
  body.Node("Gather", {"starts", "i"}, {"s"}).Node("Unsqueeze", {"s", "zero"}, {"s1"});
  body.Node("Gather", {"ends", "i"}, {"e"}).Node("Unsqueeze", {"e", "zero"}, {"e1"});
  body.Node("Slice", {"ids", "s1", "e1", "zero"}, {"bag"});
  body.Node("Gather", {"table", "bag"}, {"rows"});
  if (reduction == "ReduceSum") {
    body.Node("ReduceSum", {"rows", "zero"}, {"total"}, {{"keepdims", 0}});
  } else {
    body.Node(reduction, {"rows"}, {"total"}, {{"keepdims", 0}, {"axes", Ints{0}}});
  }
  body.Node("Identity", {"going"}, {"on"});
  body.Output("on", Elem::kBool).Output("total", Elem::kFloat);
  TestModel m(17);
  m.Input("ids", Elem::kInt64, {"n"}).Input("offsets", Elem::kInt64, {"b"});
  m.Input("table", Elem::kFloat, {4, 2});
  m.Initializer("one", I64({1}, {1})).Initializer("axis", I64({1}, {0}));
  m.Initializer("last", I64({1}, {1e18}));
  m.Node("Shape", {"ids"}, {"size"});
  m.Node("Concat", {"offsets", "size"}, {"bounds"}, {{"axis", 0}});
  m.Node("Slice", {"bounds", "axis", "last"}, {"starts"});
  m.Node("Slice", {"bounds", "one", "last"}, {"ends"});
  m.Node("Shape", {"ends"}, {"count1"}).Node("Squeeze", {"count1"}, {"count"});
  m.Node("Loop", {"count", ""}, {"y"}, {{"body", body.proto}});
  m.Output("y", Elem::kFloat);
  return m;
}

TEST(BagsTest, ALoopOverBagsIsAnEmbeddingBag) {
  ImportOptions options;
  options.dims = {{.name = "n", .min = 0, .max = 1000}, {.name = "b", .min = 1, .max = 500}};
  const Tensor table = F32({4, 2}, {1, 10, 2, 20, 3, 30, 4, 40});
  const auto run = [&](const std::string& reduction, std::vector<double> ids,
                       std::vector<double> offsets) {
    const int64_t n = static_cast<int64_t>(ids.size()), b = static_cast<int64_t>(offsets.size());
    return RunModel(BagModel(reduction), {I64({n}, ids), I64({b}, offsets), table}, options);
  };
  EXPECT_EQ(Numbers(run("ReduceSum", {0, 1, -1, 2}, {0, 2, 2})),
            (std::vector<double>{3, 30, 0, 0, 7, 70}));
  EXPECT_EQ(Numbers(run("ReduceSum", {}, {0})), (std::vector<double>{0, 0}));
  EXPECT_EQ(Numbers(run("ReduceMax", {0, 3, 1}, {0, 2, 3})),
            (std::vector<double>{4, 40, 2, 20, -INFINITY, -INFINITY}));
  const std::vector<double> mean = Numbers(run("ReduceMean", {0, 3, 1}, {0, 2, 3}));
  EXPECT_EQ(mean[0], 2.5);
  EXPECT_EQ(mean[3], 20);
  EXPECT_TRUE(std::isnan(mean[4]));
  // Bags that are not consecutive; an id outside the table.
  EXPECT_FALSE(run("ReduceSum", {0, 1}, {1}).ok());
  EXPECT_FALSE(run("ReduceSum", {0, 1}, {0, 3}).ok());
  EXPECT_FALSE(run("ReduceSum", {0, 1, 2}, {0, 2, 1}).ok());
  EXPECT_FALSE(run("ReduceSum", {0, 4}, {0}).ok());
  EXPECT_FALSE(run("ReduceSum", {0, -5}, {0}).ok());
}

TEST(ScanTest, StepsBeyondTheLimitAreRefusedBeforeAnyIsMade) {
  TestGraph body;
  body.Input("s", Elem::kFloat, {}).Input("x", Elem::kFloat, {});
  body.Node("Add", {"s", "x"}, {"sum"}).Output("sum", Elem::kFloat);
  TestModel m(21);
  m.Input("s0", Elem::kFloat, {}).Input("x", Elem::kFloat, {int64_t{1} << 40});
  m.Node("Scan", {"s0", "x"}, {"s"}, {{"body", body.proto}, {"num_scan_inputs", int64_t{1}}});
  m.Output("s", Elem::kFloat);
  int64_t asked = 0;
  ImportOptions options;
  options.cancelled = [&] {
    ++asked;
    return false;
  };
  const TestImport import = ImportBytes(m.Bytes(), options);
  EXPECT_NE(import.status.ToString().find("1099511627776 steps"), std::string::npos)
      << import.status;
  EXPECT_EQ(asked, 0);  // it is asked once in 64 nodes
}

}  // namespace
}  // namespace athanor::onnx
