// The attention row: where it finds scales, masks and kept axes, and near misses that it must not
// match.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/decompose/recognise_testing.h"
#include "compiler/rules/terms/views.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Attention with numpy's keepdims: maxima, sums and values computed from them are [..., 1].
struct Kept {
  enum Scale { kScores, kDifference, kMasked, kQueries, kKeys, kBoth, kViewedQueries };
  Scale scale = kScores;
  double factor = 0.5;  // the default for heads of size 4
  bool causal = false;
  bool recip = false;  // * (1 / sum)
  bool last = false;   // after the contraction with the values
};

NodeId ReducedKept(Build& b, Op op, NodeId v, int64_t axis) {
  Shape shape = b.x.Type(v).shape;
  shape[axis] = 1;
  return b.x.Repeat(b.x.Reduce(op, v, {axis}), axis, shape);
}

NodeId Wide(Build& b, NodeId kept, Shape shape) {
  std::vector<Expr> at;
  for (size_t i = 0; i < shape.size(); ++i) {
    at.push_back(b.x.Type(kept).shape[i].IsConstant(1) ? Expr(0) : A(static_cast<int>(i)));
  }
  return b.x.Map(kept, std::move(shape), std::move(at));
}

NodeId Times(Build& b, NodeId v, double factor) {
  return b.x.Add(Op::kMul, {v, b.x.FillLike(v, factor)});
}

// Builds exp(factor * (scores - max)) over its sum, contracted with `v`.
NodeId KeptSoftmax(Build& b, NodeId scores, NodeId v, const Kept& w) {
  Expansion& x = b.x;
  const int64_t axis = static_cast<int64_t>(x.Type(scores).shape.size()) - 1;
  const std::string spec = axis == 3 ? "bhqk,bhkd->bhqd" : "bqk,bkd->bqd";
  const Shape shape = x.Type(scores).shape;
  NodeId minus = Times(b, ReducedKept(b, Op::kMaxReduce, scores, axis), -1);
  NodeId e = x.Add(Op::kAdd, {scores, Wide(b, minus, shape)});
  if (w.scale == Kept::kDifference) e = Times(b, e, w.factor);
  e = x.Add(Op::kExp, {e});
  NodeId total = ReducedKept(b, Op::kSumReduce, e, axis);
  if (w.recip) total = x.Add(Op::kRecip, {total});
  auto divide = [&](NodeId n) {
    return x.Add(w.recip ? Op::kMul : Op::kDiv, {n, Wide(b, total, x.Type(n).shape)});
  };
  return w.last ? divide(b.Dot(e, v, spec)) : b.Dot(divide(e), v, spec);
}

Graph KeptAttention(const Kept& w, bool composite) {
  Build b;
  b.g.dims = {{"b", 2, 8}, {"s", 1, 64}};
  b.x = Expansion(&b.g);
  Expansion& x = b.x;
  const Shape shape = {Expr::Symbol("b"), 3, Expr::Symbol("s"), 4};
  const bool viewed = w.scale == Kept::kViewedQueries;
  NodeId q = b.In("q", viewed ? Shape{shape[0], shape[2], 12} : shape);
  NodeId k = b.In("k", shape), v = b.In("v", shape);
  auto heads = [&](NodeId n) { return x.Map(n, shape, {A(0), A(2), 4 * A(1) + A(3)}); };
  if (composite) {
    Attrs attrs;
    if (w.causal) attrs["causal"] = true;
    if (w.factor != 0.5) attrs["scale"] = w.factor;
    return b.Done({x.Add(Op::kAttention, {viewed ? heads(q) : q, k, v}, attrs)});
  }
  if (w.scale == Kept::kQueries || viewed) q = Times(b, q, w.factor);
  if (viewed) q = heads(q);
  if (w.scale == Kept::kKeys) k = x.Add(Op::kDiv, {k, x.FillLike(k, 1 / w.factor)});
  if (w.scale == Kept::kBoth) {
    q = Times(b, q, std::sqrt(w.factor));
    k = Times(b, k, std::sqrt(w.factor));
  }
  NodeId scores = b.Dot(q, k, "bhqd,bhkd->bhqk");
  if (w.scale == Kept::kScores) scores = Times(b, scores, w.factor);
  if (w.causal) {
    auto iota = [&](int64_t axis) {
      return x.Add(Op::kIota, {},
                   {{"shape", x.Type(scores).shape}, {"axis", axis}, {"dtype", DType::kI64}});
    };
    scores = x.Add(Op::kSelect,
                   {x.Add(Op::kLessThan, {iota(2), iota(3)}), x.FillLike(scores, -kInf), scores});
  }
  if (w.scale == Kept::kMasked) scores = Times(b, scores, w.factor);
  return b.Done({KeptSoftmax(b, scores, v, w)});
}

