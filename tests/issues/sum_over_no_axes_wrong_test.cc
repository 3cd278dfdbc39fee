// A reduction over no axes, or a contraction that sums nothing, where all lanes of a vector want
// the same value: each lane held the one term, and the lanes were added up.
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

void Check(const std::string& text) {
  const auto graph = ParseGraph("graph \"g\" {\n" + text + "}");
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::mt19937 rng(1);
  std::vector<Tensor> inputs;
  for (NodeId i : graph->InputIds()) {
    inputs.push_back(
        RandomTensor(DType::kF32, ConcreteShape(graph->node(i).type.shape, {}).value(), rng));
  }
  ExpectMatchesReference(*graph, inputs);
}

TEST(SumOverNoAxesWrongTest, Reductions) {
  for (const std::string op : {"SumReduce", "MaxReduce", "MulReduce"}) {
    Check(R"(%0 = Input "x" : f32[6] %1 = SumReduce(%0) {axes=[0]} %2 = Relu(%1)
             %3 = )" +
          op + R"((%2) {axes=[]} %4 = IndexMap(%3) {map=map[40]()} output "y" = %4)");
  }
}

TEST(SumOverNoAxesWrongTest, Contractions) {
  Check(R"(%0 = Input "x" : f32[6] %1 = Input "y" : f32[5] %2 = SumReduce(%0) {axes=[0]}
           %3 = SumReduce(%1) {axes=[0]} %4 = Contract(%2, %3) {spec=",->"}
           %5 = IndexMap(%4) {map=map[40]()} output "z" = %5)");
  Check(R"(%0 = Input "x" : f32[6] %1 = Input "y" : f32[5] %2 = Contract(%0, %1) {spec="a,b->ab"}
           %3 = IndexMap(%2) {map=map[6, 40]($0, 3)} %4 = SumReduce(%3) {axes=[1]} output "z" = %4)");
}

}  // namespace
}  // namespace athanor
