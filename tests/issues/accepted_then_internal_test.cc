// Uploads accepted graphs for which no plan could be made, so that every call was INTERNAL. Either
// a proof was missing that a view of a view reads inside its operand, or a limit for uploads was
// applied to what the compiler makes of an accepted graph.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/graph/accepted_limits.h"
#include "compiler/pipeline/pipeline.h"
#include "compiler/pipeline/prepare.h"
#include "gtest/gtest.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

Expr S(const std::string& name) { return Expr::Symbol(name); }
Expr A(int i) { return Expr::Axis(i); }

// An efficient attention over images: a strided convolution, its positions as tokens, a product of
// each, an image again, and a convolution of `window` with stride `window`.
Graph TokensOfAnImage(const std::string& height, const std::string& width, int64_t window) {
  Graph g;
  g.dims = {{"b", 1, 4}, {height, 16, 256}, {width, 16, 256}};
  GraphBuilder b(&g);
  const auto conv = [&](NodeId x, NodeId w, int64_t stride, int64_t begin, Shape out) {
    return b
        .Add(Op::kConv, {x, w},
             {{"strides", std::vector<int64_t>{stride, stride}},
              {"dilations", std::vector<int64_t>{1, 1}},
              {"begin", Shape{begin, begin}},
              {"out", std::move(out)}})
        .value();
  };
  const auto map = [&](NodeId x, Shape shape, std::vector<Expr> at) {
    return b.Add(Op::kIndexMap, {x}, {{"map", IndexMap{std::move(shape), std::move(at)}}}).value();
  };
  const auto strided = [](const Expr& size, int64_t kernel, int64_t stride, int64_t pads) {
    return FloorDiv(size + (pads - kernel), stride) + 1;
  };
  const NodeId x = b.Input("x", {DType::kF32, {S("b"), 3, S(height), S(width)}}).value();
  const NodeId w1 = b.Parameter("w1", {DType::kF32, {8, 3, 7, 7}}).value();
  const NodeId w2 = b.Parameter("w2", {DType::kF32, {8, 8}}).value();
  const NodeId w3 = b.Parameter("w3", {DType::kF32, {8, 8, window, window}}).value();
  const Expr h = strided(S(height), 7, 4, 6), w = strided(S(width), 7, 4, 6);
  const NodeId image = conv(x, w1, 4, 3, {h, w});
  const NodeId flat = map(image, {S("b"), 8, h * w}, {A(0), A(1), FloorDiv(A(2), w), Mod(A(2), w)});
  const NodeId tokens = map(flat, {S("b"), h * w, 8}, {A(0), A(2), A(1)});
  const NodeId linear =
      b.Add(Op::kContract, {tokens, w2}, {{"spec", std::string("bnk,kc->bnc")}}).value();
  const NodeId turned = map(linear, {S("b"), 8, h * w}, {A(0), A(2), A(1)});
  const NodeId again = map(turned, {S("b"), 8, h, w}, {A(0), A(1), A(2) * w + A(3)});
  b.Output("y", conv(again, w3, window, 0,
                     {strided(h, window, window, 0), strided(w, window, window, 0)}));
  return g;
}

TEST(AcceptedThenInternalTest, WindowsOfTokensOfAnImage) {
  std::mt19937 rng(1);
  for (const auto& [height, width] : {std::pair("h", "w"), std::pair("width", "a")}) {
    for (int64_t window : {2, 4}) {
      const Graph g = TokensOfAnImage(height, width, window);
      ASSERT_TRUE(Verify(g).ok()) << Verify(g);
      const std::vector<Tensor> weights = {RandomTensor(DType::kF32, {8, 3, 7, 7}, rng, 0.1),
                                           RandomTensor(DType::kF32, {8, 8}, rng, 0.3),
                                           RandomTensor(DType::kF32, {8, 8, window, window}, rng)};
      for (const auto& [rows, columns] : {std::pair(16, 16), std::pair(33, 50)}) {
        ExpectMatchesReference(g, {RandomTensor(DType::kF32, {2, 3, rows, columns}, rng)}, weights,
                               /*slack=*/10);
      }
      // Only the view over the first image's edges needs a bounds test.
      const Graph prepared = Prepare(g)->graph;
      EXPECT_EQ(std::count_if(prepared.nodes.begin(), prepared.nodes.end(),
                              [](const Node& node) { return node.attrs.contains("fill"); }),
                1)
          << ToText(prepared);
    }
  }
}

