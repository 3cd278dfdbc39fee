#include "compiler/rules/terms/views.h"

#include <numeric>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

Expr A(int i) { return Expr::Axis(i); }

struct Views {
  Graph g;
  NodeId last;
  Views() {
    g.dims = {{"b", 1, 8}};
    GraphBuilder b(&g);
    last = b.Input("x", {DType::kF32, {Expr::Symbol("b"), 6, 8}}).value();
  }
  void Map(Shape shape, std::vector<Expr> coordinates) {
    GraphBuilder b(&g);
    last =
        b.Add(Op::kIndexMap, {last}, {{"map", IndexMap{std::move(shape), std::move(coordinates)}}})
            .value();
  }
  // Returns the composed graph, after checking that it has the same values.
  Graph Composed() {
    g.outputs = {{"y", last}};
    Graph c = ComposeViews(g);
    EXPECT_TRUE(Verify(c).ok()) << Verify(c);
    Tensor x = Tensor::Zeros(DType::kF32, {3, 6, 8});
    std::iota(x.data<float>(), x.data<float>() + x.elements(), 0.0f);
    auto want = Evaluate(g, std::vector{x}), got = Evaluate(c, std::vector{x});
    EXPECT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    EXPECT_EQ((*want)[0], (*got)[0]);
    return c;
  }
};

TEST(ViewsTest, ChainBecomesOneViewOfTheInput) {
  Expr b = Expr::Symbol("b");
  Views v;
  v.Map({b, 6, 2, 4}, {A(0), A(1), A(2) * 4 + A(3)});
  v.Map({b, 2, 6, 4}, {A(0), A(2), A(1), A(3)});
  v.Map({b, 48}, {A(0), FloorDiv(A(1), 24), FloorDiv(Mod(A(1), 24), 4), Mod(A(1), 4)});
  Graph c = v.Composed();
  const Node& out = c.node(c.outputs[0].node);
  EXPECT_EQ(out.op, Op::kIndexMap);
  EXPECT_EQ(c.node(out.inputs[0]).op, Op::kInput);
}

TEST(ViewsTest, ThereAndBackIsNothing) {
  Expr b = Expr::Symbol("b");
  Views v;
  v.Map({6, b, 8}, {A(1), A(0), A(2)});
  v.Map({b, 6, 8}, {A(1), A(0), A(2)});
  Graph c = v.Composed();
  EXPECT_EQ(c.node(c.outputs[0].node).op, Op::kInput);
}

TEST(ViewsTest, FilledMapsStay) {
  Expr b = Expr::Symbol("b");
  Views v;
  GraphBuilder builder(&v.g);
  v.last = builder
               .Add(Op::kIndexMap, {v.last},
                    {{"map", IndexMap{{b, 8, 8}, {A(0), A(1) - 1, A(2)}}},
                     {"fill", Tensor::Zeros(DType::kF32, {})}})
               .value();
  v.Map({8, b, 8}, {A(1), A(0), A(2)});
  Graph c = v.Composed();
  const Node& out = c.node(c.outputs[0].node);
  EXPECT_TRUE(c.node(out.inputs[0]).attrs.contains("fill"));
}

TEST(ViewsTest, WhatIsInsideWithoutAProofIsGuarded) {
  const Expr b = Expr::Symbol("b");
  Views v;
  v.Map({b, 8, 6}, {A(0), A(2), A(1)});
  // (b - 1)^2 / b is less than b.
  const TensorType type = v.g.node(v.last).type;
  v.g.nodes.push_back({Op::kIndexMap,
                       {v.last},
                       {{"map", IndexMap{type.shape, {FloorDiv(A(0) * A(0), b), A(1), A(2)}}}},
                       type,
                       ""});
  v.g.outputs = {{"y", v.last + 1}};
  ASSERT_FALSE(Verify(v.g).ok()) << "a proof is found: the test needs another map";
  GuardViews(&v.g);
  EXPECT_TRUE(Verify(v.g).ok()) << Verify(v.g);
  EXPECT_FALSE(v.g.node(v.last).attrs.contains("fill"));
  Tensor x = Tensor::Zeros(DType::kF32, {5, 6, 8});
  std::iota(x.data<float>(), x.data<float>() + x.elements(), 0.0f);
  const Tensor y = Evaluate(v.g, std::vector{x}).value()[0];
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(LoadScalar(y, (i * 8 + 3) * 6 + 2).f, (i * i / 5 * 6 + 2) * 8 + 3);
  }
}

// Wraps `body` in a loop of one step, whose result is the body's output.
Graph LoopAround(Graph body, const TensorType& type) {
  Graph g;
  g.dims = {{"b", 1, 8}};
  g.nodes.push_back({Op::kInput, {}, {}, {DType::kI64, {}}, "step"});
  g.nodes.push_back({Op::kInput, {}, {}, type, "x"});
  body.dims.clear();
  g.nodes.push_back({Op::kScan,
                     {1},
                     {{"body", SubGraph(std::move(body))},
                      {"states", int64_t{1}},
                      {"scanned", int64_t{0}},
                      {"result", int64_t{0}},
                      {"length", Shape{1}}},
                     type,
                     ""});
  g.outputs = {{"y", 2}};
  return g;
}

TEST(ViewsTest, LoopsInLoopsAreGuardedToo) {
  const Expr b = Expr::Symbol("b");
  const TensorType type{DType::kF32, {b}};
  Graph body;
  body.nodes = {
      {Op::kInput, {}, {}, {DType::kI64, {}}, "step"},
      {Op::kInput, {}, {}, type, "x"},
      // (b - 1)^2 / b is less than b.
      {Op::kIndexMap, {1}, {{"map", IndexMap{{b}, {FloorDiv(A(0) * A(0), b)}}}}, type, ""}};
  body.outputs = {{"y", 2}};
  Graph g = LoopAround(LoopAround(std::move(body), type), type);
  ASSERT_FALSE(Verify(g).ok()) << "a proof is found: the test needs another map";
  GuardViews(&g);
  EXPECT_TRUE(Verify(g).ok()) << Verify(g);
}

}  // namespace
}  // namespace athanor
