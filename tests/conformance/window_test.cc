// Runs Conv and Pool through pipeline, Clang and executor against the reference evaluator, for all
// kinds of sizes and dtypes.
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

// Parses a graph with this body over dims n, h and w in [0, 40]; T stands for the dtype.
Graph GraphOf(const std::string& body, DType dtype) {
  const std::string text = absl::StrReplaceAll(
      absl::StrCat("graph \"g\" {\n dim n in [0, 9]\n dim h in [0, 40]\n dim w in [0, 40]\n", body,
                   "}"),
      {{"T[", absl::StrCat(std::string(DTypeName(dtype)), "[")}});
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << text;
  return graph.ok() ? *graph : Graph();
}

void Check(const std::string& body, DType dtype, const std::vector<Expr::Env>& sizes,
           double slack = 10) {
  std::mt19937 rng(1);
  const Graph graph = GraphOf(body, dtype);
  std::vector<Tensor> parameters;
  for (NodeId p : graph.ParameterIds()) {
    parameters.push_back(
        RandomTensor(dtype, ConcreteShape(graph.node(p).type.shape, {}).value(), rng));
  }
  for (const Expr::Env& dims : sizes) {
    std::vector<Tensor> inputs;
    for (NodeId i : graph.InputIds()) {
      inputs.push_back(
          RandomTensor(dtype, ConcreteShape(graph.node(i).type.shape, dims).value(), rng));
    }
    ExpectMatchesReference(graph, inputs, parameters, slack);
  }
}

const std::vector<Expr::Env> kSizes = {{{"n", 1}, {"h", 1}, {"w", 1}},
                                       {{"n", 0}, {"h", 5}, {"w", 3}},
                                       {{"n", 2}, {"h", 0}, {"w", 7}},
                                       {{"n", 2}, {"h", 7}, {"w", 0}},
                                       {{"n", 3}, {"h", 17}, {"w", 31}}};

// Every spatial axis and the batch are dims; the kernel is an input or a weight.
TEST(WindowTest, ConvolutionsOfDynamicSizes) {
  Check(R"(%0 = Input "x" : T[n, 3, h, w] %1 = Parameter "k" : T[8, 3, 3, 3]
           %2 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1], out=shape[h, w]}
           %3 = Relu(%2) output "y" = %3)",
        DType::kF32, kSizes);
  Check(R"(%0 = Input "x" : T[n, 3, h, w] %1 = Input "k" : T[5, 3, 3, 2]
           %2 = Conv(%0, %1) {strides=[2, 3], dilations=[2, 1], begin=shape[-1, 3],
           out=shape[floordiv(h, 2) + 1, w]} output "y" = %2)",
        DType::kF32, kSizes);
}

TEST(WindowTest, ConvolutionsOfOneAndThreeAxes) {
  Check(R"(%0 = Input "x" : T[n, 5, w] %1 = Parameter "k" : T[7, 5, 4]
           %2 = Conv(%0, %1) {strides=[3], dilations=[2], begin=shape[2], out=shape[floordiv(w, 3)]}
           output "y" = %2)",
        DType::kF32, kSizes);
  Check(R"(%0 = Input "x" : T[n, 2, h, 3, w] %1 = Parameter "k" : T[3, 2, 2, 3, 1]
           %2 = Conv(%0, %1) {strides=[1, 1, 2], dilations=[1, 1, 1], begin=shape[1, 1, 0],
           out=shape[h, 3, w]} output "y" = %2)",
        DType::kF32, kSizes);
}

TEST(WindowTest, GroupsAndDepthwise) {
  Check(R"(%0 = Input "x" : T[n, 6, h, w] %1 = Parameter "k" : T[4, 3, 3, 1]
           %2 = Conv(%0, %1) {strides=[1, 2], dilations=[1, 1], begin=shape[1, 0], out=shape[h, w],
           group=2} output "y" = %2)",
        DType::kF32, kSizes);
  Check(
      R"(%0 = Input "x" : T[n, 6, h, w] %1 = Parameter "k" : T[6, 1, 3, 3] %2 = Parameter "b" : T[6]
           %3 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1], out=shape[h, w],
           group=6} %4 = IndexMap(%2) {map=map[n, 6, h, w]($1)} %5 = Add(%3, %4) output "y" = %5)",
      DType::kF32, kSizes);
  Check(R"(%0 = Input "x" : T[n, 4, h, w] %1 = Parameter "k" : T[8, 1, 1, 3]
           %2 = Conv(%0, %1) {strides=[2, 1], dilations=[1, 2], begin=shape[0, 2],
           out=shape[floordiv(h + 1, 2), w], group=4} output "y" = %2)",
        DType::kF32, kSizes);
}