TEST(RecogniseAttentionLimitsTest, AttentionWithKeptAxesAndAnyPlaceOfTheScale) {
  for (Kept::Scale scale : {Kept::kScores, Kept::kDifference, Kept::kMasked, Kept::kQueries,
                            Kept::kKeys, Kept::kBoth, Kept::kViewedQueries}) {
    // Before the contraction: a factor below 1 stays there.
    const bool before = scale >= Kept::kQueries;
    for (double factor : before ? std::vector{4.0, 1.3} : std::vector{0.5, 0.3}) {
      const bool exact = factor == 0.5 || factor == 4;
      for (int bits = 0; bits < 8; ++bits) {
        const Kept w{scale, factor, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
        const Graph g = KeptAttention(w, false);
        const Graph r = Recognised(ComposeViews(Primitives(g)));
        ASSERT_EQ(Count(r, Op::kAttention), 1) << scale << " " << bits << ToText(g);
        EXPECT_EQ(Count(r, Op::kMul), 0) << ToText(r);
        ExpectSame(g, r);
        if (scale == Kept::kBoth && !exact) continue;  // the factor is rounded twice
        if (scale == Kept::kKeys && !exact) continue;
        Attrs& attrs = const_cast<Graph&>(r).nodes.back().attrs;
        // A double, though the graph's factor is a float.
        if (factor != 0.5) attrs["scale"] = factor;
        EXPECT_EQ(CanonicalHash(r), CanonicalHash(KeptAttention(w, true))) << ToText(r);
      }
    }
  }
}

// A mask of finite numbers hides no row completely: if all keys have the same mask value, softmax
// equals that of the scores.
Graph PaddingMasked(double hidden, bool composite) {
  Build b;
  b.g.dims = {{"b", 2, 8}, {"s", 1, 64}};
  b.x = Expansion(&b.g);
  Expansion& x = b.x;
  const Expr n = Expr::Symbol("b"), s = Expr::Symbol("s");
  NodeId q = b.In("q", {n, s, 4}), k = b.In("k", {n, s, 4}), v = b.In("v", {n, s, 4});
  NodeId keep = b.In("keep", {n, s}, DType::kBool);
  NodeId mask;
  if (std::isinf(hidden)) {
    NodeId zero = x.Fill(DType::kF32, 0, {n, s});
    mask = x.Add(Op::kSelect, {keep, zero, x.FillLike(zero, hidden)});
  } else {  // (1 - keep) * hidden
    NodeId one = x.Fill(DType::kF32, 1, {n, s});
    mask = Times(b, x.Sub(one, x.Cast(keep, DType::kF32)), hidden);
  }
  mask = x.Map(mask, {n, s, s}, {A(0), A(2)});
  if (composite) return b.Done({x.Add(Op::kAttention, {q, k, v, mask})});
  NodeId scores = Times(b, b.Dot(q, k, "bqd,bkd->bqk"), 0.5);
  return b.Done({KeptSoftmax(b, x.Add(Op::kAdd, {mask, scores}), v, {})});
}

TEST(RecogniseAttentionLimitsTest, AttentionWithAFiniteMask) {
  // In a hidden row, f32 keeps only part of the scores beside the mask.
  for (auto [hidden, tolerance] : {std::pair<double, double>{-64, 1e-4},
                                   {-1e4, 5e-3},
                                   {std::numeric_limits<float>::lowest(), 1e-5}}) {
    const Graph g = PaddingMasked(hidden, false);
    const Graph r = Recognised(ComposeViews(Primitives(g)));
    ASSERT_EQ(Count(r, Op::kAttention), 1) << hidden << ToText(r);
    EXPECT_EQ(r.nodes.back().inputs.size(), 4u);
    EXPECT_EQ(Count(r, Op::kExp), 0);
    ExpectSame(g, r);
    // Rows whose keys are all hidden.
    std::vector<Tensor> inputs = RandomInputs(g, 1);
    inputs.back() = Tensor::Zeros(DType::kBool, inputs.back().shape);
    auto want = Evaluate(g, inputs), got = Evaluate(r, inputs);
    ASSERT_TRUE(want.ok() && got.ok());
    EXPECT_TRUE(CompareTensors((*got)[0], (*want)[0], tolerance, tolerance).ok());
  }
}

// Builds graphs that are nearly attention.
Graph NearMiss(const std::function<NodeId(Build&, NodeId scores, NodeId v)>& rest) {
  Build b;
  b.g.dims = {{"b", 2, 8}, {"s", 1, 64}};
  b.x = Expansion(&b.g);
  const Expr n = Expr::Symbol("b"), s = Expr::Symbol("s");
  NodeId q = b.In("q", {n, s, 4}), k = b.In("k", {n, s, 4}), v = b.In("v", {n, s, 4});
  return b.Done({rest(b, b.Dot(q, k, "bqd,bkd->bqk"), v)});
}

void ExpectNoAttention(const Graph& g) {
  Graph r = Recognised(Primitives(g));
  EXPECT_EQ(Count(r, Op::kAttention), 0) << ToText(r);
  ExpectSame(g, r);
}

NodeId SoftmaxOf(Build& b, NodeId scores, int64_t axis) {
  return b.x.Add(Op::kSoftmax, {scores}, {{"axis", axis}});
}

TEST(RecogniseAttentionLimitsTest, NearMissesOfAttention) {
  const std::string values = "bqk,bkd->bqd";
  // The plain form is recognised, so each of the following graphs fails only because of its
  // difference.
  Graph plain =
      NearMiss([&](Build& b, NodeId s, NodeId v) { return b.Dot(SoftmaxOf(b, s, 2), v, values); });
  EXPECT_EQ(Count(Recognised(Primitives(plain)), Op::kAttention), 1);
  // Softmax over the queries.
  ExpectNoAttention(
      NearMiss([&](Build& b, NodeId s, NodeId v) { return b.Dot(SoftmaxOf(b, s, 1), v, values); }));
  // A separate factor for every query.
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    NodeId factor = b.x.Map(b.In("f", {Expr::Symbol("s")}), b.x.Type(s).shape, {A(1)});
    return b.Dot(SoftmaxOf(b, b.x.Add(Op::kMul, {s, factor}), 2), v, values);
  }));
  // The maximum of another axis.
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    const Shape shape = b.x.Type(s).shape;
    NodeId e =
        b.x.Add(Op::kExp, {b.x.Sub(s, b.x.Repeat(b.x.Reduce(Op::kMaxReduce, s, {1}), 1, shape))});
    NodeId total = b.x.Repeat(b.x.Reduce(Op::kSumReduce, e, {2}), 2, shape);
    return b.Dot(b.x.Add(Op::kDiv, {e, total}), v, values);
  }));
  // The sum repeated along another axis of the same size.
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    const Shape shape = b.x.Type(s).shape;
    NodeId e =
        b.x.Add(Op::kExp, {b.x.Sub(s, b.x.Repeat(b.x.Reduce(Op::kMaxReduce, s, {2}), 2, shape))});
    NodeId total = b.x.Repeat(b.x.Reduce(Op::kSumReduce, e, {2}), 1, shape);
    return b.Dot(b.x.Add(Op::kDiv, {e, total}), v, values);
  }));
  // A mask that may hide whole rows, where softmax gives NaN.
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    NodeId mask = b.In("m", b.x.Type(s).shape, DType::kBool);
    NodeId masked = b.x.Add(Op::kSelect, {mask, s, b.x.FillLike(s, -kInf)});
    return b.Dot(SoftmaxOf(b, masked, 2), v, values);
  }));
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    NodeId mask = b.In("m", b.x.Type(s).shape);
    return b.Dot(SoftmaxOf(b, b.x.Add(Op::kAdd, {s, mask}), 2), v, values);
  }));
  // Causal by one less: the first query sees nothing.
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    auto iota = [&](int64_t axis) {
      return b.x.Add(Op::kIota, {},
                     {{"shape", b.x.Type(s).shape}, {"axis", axis}, {"dtype", DType::kI32}});
    };
    NodeId seen = b.x.Add(Op::kLessThan, {iota(2), iota(1)});
    return b.Dot(SoftmaxOf(b, b.x.Add(Op::kSelect, {seen, s, b.x.FillLike(s, -kInf)}), 2), v,
                 values);
  }));
  // Values summed over the queries.
  ExpectNoAttention(NearMiss(
      [&](Build& b, NodeId s, NodeId v) { return b.Dot(SoftmaxOf(b, s, 2), v, "bqk,bqd->bkd"); }));
  // Weights and values summed separately.
  ExpectNoAttention(NearMiss(
      [&](Build& b, NodeId s, NodeId v) { return b.Dot(SoftmaxOf(b, s, 2), v, "bqk,bjd->bqd"); }));
}

