// Reductions and the softmax family: axes by opset, empty axes, infinities.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Elem kF = Elem::kFloat, kI64 = Elem::kInt64;
using Ints = std::vector<int64_t>;

const Numbers kX = {1, 2, 3, 4, 5, 6};

TEST(HandlersReduceTest, EveryReduction) {
  const std::vector<std::pair<std::string, Numbers>> rows = {
      {"ReduceSum", {6, 15}},
      {"ReduceMean", {2, 5}},
      {"ReduceMax", {3, 6}},
      {"ReduceMin", {1, 4}},
      {"ReduceProd", {6, 120}},
      {"ReduceL1", {6, 15}},
      {"ReduceL2", {std::sqrt(14), std::sqrt(77)}},
      {"ReduceSumSquare", {14, 77}},
      {"ReduceLogSum", {std::log(6), std::log(15)}},
      {"ReduceLogSumExp",
       {std::log(std::exp(1) + std::exp(2) + std::exp(3)),
        std::log(std::exp(4) + std::exp(5) + std::exp(6))}}};
  for (const auto& [op, want] : rows) {
    SCOPED_TRACE(op);
    const Tensor kept =
        OneNode(op, 18).InDynamic(kF, {2, 3}, kX).Fixed(kI64, {1}, {-1}).Out(kF).Result();
    EXPECT_EQ(kept.shape, (Ints{2, 1}));
    ExpectNear(ValuesOf(kept), want);
    const Tensor dropped = OneNode(op, 11)
                               .In(kF, {2, 3}, kX)
                               .Attr("axes", Ints{1})
                               .Attr("keepdims", int64_t{0})
                               .Out(kF)
                               .Result();
    EXPECT_EQ(dropped.shape, Ints{2});
    ExpectNear(ValuesOf(dropped), want);
    ExpectNear(OneNode(op, 18)
                   .In(Elem::kFloat16, {2, 3}, kX)
                   .Fixed(kI64, {1}, {1})
                   .Out(Elem::kFloat16)
                   .Values(),
               want, 5e-4);
    EXPECT_EQ(OneNode(op, 13).In(kF, {2, 3}, kX).Out(kF).Result().shape, (Ints{1, 1}));
  }
}

// Without axes, all axes are reduced, or none; then only the elementwise part of the op remains.
TEST(HandlersReduceTest, NoAxes) {
  const auto run = [](const std::string& op, int64_t noop) {
    return OneNode(op, 18).In(kF, {2}, {-3, 4}).Attr("noop_with_empty_axes", noop).Out(kF).Values();
  };
  EXPECT_EQ(run("ReduceSum", 0), Numbers{1});
  EXPECT_EQ(run("ReduceSum", 1), (Numbers{-3, 4}));
  EXPECT_EQ(run("ReduceL1", 1), (Numbers{3, 4}));
  EXPECT_EQ(run("ReduceL2", 1), (Numbers{3, 4}));
  EXPECT_EQ(run("ReduceSumSquare", 1), (Numbers{9, 16}));
  ExpectNear(run("ReduceLogSum", 1), {kNan, std::log(4)});
  ExpectNear(run("ReduceLogSumExp", 1), {-3, 4});
  EXPECT_EQ(run("ReduceMean", 1), (Numbers{-3, 4}));
  EXPECT_EQ(OneNode("ReduceSum", 13).In(kF, {2}, {3, 4}).Fixed(kI64, {0}, {}).Out(kF).Values(),
            Numbers{7});
  EXPECT_EQ(OneNode("ReduceMax", 20).In(kF, {}, {3}).Out(kF).Values(), Numbers{3});
}

TEST(HandlersReduceTest, NothingAndInfinities) {
  const auto empty = [](const std::string& op) {
    return OneNode(op, 18)
        .In(kF, {0, 2}, {})
        .Fixed(kI64, {1}, {0})
        .Attr("keepdims", int64_t{0})
        .Out(kF)
        .Values();
  };
  EXPECT_EQ(empty("ReduceSum"), (Numbers{0, 0}));
  EXPECT_EQ(empty("ReduceProd"), (Numbers{1, 1}));
  EXPECT_EQ(empty("ReduceMax"), (Numbers{-kInf, -kInf}));
  EXPECT_EQ(empty("ReduceMin"), (Numbers{kInf, kInf}));
  ExpectNear(empty("ReduceMean"), {kNan, kNan});
  EXPECT_EQ(empty("ReduceLogSumExp"), (Numbers{-kInf, -kInf}));
  const auto exps = [](const Numbers& x) {
    return OneNode("ReduceLogSumExp", 18).In(kF, {2}, x).Out(kF).Values();
  };
  EXPECT_EQ(exps({-kInf, -kInf}), Numbers{-kInf});
  EXPECT_EQ(exps({kInf, 1}), Numbers{kInf});
  ExpectNear(exps({1000, 1000}), {1000 + std::log(2)});
  ExpectNear(exps({kNan, 1}), {kNan});
}

