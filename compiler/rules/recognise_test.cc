#include "compiler/rules/recognise.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "compiler/ir/compare.h"
#include "compiler/rules/decompose.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

int Count(const Graph& g, Op op) {
  int count = 0;
  for (const Node& n : g.nodes) count += n.op == op;
  return count;
}

Graph Primitives(Graph g) {
  while (true) {
    bool any = false;
    for (const Node& n : g.nodes) any = any || OpInfo(n.op).composite();
    if (!any) return Canonicalize(g);
    absl::StatusOr<Graph> d = Decompose(g, [](const Node& n) { return OpInfo(n.op).composite(); });
    EXPECT_TRUE(d.ok()) << d.status();
    if (!d.ok()) return g;
    g = *std::move(d);
  }
}

Graph Recognised(const Graph& g) {
  absl::StatusOr<Graph> r = Recognise(g);
  EXPECT_TRUE(r.ok()) << r.status();
  if (!r.ok()) return g;
  EXPECT_TRUE(Verify(*r).ok()) << Verify(*r);
  return Canonicalize(*r);
}

// Inputs of random normal values, `b` = 2 and every other dim 5.
std::vector<Tensor> RandomInputs(const Graph& g, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal(0, 1);
  std::vector<Tensor> inputs;
  for (NodeId id : g.InputIds()) {
    const TensorType& type = g.node(id).type;
    Expr::Env env;
    for (const Dim& d : g.dims) env[d.name] = d.min == 2 ? 2 : 5;
    std::vector<int64_t> shape;
    for (const Expr& e : type.shape) shape.push_back(*e.Evaluate(env));
    Tensor t = Tensor::Zeros(type.dtype, shape);
    for (int64_t i = 0; i < t.elements(); ++i) {
      double v = normal(rng);
      StoreScalar(t, i,
                  type.dtype == DType::kBool ? Scalar::Unsigned(type.dtype, v > 0)
                                             : Scalar::Float(type.dtype, v));
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

void ExpectSame(const Graph& want, const Graph& got, double relative = 1e-5) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    std::vector<Tensor> inputs = RandomInputs(want, seed);
    auto a = Evaluate(want, inputs), b = Evaluate(got, inputs);
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    for (size_t i = 0; i < a->size(); ++i) {
      absl::Status same = CompareTensors((*b)[i], (*a)[i], relative, relative);
      EXPECT_TRUE(same.ok()) << same;
    }
  }
}

struct Build {
  Graph g;
  Expansion x{&g};
  NodeId In(const std::string& name, Shape shape, DType t = DType::kF32) {
    g.nodes.push_back({Op::kInput, {}, {}, {t, std::move(shape)}, name});
    return static_cast<NodeId>(g.nodes.size()) - 1;
  }
  NodeId Dot(NodeId a, NodeId b, const std::string& spec) {
    return x.Add(Op::kContract, {a, b}, {{"spec", spec}});
  }
  Graph Done(std::vector<NodeId> outputs) {
    EXPECT_TRUE(x.status().ok()) << x.status();
    for (NodeId n : outputs) g.outputs.push_back({"y" + std::to_string(g.outputs.size()), n});
    return g;
  }
};

Expr A(int i) { return Expr::Axis(i); }

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
      // Nothing but the operands and the contraction is left.
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
  // q[b, s, 4*h + d] * k[b, t, 4*h + d] over d, as one view each; the operands are the heads.
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
  // rounded first.
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

// How the softmax of scores is written.
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
  // The values first.
  Writing plain = w;
  const std::string turned = va.rhs + "," + va.lhs + "->" + va.result;
  return b.Done({Softmaxed(b, scores, v, axis, plain, turned)});
}

TEST(RecogniseTest, AttentionAsPeopleWriteIt) {
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

TEST(RecogniseTest, AttentionWithLettersInAnyOrder) {
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

TEST(RecogniseTest, AttentionItselfDecomposed) {
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

// Graphs that are nearly attention.
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

TEST(RecogniseTest, NearMissesOfAttention) {
  const std::string values = "bqk,bkd->bqd";
  // The plain form is found, so that what follows differs only in what it says.
  Graph plain =
      NearMiss([&](Build& b, NodeId s, NodeId v) { return b.Dot(SoftmaxOf(b, s, 2), v, values); });
  EXPECT_EQ(Count(Recognised(Primitives(plain)), Op::kAttention), 1);
  // Softmax over the queries.
  ExpectNoAttention(
      NearMiss([&](Build& b, NodeId s, NodeId v) { return b.Dot(SoftmaxOf(b, s, 1), v, values); }));
  // A factor for every query.
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
  // A mask that may hide whole rows: softmax gives NaN there.
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
  // Weights and values summed each for itself.
  ExpectNoAttention(NearMiss(
      [&](Build& b, NodeId s, NodeId v) { return b.Dot(SoftmaxOf(b, s, 2), v, "bqk,bjd->bqd"); }));
}

TEST(RecogniseTest, AnotherUserOfAnInnerValue) {
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

TEST(RecogniseTest, SymbolicHeadSizeHasNoKernel) {
  Build b;
  b.g.dims = {{"b", 2, 8}, {"s", 1, 64}};
  b.x = Expansion(&b.g);
  const Expr n = Expr::Symbol("b"), s = Expr::Symbol("s");
  NodeId q = b.In("q", {3, n}), k = b.In("k", {s, n}), v = b.In("v", {s, 4});
  ExpectNoAttention(b.Done({b.Dot(SoftmaxOf(b, b.Dot(q, k, "qd,kd->qk"), 1), v, "qk,kd->qd")}));
}

TEST(RecogniseTest, DivisionLastNeedsAKey) {
  Spec s;
  s.length = Expr::Symbol("s") - 1;  // may be none
  Graph g = AttentionGraph({.last = true}, s);
  EXPECT_EQ(Count(Recognised(Primitives(g)), Op::kAttention), 0);
  EXPECT_EQ(Count(Recognised(Primitives(AttentionGraph({}, s))), Op::kAttention), 1);
}

TEST(RecogniseTest, EveryRowFires) {
  Build b;
  NodeId turned = b.x.Map(b.In("q", {4, 5}, DType::kF16), {5, 4}, {A(1), A(0)});
  Graph viewed = b.Done({b.Dot(b.In("p", {3, 4}, DType::kF16), turned, "mk,nk->mn")});
  std::vector<std::string> fired;
  for (Graph g : {viewed, Primitives(viewed), Primitives(AttentionGraph({}))}) {
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
