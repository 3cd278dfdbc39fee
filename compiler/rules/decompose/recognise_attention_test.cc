// The attention row: the ways to write attention that it matches.
#include <string>
#include <utility>
#include <vector>

#include "compiler/rules/decompose/recognise_testing.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

// Form in which the softmax of scores is written.
struct Writing {
  bool recip = false;         // e * (1 / sum)
  bool last = false;          // contract(e, v) / sum
  bool divide_scale = false;  // scores / sqrt(D)
  bool keepdims = false;      // maxima and sums as [..., 1] in between
  bool negate_first = false;  // repeat(-max)
  bool causal = false;
};

struct Spec {
  std::string scores = "bhqd,bhkd->bhqk", values = "bhqk,bhkd->bhqd";
  Expr length = Expr::Symbol("s");
};

Shape ShapeOf(const std::string& letters, const Expr& length) {
  Shape shape;
  for (char c : letters) {
    shape.push_back(c == 'b'   ? Expr::Symbol("b")
                    : c == 'h' ? Expr(3)
                    : c == 'd' ? Expr(4)
                               : length);
  }
  return shape;
}

NodeId Softmaxed(Build& b, NodeId scores, NodeId v, int64_t axis, const Writing& w,
                 const std::string& spec) {
  Expansion& x = b.x;
  const Shape shape = x.Type(scores).shape;
  auto repeat = [&](NodeId n) {
    if (!w.keepdims) return x.Repeat(n, axis, shape);
    Shape one = shape;
    one[axis] = 1;
    NodeId kept = x.Repeat(n, axis, one);
    std::vector<Expr> at;
    for (size_t i = 0; i < shape.size(); ++i) {
      at.push_back(static_cast<int64_t>(i) == axis ? Expr(0) : A(static_cast<int>(i)));
    }
    return x.Map(kept, shape, at);
  };
  NodeId peak = x.Reduce(Op::kMaxReduce, scores, {axis});
  NodeId shifted =
      w.negate_first
          ? x.Add(Op::kAdd, {repeat(x.Add(Op::kMul, {x.FillLike(peak, -1), peak})), scores})
          : x.Sub(scores, repeat(peak));
  NodeId e = x.Add(Op::kExp, {shifted});
  NodeId total = x.Reduce(Op::kSumReduce, e, {axis});
  if (w.last) {
    NodeId sum = b.Dot(e, v, spec);
    return x.Add(Op::kDiv, {sum, x.Repeat(total, 3, x.Type(sum).shape)});
  }
  NodeId p = w.recip ? x.Add(Op::kMul, {e, repeat(x.Add(Op::kRecip, {total}))})
                     : x.Add(Op::kDiv, {e, repeat(total)});
  return b.Dot(p, v, spec);
}

