#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/testing.h"
#include "compiler/ir/ops/reference_testing.h"
#include "gtest/gtest.h"

namespace athanor::onnx {
namespace {

using Values = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const Tensor kX = Of(DType::kF32, {2, 4}, {1, 4, 4, 3, -7, 2, 7, 7});

// Returns the model's outputs for these inputs, as numbers.
std::vector<Values> Outputs(const TestModel& model, const std::vector<Tensor>& inputs,
                            const ImportOptions& options = {}) {
  const absl::StatusOr<std::vector<Tensor>> outputs = RunModel(model, inputs, options);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  std::vector<Values> values;
  if (!outputs.ok()) return {{}, {}};
  for (const Tensor& output : *outputs) values.push_back(ValuesOf(output));
  return values;
}

TestModel TopK(int64_t opset, const std::map<std::string, TestAttr>& attrs) {
  TestModel m(opset);
  m.Input("x", Elem::kFloat, {2, 4});
  m.Node("TopK", opset < 10 ? std::vector<std::string>{"x"} : std::vector<std::string>{"x", "k"},
         {"values", "places"}, attrs);
  m.Output("values", Elem::kFloat).Output("places", Elem::kInt64);
  return m;
}

TestModel CumSum(int64_t opset, const char* op, const std::map<std::string, TestAttr>& attrs) {
  TestModel m(opset);
  m.Input("x", Elem::kFloat, {2, 4}).Node(op, {"x", "axis"}, {"y"}, attrs);
  m.Output("y", Elem::kFloat);
  return m;
}

TEST(SortHandlers, KIsAnAttributeBeforeTen) {
  const std::vector<Values> y = Outputs(TopK(9, {{"k", int64_t{3}}}), {kX});
  EXPECT_EQ(y[0], (Values{4, 4, 3, 7, 7, 2}));
  EXPECT_EQ(y[1], (Values{1, 2, 3, 2, 3, 1}));
  const std::vector<Values> first =
      Outputs(TopK(1 + 6, {{"k", int64_t{1}}, {"axis", int64_t{0}}}), {kX});
  EXPECT_EQ(first[0], (Values{1, 4, 7, 7}));
  EXPECT_EQ(first[1], (Values{0, 0, 1, 1}));
}

TEST(SortHandlers, KIsAnOperandFromTen) {
  TestModel ten = TopK(10, {});
  ten.Initializer("k", Of(DType::kI64, {1}, {2}));
  EXPECT_EQ(Outputs(ten, {kX})[1], (Values{1, 2, 2, 3}));
  TestModel smallest =
      TopK(11, {{"largest", int64_t{0}}, {"axis", int64_t{-1}}, {"sorted", int64_t{0}}});
  smallest.Initializer("k", Of(DType::kI64, {1}, {2}));
  EXPECT_EQ(Outputs(smallest, {kX})[0], (Values{1, 3, -7, 2}));
  EXPECT_EQ(Outputs(smallest, {kX})[1], (Values{0, 3, 0, 1}));
  TestModel none = TopK(24, {});
  none.Initializer("k", Of(DType::kI64, {1}, {0}));
  EXPECT_EQ(Outputs(none, {kX})[0], Values{});
  // NaN is above all numbers, as in PyTorch.
  const Tensor x = Of(DType::kF32, {2, 4}, {1, kNan, 4, kNan, 0, 0, 0, 0});
  EXPECT_EQ(Outputs(ten, {x})[1], (Values{1, 3, 0, 1}));
}

TEST(SortHandlers, KOfTheRequestHasToBeGiven) {
  TestModel m = TopK(11, {});
  m.Input("k", Elem::kInt64, {1});
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_EQ(import.refusals.size(), 1u);
  EXPECT_EQ(import.refusals[0].op, "TopK");
  EXPECT_EQ(import.refusals[0].inputs, std::vector<std::string>{"k"});
  ImportOptions options;
  options.values["k"] = Of(DType::kI64, {1}, {1});
  EXPECT_EQ(Outputs(m, {kX, Of(DType::kI64, {1}, {1})}, options)[0], (Values{4, 7}));
}

TEST(SortHandlers, WhatDoesNotFitIsSaid) {
  const auto reason = [](TestModel m, const Tensor& k) {
    m.Initializer("k", k);
    const TestImport import = ImportBytes(m.Bytes());
    EXPECT_FALSE(import.status.ok());
    return std::string(import.status.message());
  };
  EXPECT_NE(reason(TopK(11, {}), Of(DType::kI64, {1}, {5})).find("not provably at most 4"),
            std::string::npos);
  EXPECT_NE(reason(TopK(11, {}), Of(DType::kI64, {1}, {-1})).find("its K is -1"),
            std::string::npos);
  EXPECT_NE(reason(TopK(11, {}), Of(DType::kI64, {2}, {1, 1})).find("must have one"),
            std::string::npos);
  EXPECT_NE(reason(TopK(11, {{"axis", int64_t{2}}}), Of(DType::kI64, {1}, {1})).find("axis 2"),
            std::string::npos);
}

TEST(SortHandlers, Cumulates) {
  const auto run = [](const char* op, int64_t opset, const std::map<std::string, TestAttr>& attrs,
                      const Tensor& axis) {
    TestModel m = CumSum(opset, op, attrs);
    m.Initializer("axis", axis);
    return Outputs(m, {Of(DType::kF32, {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})})[0];
  };
  const Tensor last = Of(DType::kI32, {}, {-1}), first = Of(DType::kI64, {1}, {0});
  EXPECT_EQ(run("CumSum", 11, {}, last), (Values{1, 3, 6, 10, 5, 11, 18, 26}));
  EXPECT_EQ(run("CumSum", 14, {{"exclusive", int64_t{1}}}, last),
            (Values{0, 1, 3, 6, 0, 5, 11, 18}));
  EXPECT_EQ(run("CumSum", 14, {{"reverse", int64_t{1}}}, first),
            (Values{6, 8, 10, 12, 5, 6, 7, 8}));
  EXPECT_EQ(run("CumProd", 26, {}, first), (Values{1, 2, 3, 4, 5, 12, 21, 32}));
  EXPECT_EQ(run("CumProd", 26, {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}, last),
            (Values{24, 12, 4, 1, 336, 56, 8, 1}));
}

TEST(SortHandlers, TheAxisHasToBeKnown) {
  TestModel m = CumSum(14, "CumSum", {});
  m.Input("axis", Elem::kInt32, {});
  const TestImport import = ImportBytes(m.Bytes());
  ASSERT_EQ(import.refusals.size(), 1u);
  EXPECT_EQ(import.refusals[0].inputs, std::vector<std::string>{"axis"});
  ImportOptions options;
  options.values["axis"] = Of(DType::kI32, {}, {1});
  EXPECT_EQ(Outputs(m, {kX, Of(DType::kI32, {}, {1})}, options)[0],
            (Values{1, 5, 9, 12, -7, -5, 2, 9}));
  TestModel two = CumSum(14, "CumSum", {});
  two.Initializer("axis", Of(DType::kI64, {2}, {0, 1}));
  EXPECT_NE(std::string(ImportBytes(two.Bytes()).status.message()).find("its axis has 2 elements"),
            std::string::npos);
}

}  // namespace
}  // namespace athanor::onnx
