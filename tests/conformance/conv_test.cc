// Runs convolutions of known sizes, whose windows are packed into panels, against the reference
// evaluator: sizes, strides and padding that cut off panels, runs and pieces of the sums.
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

// Parses a graph with this body over dims c and k.
Graph GraphOf(const std::string& body) {
  const std::string text =
      absl::StrCat("graph \"g\" {\n dim c in [0, 40]\n dim k in [1, 4]\n", body, "}");
  const absl::StatusOr<Graph> graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << text;
  return graph.ok() ? *graph : Graph();
}

std::vector<Tensor> RandomOf(const Graph& graph, const std::vector<NodeId>& nodes,
                             std::mt19937& rng, const Expr::Env& dims = {}) {
  std::vector<Tensor> tensors;
  for (NodeId n : nodes) {
    const TensorType& type = graph.node(n).type;
    tensors.push_back(RandomTensor(type.dtype, ConcreteShape(type.shape, dims).value(), rng));
  }
  return tensors;
}

void Check(const std::string& body, double slack = 10,
           const Expr::Env& dims = {{"c", 1}, {"k", 1}}) {
  const Graph graph = GraphOf(body);
  std::mt19937 rng(5);
  const std::vector<Tensor> inputs = RandomOf(graph, graph.InputIds(), rng, dims);
  ExpectMatchesReference(graph, inputs, RandomOf(graph, graph.ParameterIds(), rng), slack);
}

struct Case {
  const char *name, *image, *kernel, *strides, *dilations, *begin, *out;
  int group = 1;
};

constexpr Case kCases[] = {
    // Covers several pieces of the sums, row blocks, and one panel that is cut off.
    {"Deep", "1, 300, 7, 7", "206, 300, 3, 3", "1, 1", "1, 1", "1, 1", "7, 7"},
    {"Primes", "3, 5, 13, 17", "7, 5, 3, 3", "1, 1", "1, 1", "2, 0", "14, 15"},
    {"Many", "1, 3, 31, 37", "20, 3, 7, 7", "2, 2", "1, 1", "3, 3", "16, 19"},
    {"SmallerThanItsKernel", "2, 3, 2, 3", "6, 3, 5, 5", "1, 1", "1, 1", "2, 2", "2, 3"},
    {"BesideTheImage", "1, 2, 4, 4", "5, 2, 2, 2", "1, 1", "1, 1", "9, -7", "3, 5"},
    {"Apart", "1, 7, 23, 29", "18, 7, 3, 3", "3, 2", "2, 3", "2, 4", "7, 15"},
    {"Flat", "1, 4, 1, 211", "13, 4, 1, 3", "1, 1", "1, 1", "0, 1", "1, 211"},
    {"Tall", "2, 4, 211, 1", "13, 4, 3, 1", "1, 1", "1, 1", "1, 0", "211, 1"},
    {"Groups", "2, 6, 9, 11", "10, 3, 3, 3", "1, 1", "1, 1", "1, 1", "9, 11", 2},
    {"Pointwise", "2, 40, 9, 9", "50, 40, 1, 1", "1, 1", "1, 1", "0, 0", "9, 9"},
    {"PointwiseApart", "2, 40, 9, 9", "50, 40, 1, 1", "2, 2", "1, 1", "0, 0", "5, 5"},
    {"NoPadding", "1, 20, 12, 12", "30, 20, 3, 3", "1, 1", "1, 1", "0, 0", "10, 10"},
    {"OneMap", "1, 9, 20, 20", "1, 9, 3, 3", "1, 1", "1, 1", "1, 1", "20, 20"},
    {"NoChannels", "1, 0, 6, 6", "4, 0, 3, 3", "1, 1", "1, 1", "1, 1", "6, 6"},
};

class ConvTest : public testing::TestWithParam<Case> {};

TEST_P(ConvTest, MatchesTheReference) {
  const Case& c = GetParam();
  for (const char* dtype : {"f32", "f64", "bf16"}) {
    Check(absl::StrCat("%0 = Input \"x\" : ", dtype, "[", c.image, "] %1 = Parameter \"w\" : ",
                       dtype, "[", c.kernel, "] %2 = Conv(%0, %1) {strides=[", c.strides,
                       "], dilations=[", c.dilations, "], begin=shape[", c.begin, "], out=shape[",
                       c.out, "], group=", c.group, "} output \"y\" = %2"),
          /*slack=*/40);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ConvTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Calls choose the kernels, and the sizes.
TEST(ConvTest, KernelsThatAreInputs) {
  Check(R"(%0 = Input "x" : f32[2, 5, 9, 9] %1 = Input "w" : f32[9, 5, 3, 3]
           %2 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1], out=shape[9, 9]}
           output "y" = %2)");
  for (const int64_t c : {0, 1, 40}) {
    Check(R"(%0 = Input "x" : f32[2, c, 9, 9] %1 = Input "w" : f32[9, c, k, 3]
             %2 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1],
             out=shape[9, 9]} output "y" = %2)",
          10, {{"c", c}, {"k", 4}});
  }
}

