// The baseline's extraction walked from a kernel's root to the inputs of the whole graph, once per
// path and reduction: a dozen softmax layers in primitives took all memory. Lowering recursed
// through chains of any length.
#include <random>
#include <string>

#include "compiler/pipeline/pipeline.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

TEST(ChoiceWithoutEndTest, ManySoftmaxLayersInPrimitives) {
  Graph g;
  GraphBuilder b(&g);
  NodeId x = b.Input("x", {DType::kF32, {4, 64}}).value();
  Expr row = Expr::Axis(0);
  for (int layer = 0; layer < 40; ++layer) {
    auto repeat = [&](NodeId n) {
      return b.Add(Op::kIndexMap, {n}, {{"map", IndexMap{{4, 64}, {row}}}}).value();
    };
    NodeId peak = repeat(b.Add(Op::kMaxReduce, {x}, {{"axes", std::vector<int64_t>{1}}}).value());
    NodeId e =
        b.Add(Op::kExp, {b.Add(Op::kAdd, {x, b.Add(Op::kMul, {peak, x}).value()}).value()}).value();
    NodeId sum = repeat(b.Add(Op::kSumReduce, {e}, {{"axes", std::vector<int64_t>{1}}}).value());
    x = b.Add(Op::kDiv, {e, sum}).value();
  }
  b.Output("y", x);
  std::mt19937 rng(1);
  ExpectMatchesReference(g, {RandomTensor(DType::kF32, {4, 64}, rng)}, {}, 10);
}

TEST(ChoiceWithoutEndTest, DoublingDiamonds) {
  Graph g;
  GraphBuilder b(&g);
  NodeId a = b.Input("a", {DType::kF32, {8, 16}}).value();
  NodeId w = b.Parameter("w", {DType::kF32, {16, 16}}).value();
  NodeId x = b.Add(Op::kContract, {a, w}, {{"spec", std::string("mk,kn->mn")}}).value();
  for (int i = 0; i < 60; ++i) {
    NodeId half = b.Add(Op::kTanh, {x}).value();
    x = b.Add(Op::kAdd, {half, half}).value();
    x = b.Add(Op::kMin, {x, half}).value();
  }
  b.Output("y", x);
  std::mt19937 rng(2);
  ExpectMatchesReference(g, {RandomTensor(DType::kF32, {8, 16}, rng)},
                         {RandomTensor(DType::kF32, {16, 16}, rng)}, 10);
}

TEST(ChoiceWithoutEndTest, ChainOfTenThousand) {
  Graph g;
  g.dims = {{"n", 1, 100}};
  GraphBuilder b(&g);
  NodeId x = b.Input("x", {DType::kF32, {Expr::Symbol("n")}}).value();
  for (int i = 0; i < 10'000; ++i) x = b.Add(i % 2 == 0 ? Op::kSin : Op::kFloor, {x}).value();
  b.Output("y", x);
  auto plan = BuildBaselinePlan(g, HostTarget());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE(plan->run_size(), 10'000 / 200);
}

}  // namespace
}  // namespace athanor
