// A node that no output needs was computed if another such node used it: an index outside its
// tensor in a dead chain failed a graph that the compiler, which drops the chain, serves.
#include "compiler/ir/graph/graph.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(DeadNodesComputedTest, AnIndexOutsideInADeadChainDoesNotMatter) {
  const Graph graph = ParseGraph(R"(graph "g" {
    %0 = Input "x" : f32[2]
    %1 = Constant {value=i32[1] {7}}
    %2 = Gather(%0, %1) {axis=0}
    %3 = Exp(%2)
    %4 = Add(%0, %0)
    output "y" = %4
  })")
                          .value();
  Tensor x = Tensor::Zeros(DType::kF32, {2});
  x.data<float>()[1] = 1.5;
  const auto whole = Evaluate(graph, {x});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ((*whole)[0].data<float>()[1], 3);
  EXPECT_EQ(*Evaluate(Canonicalize(graph), {x}), *whole);
  EXPECT_EQ(EvaluateAll(graph, {x}).status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace athanor