// A coordinate inside without a proof is read with a bounds test, and each kernel's check is a
// graph.
TEST(AcceptedThenInternalTest, AMapWithoutAProof) {
  Graph g;
  g.dims = {{"n", 1, 64}};
  GraphBuilder b(&g);
  const NodeId x = b.Input("x", {DType::kF32, {S("n")}}).value();
  const NodeId e = b.Add(Op::kExp, {x}).value();
  // (n - 1)^2 / n is below n.
  g.nodes.push_back({Op::kIndexMap,
                     {e},
                     {{"map", IndexMap{{S("n")}, {FloorDiv(A(0) * A(0), S("n"))}}}},
                     g.node(e).type,
                     ""});
  b.Output("y", b.Add(Op::kSin, {static_cast<NodeId>(g.nodes.size()) - 1}).value());
  ASSERT_FALSE(Verify(g).ok()) << "a proof is found: the test needs another map";
  const absl::StatusOr<Prepared> prepared = Prepare(g);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_TRUE(Verify(prepared->graph).ok()) << Verify(prepared->graph);
  const absl::StatusOr<CheckedPlan> plan = BuildCheckedBaselinePlan(g, HostTarget());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->plain_because, "");
  for (const internal::KernelCheck& check : plan->checks) {
    const auto task = ParseGraph(check.request().graph_text(), AcceptedLimits());
    EXPECT_TRUE(task.ok()) << task.status();
  }
  std::mt19937 rng(2);
  auto compiled = Compile(g);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (int64_t n : {1, 2, 7, 33, 64}) {
    const Tensor in = RandomTensor(DType::kF32, {n}, rng);
    const auto out = compiled->Run({in});
    ASSERT_TRUE(out.ok()) << out.status();
    for (int64_t i = 0; i < n; ++i) {
      const double want = std::sin(std::exp(LoadScalar(in, i * i / n).f));
      EXPECT_NEAR(LoadScalar((*out)[0], i).f, want, 1e-5) << n << " " << i;
    }
  }
}

// Windows of a large image have more elements than a tensor may have, but are never stored.
TEST(AcceptedThenInternalTest, WindowsOfALargeImage) {
  Graph g;
  g.dims = {{"b", 1, 16}, {"h", 8, 60'000}, {"w", 8, 60'000}};
  GraphBuilder b(&g);
  const NodeId x = b.Input("x", {DType::kF32, {S("b"), 3, S("h"), S("w")}}).value();
  const NodeId w = b.Parameter("w", {DType::kF32, {2, 3, 7, 7}}).value();
  b.Output("y", b.Add(Op::kConv, {x, w},
                      {{"strides", std::vector<int64_t>{4, 4}},
                       {"dilations", std::vector<int64_t>{1, 1}},
                       {"begin", Shape{0, 0}},
                       {"out", Shape{FloorDiv(S("h") - 7, 4) + 1, FloorDiv(S("w") - 7, 4) + 1}}})
                    .value());
  ASSERT_TRUE(Verify(g).ok()) << Verify(g);
  std::mt19937 rng(3);
  ExpectMatchesReference(g, {RandomTensor(DType::kF32, {1, 3, 20, 33}, rng)},
                         {RandomTensor(DType::kF32, {2, 3, 7, 7}, rng)}, /*slack=*/10);
}

}  // namespace
}  // namespace athanor