TEST(HandlersReduceTest, IntegersAndBools) {
  const Elem i32 = Elem::kInt32;
  const double lowest = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(OneNode("ReduceMin", 18).In(i32, {2}, {lowest, 5}).Out(i32).Values(), Numbers{lowest});
  EXPECT_EQ(OneNode("ReduceMean", 18).In(i32, {2}, {-3, 0}).Out(i32).Values(), Numbers{-1});
  EXPECT_EQ(OneNode("ReduceMax", 20).In(Elem::kBool, {2}, {0, 1}).Out(Elem::kBool).Values(),
            Numbers{1});
  EXPECT_EQ(OneNode("ReduceMin", 20).In(Elem::kBool, {2}, {0, 1}).Out(Elem::kBool).Values(),
            Numbers{0});
  EXPECT_EQ(OneNode("ReduceL2", 18).In(i32, {2}, {3, 4}).Out(i32).Values(), Numbers{5});
  EXPECT_EQ(OneNode("ReduceSumSquare", 18).In(kI64, {1}, {-7}).Out(kI64).Values(), Numbers{49});
}

TEST(HandlersReduceTest, AxesThatOnlyARequestTellsAreRefused) {
  const std::string error =
      OneNode("ReduceSum", 13).In(kF, {2}, {1, 2}).In(kI64, {1}, {0}).Out(kF).Error();
  EXPECT_NE(error.find("axes"), std::string::npos) << error;
  EXPECT_FALSE(
      OneNode("ReduceSum", 13).In(kF, {2}, {1, 2}).Fixed(kI64, {1}, {1}).Out(kF).Error().empty());
}

TEST(HandlersArgTest, TiesAndNaN) {
  const auto arg = [](const std::string& op, int64_t opset, const Numbers& x) {
    return OneNode(op, opset)
        .In(kF, {static_cast<int64_t>(x.size())}, x)
        .Attr("keepdims", int64_t{0});
  };
  EXPECT_EQ(arg("ArgMax", 11, {2, 7, 7, 1}).Out(kI64).Values(), Numbers{1});
  EXPECT_EQ(arg("ArgMin", 13, {2, 1, 7, 1}).Out(kI64).Values(), Numbers{1});
  EXPECT_EQ(
      arg("ArgMax", 12, {2, 7, 7, 1}).Attr("select_last_index", int64_t{1}).Out(kI64).Values(),
      Numbers{2});
  EXPECT_EQ(arg("ArgMax", 13, {2, kNan, 7, kNan}).Out(kI64).Values(), Numbers{1});
  EXPECT_EQ(OneNode("ArgMax", 13)
                .In(kF, {2, 2}, {1, 2, 4, 3})
                .Attr("axis", int64_t{-1})
                .Out(kI64)
                .Result(),
            Of(DType::kI64, {2, 1}, {1, 0}));
}

// Before opset 13, all axes from `axis` (1) on are merged; since then, only `axis` (-1).
TEST(HandlersSoftmaxTest, AxesByOpset) {
  const Numbers x = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto run = [&](const std::string& op, int64_t opset) {
    return OneNode(op, opset).In(kF, {2, 2, 2}, x).Out(kF).Values();
  };
  Numbers joined, last;
  double all = 0;
  for (int i = 0; i < 4; ++i) all += std::exp(i);
  for (int i = 0; i < 8; ++i) joined.push_back(std::exp(i % 4) / all);
  for (int i = 0; i < 8; ++i) last.push_back(1 / (1 + std::exp(i % 2 == 0 ? 1 : -1)));
  ExpectNear(run("Softmax", 11), joined);
  ExpectNear(run("Softmax", 13), last);
  for (Numbers* values : {&joined, &last}) {
    for (double& v : *values) v = std::log(v);
  }
  ExpectNear(run("LogSoftmax", 11), joined);
  ExpectNear(run("LogSoftmax", 13), last);
  EXPECT_EQ(run("Hardmax", 11), (Numbers{0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(run("Hardmax", 13), (Numbers{0, 1, 0, 1, 0, 1, 0, 1}));
  ExpectNear(OneNode("LogSoftmax", 13).InDynamic(kF, {2, 2}, {1e4, 0, -kInf, 0}).Out(kF).Values(),
             {0, -1e4, -kInf, 0});
  ExpectNear(
      OneNode("Softmax", 1).In(kF, {2, 2}, {0, 0, 1, 1}).Attr("axis", int64_t{0}).Out(kF).Values(),
      {1 / (2 + 2 * std::exp(1)), 1 / (2 + 2 * std::exp(1)), std::exp(1) / (2 + 2 * std::exp(1)),
       std::exp(1) / (2 + 2 * std::exp(1))});
}

}  // namespace
}  // namespace athanor::onnx