// Lanes run along the last axis at every step and dilation, with borders on all sides and windows
// that are larger than the input.
TEST(WindowTest, DepthwiseStepsAndBorders) {
  const std::vector<Expr::Env> sizes = {
      {{"n", 1}, {"h", 1}, {"w", 1}},  {{"n", 2}, {"h", 2}, {"w", 2}},
      {{"n", 1}, {"h", 7}, {"w", 40}}, {{"n", 2}, {"h", 13}, {"w", 37}},
      {{"n", 1}, {"h", 40}, {"w", 0}}, {{"n", 0}, {"h", 3}, {"w", 3}}};
  for (int stride = 1; stride <= 5; ++stride) {
    for (int dilation : {1, 3}) {
      Check(absl::StrCat(R"(%0 = Input "x" : T[n, 3, h, w] %1 = Parameter "k" : T[3, 1, 3, 5]
            %2 = Conv(%0, %1) {strides=[)",
                         stride, ", ", stride, "], dilations=[", dilation, ", ", dilation,
                         R"(], begin=shape[2, 3], out=shape[floordiv(h, )", stride,
                         ") + 1, floordiv(w, ", stride, R"() + 2], group=3} output "y" = %2)"),
            DType::kF32, sizes);
    }
  }
}

// A kernel of one element is a contraction of x itself.
TEST(WindowTest, PointwiseConvolution) {
  Check(R"(%0 = Input "x" : T[n, 6, h, w] %1 = Parameter "k" : T[10, 6, 1, 1]
           %2 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[0, 0], out=shape[h, w]}
           output "y" = %2)",
        DType::kF32, kSizes);
}

TEST(WindowTest, ConvolutionsOfEveryDType) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF64, DType::kI8, DType::kU16, DType::kI32,
                  DType::kI64}) {
    for (int group : {1, 2, 4}) {
      Check(absl::StrCat(R"(%0 = Input "x" : T[n, 4, w] %1 = Parameter "k" : T[4, )", 4 / group,
                         R"(, 3] %2 = Conv(%0, %1) {strides=[1], dilations=[1], begin=shape[1],
                         out=shape[w], group=)",
                         group, R"(} output "y" = %2)"),
            t, {{{"n", 2}, {"h", 1}, {"w", 11}}});
    }
  }
}

TEST(WindowTest, Pools) {
  for (const char* mode : {"max", "sum", "mean"}) {
    const std::string attrs =
        absl::StrCat(R"( {mode=")", mode,
                     R"(", kernel=[3, 2], strides=[2, 1], dilations=[1, 3], begin=shape[1, 2],
        out=shape[floordiv(h + 1, 2), w])");
    Check(absl::StrCat(R"(%0 = Input "x" : T[n, 3, h, w] %1 = Pool(%0))", attrs,
                       R"(} output "y" = %1)"),
          DType::kF32, kSizes);
    if (std::string(mode) != "mean") continue;
    Check(absl::StrCat(R"(%0 = Input "x" : T[n, 3, h, w] %1 = Pool(%0))", attrs,
                       R"(, counted=shape[h + 2, w + 3]} output "y" = %1)"),
          DType::kF32, kSizes);
  }
}

TEST(WindowTest, PoolsOfEveryDType) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF64, DType::kI8, DType::kU8, DType::kI64,
                  DType::kBool}) {
    for (const char* mode : {"max", "sum", "mean"}) {
      if (!IsFloat(t) && std::string(mode) == "mean") continue;
      if (t == DType::kBool && std::string(mode) != "max") continue;
      Check(absl::StrCat(R"(%0 = Input "x" : T[n, 2, w] %1 = Pool(%0) {mode=")", mode,
                         R"(", kernel=[3], strides=[2], dilations=[1], begin=shape[1],
                         out=shape[floordiv(w, 2) + 3]} output "y" = %1)"),
            t, {{{"n", 2}, {"h", 1}, {"w", 9}}});
    }
  }
}

}  // namespace
}  // namespace athanor