TEST(RecogniseAttentionLimitsTest, NearMissesOfScaleMaskAndKeptAxes) {
  auto kept = [](const Kept& w) {
    return NearMiss([&](Build& b, NodeId s, NodeId v) { return KeptSoftmax(b, s, v, w); });
  };
  EXPECT_EQ(Count(Recognised(Primitives(kept({}))), Op::kAttention), 1);
  // Factors with which the maximum would become the minimum, or scores would overflow that do not.
  for (double factor : {-0.5, 2.0, 1e-30, 0.0}) {
    ExpectNoAttention(kept({.scale = Kept::kDifference, .factor = factor}));
  }
  // A negative factor turns hidden keys (-inf) into visible ones.
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    auto iota = [&](int64_t axis) {
      return b.x.Add(Op::kIota, {},
                     {{"shape", b.x.Type(s).shape}, {"axis", axis}, {"dtype", DType::kI32}});
    };
    NodeId ahead = b.x.Add(Op::kLessThan, {iota(1), iota(2)});
    NodeId masked = b.x.Add(Op::kSelect, {ahead, b.x.FillLike(s, -kInf), s});
    return KeptSoftmax(b, Times(b, masked, -1), v, {});
  }));
  // A mask that may be -inf, as an input or by selection, also scaled.
  ExpectNoAttention(PaddingMasked(-kInf, false));
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    NodeId mask = b.In("m", b.x.Type(s).shape);
    return KeptSoftmax(b, b.x.Add(Op::kAdd, {s, mask}), v, {});
  }));
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    NodeId mask = b.x.Cast(b.In("m", b.x.Type(s).shape, DType::kBool), DType::kF32);
    return KeptSoftmax(b, Times(b, b.x.Add(Op::kAdd, {s, mask}), 0.5), v, {});
  }));
  // The maximum over the queries, with keepdims.
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    const Shape shape = b.x.Type(s).shape;
    NodeId minus = Times(b, ReducedKept(b, Op::kMaxReduce, s, 1), -1);
    NodeId e = b.x.Add(Op::kExp, {b.x.Add(Op::kAdd, {s, Wide(b, minus, shape)})});
    NodeId total = Wide(b, ReducedKept(b, Op::kSumReduce, e, 2), shape);
    return b.Dot(b.x.Add(Op::kDiv, {e, total}), v, "bqk,bkd->bqd");
  }));
  // Without a maximum, it overflows where softmax does not.
  ExpectNoAttention(NearMiss([&](Build& b, NodeId s, NodeId v) {
    NodeId e = b.x.Add(Op::kExp, {s});
    NodeId total = Wide(b, ReducedKept(b, Op::kSumReduce, e, 2), b.x.Type(s).shape);
    return b.Dot(b.x.Add(Op::kDiv, {e, total}), v, "bqk,bkd->bqd");
  }));
}