Graph AttentionGraph(const Writing& w, const Spec& s = {}, DType t = DType::kF32) {
  Build b;
  b.g.dims = {{"b", 2, 8}, {"s", 1, 64}};
  b.x = Expansion(&b.g);
  ContractSpec sc = *ContractSpec::Parse(s.scores), va = *ContractSpec::Parse(s.values);
  const std::string v_letters = va.lhs.find('d') == std::string::npos ? va.rhs : va.lhs;
  NodeId q = b.In("q", ShapeOf(sc.lhs, s.length), t), k = b.In("k", ShapeOf(sc.rhs, s.length), t);
  NodeId v = b.In("v", ShapeOf(v_letters, s.length), t);
  NodeId scores = b.Dot(q, k, s.scores);
  const double root = 2;
  scores = w.divide_scale ? b.x.Add(Op::kDiv, {scores, b.x.FillLike(scores, root)})
                          : b.x.Add(Op::kMul, {b.x.FillLike(scores, 1 / root), scores});
  const Shape shape = b.x.Type(scores).shape;
  if (w.causal) {
    auto iota = [&](int64_t axis) {
      return b.x.Add(Op::kIota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", DType::kI32}});
    };
    NodeId ahead = b.x.Add(Op::kLessThan, {iota(2), iota(3)});
    scores = b.x.Add(Op::kSelect, {ahead, b.x.FillLike(scores, -kInf), scores});
  }
  const int64_t axis = static_cast<int64_t>(sc.result.find('k'));
  if (v_letters == va.rhs) return b.Done({Softmaxed(b, scores, v, axis, w, s.values)});
  // Contracts with the values first.
  Writing plain = w;
  const std::string turned = va.rhs + "," + va.lhs + "->" + va.result;
  return b.Done({Softmaxed(b, scores, v, axis, plain, turned)});
}

TEST(RecogniseAttentionTest, AttentionAsPeopleWriteIt) {
  for (int bits = 0; bits < 64; ++bits) {
    Writing w{(bits & 1) != 0, (bits & 2) != 0,  (bits & 4) != 0,
              (bits & 8) != 0, (bits & 16) != 0, (bits & 32) != 0};
    Graph g = AttentionGraph(w);
    Graph primitives = Primitives(g);
    Graph r = Recognised(primitives);
    ASSERT_EQ(Count(r, Op::kAttention), 1) << bits << ToText(primitives);
    EXPECT_EQ(r.nodes.size(), 4u) << ToText(r);
    EXPECT_FALSE(r.nodes.back().attrs.contains("scale"));
    EXPECT_EQ(GetAttrOr<bool>(r.nodes.back().attrs, "causal", false), w.causal);
    ExpectSame(g, r);
  }
}

TEST(RecogniseAttentionTest, AttentionWithLettersInAnyOrder) {
  for (auto [scores, values] :
       {std::pair<const char*, const char*>{"bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"},
        {"qbhd,kbhd->bhqk", "bhqk,kbhd->qbhd"},
        {"dq,dk->qk", "qk,dk->dq"},
        {"bhqd,bhkd->kqbh", "kqbh,bhkd->bqhd"},
        {"hqd,kd->hqk", "hqk,kd->hqd"},  // one key head for all queries
        {"bkhd,bqhd->bhqk", "bhqk,bkhd->bqhd"}}) {
    Spec s{scores, values};
    Graph g = AttentionGraph({}, s);
    Graph r = Recognised(Primitives(g));
    ASSERT_EQ(Count(r, Op::kAttention), 1) << scores << ToText(Primitives(g));
    EXPECT_EQ(Count(r, Op::kExp), 0);
    ExpectSame(g, r);
  }
}

TEST(RecogniseAttentionTest, AttentionItselfDecomposed) {
  for (DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    for (int form = 0; form < 8; ++form) {
      Build b;
      b.g.dims = {{"b", 2, 8}, {"s", 0, 64}, {"u", 0, 64}};
      b.x = Expansion(&b.g);
      const Expr n = Expr::Symbol("b"), s = Expr::Symbol("s"), u = Expr::Symbol("u");
      std::vector<NodeId> in = {b.In("q", {n, 2, s, 32}, t), b.In("k", {n, 2, u, 32}, t),
                                b.In("v", {n, 2, u, 6}, t)};
      if (form % 4 == 1) in.push_back(b.In("m", {s, u}, DType::kBool));
      if (form % 4 == 2) in.push_back(b.In("m", {n, 1, s, u}, t));
      Attrs attrs;
      if (form >= 4) attrs["causal"] = true;
      if (form % 4 == 3) attrs["scale"] = 0.25;
      Graph g = b.Done({b.x.Add(Op::kAttention, in, attrs)});
      Graph r = Recognised(Primitives(g));
      ASSERT_EQ(Count(r, Op::kAttention), 1) << DTypeName(t) << form << ToText(Primitives(g));
      EXPECT_EQ(Count(r, Op::kExp), 0);
      if (form % 4 != 1 && form % 4 != 2) {
        EXPECT_EQ(CanonicalHash(r), CanonicalHash(g)) << ToText(r);
      }
      ExpectSame(g, r, t == DType::kF32 || t == DType::kF64 ? 1e-5 : 1e-2);
    }
  }
}

TEST(RecogniseAttentionTest, DivisionLastNeedsAKey) {
  Spec s;
  s.length = Expr::Symbol("s") - 1;  // may be 0
  Graph g = AttentionGraph({.last = true}, s);
  EXPECT_EQ(Count(Recognised(Primitives(g)), Op::kAttention), 0);
  EXPECT_EQ(Count(Recognised(Primitives(AttentionGraph({}, s))), Op::kAttention), 1);
}

}  // namespace
}  // namespace athanor
