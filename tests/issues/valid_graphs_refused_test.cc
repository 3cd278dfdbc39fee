// Graphs that upload accepted but the compiler refused or trapped on, found by review: loop
// variables named like C types, divisions by the extent of an empty tensor, constants as outputs,
// literals read by kernels without room for them.
#include <random>
#include <string>

#include "compiler/pipeline/pipeline.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

Expr S(const char* name) { return Expr::Symbol(name); }
Expr A(int i) { return Expr::Axis(i); }

TEST(ValidGraphsRefusedTest, ContractionsOverDimsOfEveryDType) {
  std::mt19937 rng(1);
  for (const DTypeRow& row : kDTypes) {
    if (!row.computes || row.dtype == DType::kBool) continue;
    Graph g;
    g.dims = {{"m", 1, 300}, {"k", 1, 300}, {"n", 1, 300}};
    GraphBuilder b(&g);
    NodeId x = b.Input("x", {row.dtype, {S("m"), S("k")}}).value();
    NodeId y = b.Input("y", {row.dtype, {S("k"), S("n")}}).value();
    b.Output("z", b.Add(Op::kContract, {x, y}, {{"spec", std::string("mk,kn->mn")}}).value());
    ExpectMatchesReference(
        g, {RandomTensor(row.dtype, {5, 7}, rng), RandomTensor(row.dtype, {7, 19}, rng)}, {}, 10);
  }
}

TEST(ValidGraphsRefusedTest, KernelWithMoreThanSixtyFourLoops) {
  std::mt19937 rng(2);
  Graph g;
  g.dims = {{"n", 1, 300}};
  GraphBuilder b(&g);
  NodeId x = b.Input("x", {DType::kI8, {S("n"), 5}}).value();
  NodeId sum = x;
  for (int i = 0; i < 40; ++i) {
    NodeId r = b.Add(Op::kMaxReduce, {sum}, {{"axes", std::vector<int64_t>{1}}}).value();
    NodeId wide = b.Add(Op::kIndexMap, {r}, {{"map", IndexMap{{S("n"), 5}, {A(0)}}}}).value();
    sum = b.Add(Op::kAdd, {x, wide}).value();
  }
  b.Output("y", sum);
  ExpectMatchesReference(g, {RandomTensor(DType::kI8, {9, 5}, rng)});
}

TEST(ValidGraphsRefusedTest, PadOfAnEmptyReshape) {
  std::mt19937 rng(3);
  for (int64_t b : {0, 1, 3}) {
    for (int64_t s : {0, 2, 17}) {
      Graph g;
      g.dims = {{"b", 0, 64}, {"s", 0, 64}};
      GraphBuilder builder(&g);
      NodeId x = builder.Input("x", {DType::kF32, {S("b"), S("s")}}).value();
      NodeId flat = builder
                        .Add(Op::kIndexMap, {x},
                             {{"map", IndexMap{{S("s") * S("b")},
                                               {Mod(A(0), S("b")), FloorDiv(A(0), S("b"))}}}})
                        .value();
      NodeId padded = builder
                          .Add(Op::kIndexMap, {flat},
                               {{"map", IndexMap{{S("s") * S("b") + 2}, {A(0) - 2}}},
                                {"fill", Tensor::Zeros(DType::kF32, {})}})
                          .value();
      builder.Output("y", padded);
      ExpectMatchesReference(g, {RandomTensor(DType::kF32, {b, s}, rng)});
    }
  }
}

TEST(ValidGraphsRefusedTest, ScalarConstantAsOutput) {
  Graph g;
  GraphBuilder b(&g);
  NodeId x = b.Input("x", {DType::kF32, {2}}).value();
  Tensor two = Tensor::Zeros(DType::kF32, {});
  StoreScalar(two, 0, Scalar::Float(DType::kF32, 2));
  b.Output("s", b.Constant(two).value());
  b.Output("x", x);
  std::mt19937 rng(4);
  ExpectMatchesReference(g, {RandomTensor(DType::kF32, {2}, rng)}, {}, 0);
}

// Some of these chains fill the kernel exactly at a literal.
TEST(ValidGraphsRefusedTest, LiteralsWhereAKernelIsFull) {
  std::mt19937 rng(6);
  for (int length = 95; length <= 102; ++length) {
    Graph g;
    g.dims = {{"n", 1, 64}};
    GraphBuilder b(&g);
    NodeId v = b.Input("x", {DType::kF32, {S("n")}}).value();
    for (int i = 0; i < 2 * length; ++i) {
      Tensor literal = Tensor::Zeros(DType::kF32, {});
      StoreScalar(literal, 0, Scalar::Float(DType::kF32, i % 2 ? 0.5 : 1.0009765625));
      NodeId c = b.Constant(literal).value();
      NodeId wide = b.Add(Op::kIndexMap, {c}, {{"map", IndexMap{{S("n")}, {}}}}).value();
      v = b.Add(i % 2 ? Op::kAdd : Op::kMul, {v, wide}).value();
    }
    b.Output("y", v);
    auto plan = BuildCheckedBaselinePlan(g, HostTarget());
    EXPECT_TRUE(plan.ok()) << length << ": " << plan.status();
  }
}

// A kernel's check takes the kernel's operands as inputs; their sizes need not determine every dim.
TEST(ValidGraphsRefusedTest, ChecksHaveTheirDims) {
  Graph g;
  g.dims = {{"b", 1, 16}, {"s", 1, 16}};
  GraphBuilder b(&g);
  NodeId x = b.Input("x", {DType::kF32, {S("b"), S("s")}}).value();
  NodeId flat =
      b.Add(Op::kIndexMap, {x},
            {{"map", IndexMap{{S("b") * S("s")}, {FloorDiv(A(0), S("s")), Mod(A(0), S("s"))}}}})
          .value();
  NodeId e = b.Add(Op::kExp, {flat}).value();
  b.Output("u", e);
  b.Output("v", b.Add(Op::kSin, {e}).value());
  auto plan = BuildCheckedBaselinePlan(g, HostTarget());
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const internal::KernelCheck& check : plan->checks) {
    auto sub = ParseGraph(check.request().graph_text());
    ASSERT_TRUE(sub.ok()) << sub.status();
    for (const auto& sizes : check.request().sizes()) {
      if (sizes.sampled()) continue;  // too large to evaluate in full
      Expr::Env dims;
      for (int d = 0; d < check.request().plan().dims_size(); ++d) {
        dims[check.request().plan().dims(d).name()] = sizes.values(d);
      }
      std::vector<Tensor> inputs;
      std::mt19937 rng(5);
      for (NodeId id : sub->InputIds()) {
        std::vector<int64_t> shape;
        for (const Expr& size : sub->node(id).type.shape) shape.push_back(*size.Evaluate(dims));
        inputs.push_back(RandomTensor(sub->node(id).type.dtype, shape, rng));
      }
      EXPECT_TRUE(Evaluate(*sub, inputs, &dims).ok());
    }
  }
}

}  // namespace
}  // namespace athanor