// Runs Attention's own steps on these values; the composite's reference computes in a wider type.
std::vector<Tensor> Stepwise(const Graph& g, const std::vector<Tensor>& values) {
  absl::StatusOr<std::vector<Tensor>> outputs = Evaluate(Primitives(g), values);
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>();
}

TEST(RecogniseAttentionLimitsTest, AFactorBelowOneKeepsScoresFinite) {
  for (Kept::Scale scale :
       {Kept::kQueries, Kept::kKeys, Kept::kBoth, Kept::kViewedQueries, Kept::kScores}) {
    const Kept w{.scale = scale, .factor = 0.25};
    const Graph g = KeptAttention(w, false);
    const Graph r = Recognised(ComposeViews(Primitives(g)));
    ASSERT_EQ(Count(r, Op::kAttention), 1) << scale << ToText(g);
    const bool moved = scale == Kept::kScores;
    EXPECT_EQ(Count(r, Op::kMul) + Count(r, Op::kDiv), moved                  ? 0
                                                       : scale == Kept::kBoth ? 2
                                                                              : 1)
        << ToText(r);
    EXPECT_EQ(GetAttr<double>(r.nodes.back().attrs, "scale"), moved ? 0.25 : 1);
    ExpectSame(g, r);
    // The sum of the products overflows, but a quarter of it does not.
    std::vector<Tensor> values = RandomInputs(g, 1);
    for (size_t i : {0, 1}) {
      for (int64_t n = 0; n < values[i].elements(); ++n) {
        StoreScalar(values[i], n, Scalar::Float(DType::kF32, 1e19));
      }
    }
    const std::vector<Tensor> want = Stepwise(g, values), got = Stepwise(r, values);
    ASSERT_EQ(want.size(), got.size());
    EXPECT_EQ(std::isfinite(LoadScalar(want[0], 0).f), !moved);
    EXPECT_TRUE(CompareTensors(got[0], want[0], 1e-5, 0).ok())
        << scale << ": " << CompareTensors(got[0], want[0], 1e-5, 0);
  }
}

