#include "compiler/rules/decompose/recognise.h"

#include <algorithm>
#include <string>

#include "compiler/rules/decompose/recognise_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(RecogniseTest, ContractionsOfPrimitives) {
  for (const char* spec : {"mk,kn->mn", "km,nk->nm", "bqd,bkd->bqk", "bqhd,bkhd->bhqk",
                           "bhqk,bkhd->bqhd", "abk,ckd->dcba", "mk,nk->mn"}) {
    for (DType t : {DType::kF32, DType::kF16, DType::kI32, DType::kF64}) {
      ContractSpec s = *ContractSpec::Parse(spec);
      Build b;
      auto shape = [&](const std::string& letters) {
        Shape shape;
        for (char c : letters) shape.push_back(2 + (c * 7) % 5);
        return shape;
      };
      Graph g = b.Done({b.Dot(b.In("a", shape(s.lhs), t), b.In("c", shape(s.rhs), t), spec)});
      Graph primitives = Primitives(g);
      Graph again = Recognised(primitives);
      EXPECT_EQ(Count(again, Op::kContract), 1) << spec << ToText(again);
      // Only the operands and the contraction are left.
      EXPECT_EQ(again.nodes.size(), 3u) << ToText(again);
      EXPECT_EQ(CanonicalHash(again), CanonicalHash(g)) << ToText(again);
    }
  }
}

TEST(RecogniseTest, BroadcastThroughInsertedAxes) {
  Build b;
  NodeId p = b.In("p", {3, 4}), q = b.In("q", {4, 5});
  NodeId wide = b.x.Map(b.x.Map(p, {3, 1, 4}, {A(0), A(2)}), {3, 5, 4}, {A(0), 0, A(2)});
  NodeId turned = b.x.Map(b.x.Map(q, {5, 4}, {A(1), A(0)}), {3, 5, 4}, {A(1), A(2)});
  Graph g = b.Done({b.x.Reduce(Op::kSumReduce, b.x.Add(Op::kMul, {wide, turned}), {2})});
  Graph r = Recognised(Canonicalize(g));
  EXPECT_EQ(r.nodes.size(), 3u) << ToText(r);
  ExpectSame(g, r);
}

TEST(RecogniseTest, ViewsComposedWithRepetitions) {
  // Contracts q[b, s, 4*h + d] * k[b, t, 4*h + d] over d, each as one view; the operands become
  // heads.
  Build b;
  NodeId q = b.In("q", {2, 3, 8}), k = b.In("k", {2, 5, 8});
  const Shape joint = {2, 2, 3, 5, 4};
  NodeId wide = b.x.Map(q, joint, {A(0), A(2), 4 * A(1) + A(4)});
  NodeId keys = b.x.Map(k, joint, {A(0), A(3), 4 * A(1) + A(4)});
  Graph g = b.Done({b.x.Reduce(Op::kSumReduce, b.x.Add(Op::kMul, {wide, keys}), {4})});
  Graph r = Recognised(Canonicalize(g));
  EXPECT_EQ(Count(r, Op::kContract), 1) << ToText(r);
  EXPECT_EQ(r.nodes.size(), 5u) << ToText(r);
  ExpectSame(g, r);
}

TEST(RecogniseTest, NoContraction) {
  // A square, a row times a repeated vector, an axis that neither operand has, a product that is
  // rounded before the sum.
  Build b;
  NodeId p = b.In("p", {4, 4}), w = b.In("w", {4});
  NodeId half = b.In("h", {3, 4}, DType::kF16);
  auto sum = [&](NodeId m, NodeId n) {
    return b.x.Reduce(Op::kSumReduce, b.x.Add(Op::kMul, {m, n}), {1});
  };
  NodeId diagonal = b.x.Map(p, {4, 4, 2}, {A(0), A(0)});
  NodeId other = b.x.Map(p, {4, 4, 2}, {A(1), A(0)});
  Graph g =
      b.Done({sum(p, p), sum(p, b.x.Map(w, {4, 4}, {A(1)})), sum(diagonal, other),
              sum(b.x.Map(half, {3, 2, 4}, {A(0), A(2)}), b.x.Map(half, {3, 2, 4}, {A(0), A(2)}))});
  EXPECT_EQ(Count(Recognised(Canonicalize(g)), Op::kContract), 0);
}

// Not recognised: an order that is needed as a whole, by an output or another node; a part that is
// not its beginning; a cut along another axis.
TEST(RecogniseTest, NoBeginningOfAnOrder) {
  const auto top = [](const std::vector<Expr>& shape, const std::vector<Expr>& at, bool output,
                      bool used) {
    Build b;
    const NodeId order = b.x.Add(Op::kSort, {b.In("x", {3, 5})}, {{"axis", int64_t{1}}});
    std::vector<NodeId> outputs = {b.x.Map(order, shape, at)};
    if (output) outputs.push_back(order);
    if (used) outputs.push_back(b.x.Add(Op::kAdd, {order, order}, {}));
    return Count(Recognised(Canonicalize(b.Done(outputs))), Op::kTopK);
  };
  EXPECT_EQ(top({3, 2}, {A(0), A(1)}, false, false), 1);
  EXPECT_EQ(top({3, 2}, {A(0), A(1)}, true, false), 0);
  EXPECT_EQ(top({3, 2}, {A(0), A(1)}, false, true), 0);
  EXPECT_EQ(top({3, 2}, {A(0), A(1) + 1}, false, false), 0);
  EXPECT_EQ(top({2, 5}, {A(0), A(1)}, false, false), 0);
  EXPECT_EQ(top({2, 3}, {A(1), A(0)}, false, false), 0);
}

TEST(RecogniseTest, EveryRowFires) {
  Build b;
  NodeId turned = b.x.Map(b.In("q", {4, 5}, DType::kF16), {5, 4}, {A(1), A(0)});
  Graph viewed = b.Done({b.Dot(b.In("p", {3, 4}, DType::kF16), turned, "mk,nk->mn")});
  Build c;
  Graph attention = c.Done({c.x.Add(
      Op::kAttention, {c.In("q", {2, 3, 4}), c.In("k", {2, 5, 4}), c.In("v", {2, 5, 6})})});
  Build d;
  Graph top = d.Done({d.x.Add(Op::kTopK, {d.In("x", {2, 7})},
                              {{"axis", int64_t{1}}, {"k", Shape{3}}, {"largest", true}})});
  std::vector<std::string> fired;
  for (Graph g : {viewed, Primitives(viewed), Primitives(attention), Primitives(top)}) {
    for (const RecognitionRow& row : RecognitionRows()) {
      absl::StatusOr<Graph> next = ApplyRecognition(g, row);
      ASSERT_TRUE(next.ok()) << next.status();
      if (CanonicalHash(*next) != CanonicalHash(g)) fired.emplace_back(row.name);
      ExpectSame(g, *next, 1e-2);
      g = *std::move(next);
    }
  }
  for (const RecognitionRow& row : RecognitionRows()) {
    EXPECT_NE(std::find(fired.begin(), fired.end(), row.name), fired.end()) << row.name;
    EXPECT_FALSE(row.algebra.empty());
  }
}

}  // namespace
}  // namespace athanor