// The last panel of an image whose size the call chooses has tiles of as many vectors as it has
// columns for: none, one, all of them, and the same after a whole panel.
TEST(ConvTest, ImagesOfSizesThatCallsChoose) {
  const auto check = [](const std::string& dtype, absl::string_view activation, int64_t c) {
    Check(absl::StrCat("%0 = Input \"x\" : ", dtype, "[2, 5, 2, c] %1 = Parameter \"w\" : ", dtype,
                       "[23, 5, 3, 3] %2 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], ",
                       "begin=shape[1, 1], out=shape[2, c]} %3 = Parameter \"b\" : ", dtype,
                       "[23] %4 = IndexMap(%3) {map=map[2, 23, 2, c]($1)} %5 = Add(%2, %4) %6 = ",
                       activation, "(%5) output \"y\" = %6"),
          40, {{"c", c}, {"k", 1}});
  };
  for (const int64_t c : {0, 1, 8, 9, 17, 24, 31, 32, 33, 40}) {
    check("f32", "Relu", c);  // an epilogue on registers
    if (c % 8 == 1) check("f32", "Tanh", c);
  }
  for (const int64_t c : {1, 17, 40}) {
    for (const char* dtype : {"f64", "f16", "bf16"}) check(dtype, "Relu", c);
  }
  // Sums are computed in several pieces.
  for (const int64_t c : {17, 40}) {
    Check(R"(%0 = Input "x" : f32[1, 130, 2, c] %1 = Parameter "w" : f32[19, 130, 3, 3]
             %2 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1],
             out=shape[2, c]} %3 = Tanh(%2) output "y" = %3)",
          40, {{"c", c}, {"k", 1}});
  }
}

// Kernels of one element: images are packed, or read in place by few maps.
TEST(ConvTest, PointwiseOfSizesThatCallsChoose) {
  for (const char* dtype : {"f32", "f16", "i32", "i64"}) {
    for (const int maps : {1, 16, 61}) {
      for (const int64_t c : {0, 1, 33}) {
        Check(absl::StrCat("%0 = Input \"x\" : ", dtype,
                           "[2, 7, 2, c] %1 = Parameter \"w\" : ", dtype, "[", maps,
                           ", 7] %2 = Contract(%0, %1) {spec=\"ncuv,mc->nmuv\"} output \"y\" = %2"),
              40, {{"c", c}, {"k", 1}});
      }
    }
  }
}

// The epilogue is bias, skip connection and activation.
TEST(ConvTest, ResidualBlock) {
  Check(R"(%0 = Input "x" : f32[2, 20, 9, 9] %1 = Parameter "w" : f32[20, 20, 3, 3]
           %2 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1], out=shape[9, 9]}
           %3 = Parameter "b" : f32[20] %4 = IndexMap(%3) {map=map[2, 20, 9, 9]($1)}
           %5 = Add(%2, %4) %6 = Add(%5, %0) %7 = Relu(%6)
           %8 = Conv(%7, %1) {strides=[2, 2], dilations=[1, 1], begin=shape[1, 1], out=shape[5, 5]}
           output "y" = %8)");
}

TEST(ConvTest, WindowsOfTwoConvolutions) {
  Check(R"(%0 = Input "x" : f32[1, 20, 9, 9] %1 = Parameter "w" : f32[20, 20, 3, 3]
           %2 = Parameter "v" : f32[7, 20, 3, 3]
           %3 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1], out=shape[9, 9]}
           %4 = Conv(%0, %2) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1], out=shape[9, 9]}
           output "y" = %3 output "z" = %4)");
}

// Elements of a window beyond x are zeros, and zero times infinity is NaN.
TEST(ConvTest, InfiniteWeightsMeetPadding) {
  const Graph graph = GraphOf(
      R"(%0 = Input "x" : f32[1, 2, 5, 19] %1 = Parameter "w" : f32[3, 2, 3, 3]
         %2 = Conv(%0, %1) {strides=[1, 1], dilations=[1, 1], begin=shape[1, 1], out=shape[5, 19]}
         output "y" = %2)");
  std::mt19937 rng(5);
  std::vector<Tensor> inputs = RandomOf(graph, graph.InputIds(), rng);
  std::vector<Tensor> parameters = RandomOf(graph, graph.ParameterIds(), rng);
  parameters[0].data<float>()[0] = std::numeric_limits<float>::infinity();
  parameters[0].data<float>()[2 * 9 + 5] = std::numeric_limits<float>::quiet_NaN();
  inputs[0].data<float>()[40] = -std::numeric_limits<float>::infinity();
  ExpectMatchesReference(graph, inputs, parameters, 10);
}

}  // namespace
}  // namespace athanor