TEST(RecogniseAttentionLimitsTest, AFactorThatCannotMoveStaysOnTheQueries) {
  const Graph g = KeptAttention({.scale = Kept::kQueries, .factor = 1e-30}, false);
  const Graph r = Recognised(Primitives(g));
  EXPECT_EQ(Count(r, Op::kAttention), 1);
  EXPECT_EQ(Count(r, Op::kMul), 1) << ToText(r);
  ExpectSame(g, r);
}

TEST(RecogniseAttentionLimitsTest, AnotherUserOfAnInnerValue) {
  for (int which = 0; which < 2; ++which) {
    Build b;
    b.g.dims = {{"b", 2, 8}, {"s", 1, 64}};
    b.x = Expansion(&b.g);
    const Expr n = Expr::Symbol("b"), s = Expr::Symbol("s");
    NodeId q = b.In("q", {n, s, 4}), k = b.In("k", {n, s, 4}), v = b.In("v", {n, s, 4});
    NodeId scores = b.Dot(q, k, "bqd,bkd->bqk");
    NodeId p = SoftmaxOf(b, scores, 2);
    NodeId y = b.Dot(p, v, "bqk,bkd->bqd");
    ExpectNoAttention(which == 0 ? b.Done({y, p}) : b.Done({y, b.x.Add(Op::kTanh, {scores})}));
  }
}

TEST(RecogniseAttentionLimitsTest, SymbolicHeadSizeHasNoKernel) {
  Build b;
  b.g.dims = {{"b", 2, 8}, {"s", 1, 64}};
  b.x = Expansion(&b.g);
  const Expr n = Expr::Symbol("b"), s = Expr::Symbol("s");
  NodeId q = b.In("q", {3, n}), k = b.In("k", {s, n}), v = b.In("v", {s, 4});
  ExpectNoAttention(b.Done({b.Dot(SoftmaxOf(b, b.Dot(q, k, "qd,kd->qk"), 1), v, "qk,kd->qd")}));
}

}  // namespace
}  // namespace athanor
