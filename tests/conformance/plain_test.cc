// Runs plans in plain form, with one kernel per op. They serve when a kernel of the usual plan
// turns out wrong, so they must be right for every op.
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

Graph Parsed(const std::string& text, DType dtype = DType::kF32) {
  const auto graph =
      ParseGraph(absl::StrReplaceAll(text, {{"T[", std::string(DTypeName(dtype)) + "["}}));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *graph;
}

constexpr char kBlock[] = R"(graph "block" { dim b in [1, 4] dim s in [1, 40]
  %0 = Input "x" : T[b, s, 16] %1 = Parameter "q" : T[16, 16] %2 = Parameter "k" : T[16, 16]
  %3 = Parameter "v" : T[16, 16] %4 = Parameter "g" : T[16] %5 = Parameter "o" : T[16]
  %6 = LayerNorm(%0, %4, %5) {epsilon=0.00001}
  %7 = Contract(%6, %1) {spec="bsk,kn->bsn"} %8 = Contract(%6, %2) {spec="bsk,kn->bsn"}
  %9 = Contract(%6, %3) {spec="bsk,kn->bsn"}
  %10 = Attention(%7, %8, %9) {scale=0.25} %11 = Add(%10, %0) %12 = Gelu(%11)
  %13 = Softmax(%12) {axis=2} output "y" = %12 output "p" = %13 })";

TEST(PlainTest, ABlockOfATransformer) {
  std::mt19937 rng(1);
  for (DType t : {DType::kF32, DType::kF64, DType::kF16}) {
    const Graph graph = Parsed(kBlock, t);
    std::vector<Tensor> weights;
    for (int i = 0; i < 3; ++i) weights.push_back(RandomTensor(t, {16, 16}, rng, 0.2));
    for (int i = 0; i < 2; ++i) weights.push_back(RandomTensor(t, {16}, rng));
    for (const auto& [b, s] : {std::pair(1, 1), std::pair(3, 37)}) {
      ExpectPlainMatchesReference(graph, {RandomTensor(t, {b, s, 16}, rng)}, weights, 20);
    }
  }
}

TEST(PlainTest, AConvolutionAndAPool) {
  const Graph graph = Parsed(R"(graph "conv" { dim h in [5, 40] dim w in [5, 40]
    %0 = Input "x" : T[2, 3, h, w] %1 = Parameter "w" : T[4, 3, 3, 3]
    %2 = Conv(%0, %1) {strides=[2, 2], dilations=[1, 1], begin=shape[1, 1],
      out=shape[floordiv(h - 1, 2) + 1, floordiv(w - 1, 2) + 1]}
    %3 = Relu(%2) %4 = Pool(%3) {mode="max", kernel=[2, 2], strides=[1, 1], dilations=[1, 1],
      begin=shape[0, 0], out=shape[floordiv(h - 1, 2), floordiv(w - 1, 2)]}
    %5 = SumReduce(%4) {axes=[2, 3]} output "y" = %4 output "s" = %5 })");
  std::mt19937 rng(2);
  const std::vector<Tensor> weights = {RandomTensor(DType::kF32, {4, 3, 3, 3}, rng)};
  for (const auto& [h, w] : {std::pair(5, 5), std::pair(19, 32)}) {
    ExpectPlainMatchesReference(graph, {RandomTensor(DType::kF32, {2, 3, h, w}, rng)}, weights, 20);
  }
}

TEST(PlainTest, RowsByIndexAndTheLargest) {
  const Graph graph = Parsed(R"(graph "rows" { dim n in [1, 40]
    %0 = Input "x" : T[n, 24] %1 = Input "i" : i64[n] %2 = Parameter "t" : T[30, 24]
    %3 = Gather(%2, %1) {axis=0} %4 = Mul(%0, %3)
    %5 = TopK(%4) {axis=1, k=shape[5]} %6 = Cumulate(%4) {axis=0, op="add"}
    %7 = Scatter(%2, %1, %4) {axis=0, mode="add"}
    output "k" = %5 output "c" = %6 output "t" = %7 })");
  std::mt19937 rng(3);
  const std::vector<Tensor> table = {RandomTensor(DType::kF32, {30, 24}, rng)};
  for (int64_t n : {1, 33}) {
    ExpectPlainMatchesReference(
        graph, {RandomTensor(DType::kF32, {n, 24}, rng), RandomIndices(DType::kI64, {n}, 30, rng)},
        table, 20);
  }
}

TEST(PlainTest, ALoop) {
  const Graph graph = Parsed(R"(graph "loop" { dim n in [0, 20] dim b in [1, 8]
    %0 = Input "x" : T[n, b, 6] %1 = Parameter "r" : T[6, 6] %2 = Input "h" : T[b, 6]
    %3 = Scan(%2, %0, %1) {body=graph "body" {%0 = Input "step" : i64[] %1 = Input "h" : T[b, 6]
      %2 = Input "x" : T[b, 6] %3 = Input "r" : T[6, 6]
      %4 = Contract(%1, %3) {spec="bk,kn->bn"} : T[b, 6] %5 = Add(%4, %2) : T[b, 6]
      %6 = Tanh(%5) : T[b, 6] output "h" = %6 output "y" = %6},
      length=shape[n], result=1, scanned=1, states=1}
    output "y" = %3 })");
  std::mt19937 rng(4);
  const std::vector<Tensor> weights = {RandomTensor(DType::kF32, {6, 6}, rng, 0.3)};
  for (int64_t n : {0, 1, 17}) {
    ExpectPlainMatchesReference(
        graph, {RandomTensor(DType::kF32, {n, 3, 6}, rng), RandomTensor(DType::kF32, {3, 6}, rng)},
        weights, 20);
  }
}

}  // namespace
}  // namespace athanor
