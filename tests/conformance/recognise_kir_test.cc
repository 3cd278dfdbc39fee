// A graph written in primitives compiles to the same kernels as the same graph written in
// composites. Compares the kernels' KIR hashes for one layer of a transformer encoder and for an
// encoder built with the Python SDK both ways (tests/models/make_testdata.py).
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "compiler/pipeline/pipeline.h"
#include "compiler/rules/decompose/decompose.h"
#include "gtest/gtest.h"
#include "tests/models/text_graph.h"

namespace athanor {
namespace {

constexpr int kModel = 64, kHeads = 4, kHead = 16, kHidden = 160;

v1::Target Avx512() {
  v1::Target t;
  t.set_device("cpu");
  t.set_triple("x86_64-pc-linux-gnu");
  t.set_cpu("znver4");
  t.set_vector_bytes(64);
  t.set_vector_registers(32);
  t.set_l1_bytes(32 << 10);
  t.set_l2_bytes(1 << 20);
  t.set_l3_bytes(32 << 20);
  t.set_threads(2);
  return t;
}

Expr A(int i) { return Expr::Axis(i); }

// Builds one layer as a person would, with composites or with `primitives`.
class Layer {
 public:
  Layer(DType dtype, bool primitives, bool causal)
      : t_(dtype), primitives_(primitives), causal_(causal) {
    g_.dims = {{"b", 1, 16}, {"s", 1, 128}};
    x_ = Expansion(&g_);
  }

  Graph Build() {
    g_.nodes.push_back(
        {Op::kInput, {}, {}, {t_, {Expr::Symbol("b"), Expr::Symbol("s"), kModel}}, "x"});
    NodeId x = 0;
    NodeId y = Norm(Sum(x, Projected(Attended(x), "o", kModel, kModel)), "norm1");
    NodeId hidden = Gelu(Projected(y, "up", kModel, kHidden));
    y = Norm(Sum(y, Projected(hidden, "down", kHidden, kModel)), "norm2");
    EXPECT_TRUE(x_.status().ok()) << x_.status();
    g_.outputs.push_back({"y", y});
    EXPECT_TRUE(Verify(g_).ok()) << Verify(g_);
    return g_;
  }

 private:
  NodeId Parameter(const std::string& name, Shape shape) {
    g_.nodes.push_back({Op::kParameter, {}, {}, {t_, std::move(shape)}, name});
    return static_cast<NodeId>(g_.nodes.size()) - 1;
  }
  const Shape& ShapeOf(NodeId n) const { return g_.nodes[n].type.shape; }
  NodeId Sum(NodeId a, NodeId b) { return x_.Add(Op::kAdd, {a, b}); }
  NodeId Times(NodeId a, NodeId b) { return x_.Add(Op::kMul, {a, b}); }
  NodeId AlongLast(NodeId v, NodeId like) {
    const Shape shape = ShapeOf(like);
    return x_.Map(v, shape, {A(static_cast<int>(shape.size()) - 1)});
  }

  NodeId Projected(NodeId x, const std::string& name, int from, int to) {
    NodeId w = Parameter(name + ".w", {from, to}), bias = Parameter(name + ".b", {to});
    NodeId y;
    if (primitives_) {
      // x[b, s, 1, k] * w[k, n], transposed
      const Shape s = ShapeOf(x);
      const Shape joint = {s[0], s[1], to, from};
      NodeId wide = x_.Map(x_.Map(x, {s[0], s[1], 1, from}, {A(0), A(1), A(3)}), joint,
                           {A(0), A(1), 0, A(3)});
      NodeId turned = x_.Map(x_.Map(w, {to, from}, {A(1), A(0)}), joint, {A(2), A(3)});
      y = x_.Reduce(Op::kSumReduce, Times(wide, turned), {3});
    } else {
      y = x_.Add(Op::kContract, {x, w}, {{"spec", std::string("bsk,kn->bsn")}});
    }
    return Sum(y, AlongLast(bias, y));
  }

  NodeId Split(NodeId x) {
    const Shape s = ShapeOf(x);
    NodeId split = x_.Map(x, {s[0], s[1], kHeads, kHead}, {A(0), A(1), A(2) * kHead + A(3)});
    return x_.Map(split, {s[0], kHeads, s[1], kHead}, {A(0), A(2), A(1), A(3)});
  }

  NodeId Attended(NodeId x) {
    NodeId q = Split(Projected(x, "q", kModel, kModel)),
           k = Split(Projected(x, "k", kModel, kModel)),
           v = Split(Projected(x, "v", kModel, kModel));
    Attrs attrs;
    if (causal_) attrs["causal"] = true;
    NodeId y = primitives_ ? AttentionByHand(q, k, v) : x_.Add(Op::kAttention, {q, k, v}, attrs);
    const Shape s = ShapeOf(y);
    NodeId turned = x_.Map(y, {s[0], s[2], kHeads, kHead}, {A(0), A(2), A(1), A(3)});
    return x_.Map(turned, {s[0], s[2], kModel},
                  {A(0), A(1), FloorDiv(A(2), kHead), Mod(A(2), kHead)});
  }

  NodeId AttentionByHand(NodeId q, NodeId k, NodeId v) {
    const Shape s = ShapeOf(q);
    const Shape joint = {s[0], s[1], s[2], s[2], kHead}, shape = {s[0], s[1], s[2], s[2]};
    NodeId scores = x_.Reduce(Op::kSumReduce,
                              Times(x_.Map(q, joint, {A(0), A(1), A(2), A(4)}),
                                    x_.Map(k, joint, {A(0), A(1), A(3), A(4)})),
                              {4});
    scores = x_.Add(Op::kDiv, {scores, x_.FillLike(scores, std::sqrt(double{kHead}))});
    if (causal_) {
      auto iota = [&](int64_t axis) {
        return x_.Add(Op::kIota, {}, {{"shape", shape}, {"axis", axis}, {"dtype", DType::kI32}});
      };
      NodeId ahead = x_.Add(Op::kLessThan, {iota(2), iota(3)});
      scores =
          x_.Add(Op::kSelect,
                 {ahead, x_.FillLike(scores, -std::numeric_limits<double>::infinity()), scores});
    }
    NodeId e = x_.Add(
        Op::kExp, {x_.Sub(scores, x_.Repeat(x_.Reduce(Op::kMaxReduce, scores, {3}), 3, shape))});
    NodeId weights = x_.Add(Op::kDiv, {e, x_.Repeat(x_.Reduce(Op::kSumReduce, e, {3}), 3, shape)});
    const Shape values = {s[0], s[1], s[2], kHead, s[2]};
    return x_.Reduce(Op::kSumReduce,
                     Times(x_.Map(weights, values, {A(0), A(1), A(2), A(4)}),
                           x_.Map(v, values, {A(0), A(1), A(4), A(3)})),
                     {4});
  }

  NodeId Gelu(NodeId x) {
    if (!primitives_) return x_.Add(Op::kGelu, {x});
    NodeId finite = x_.Add(
        Op::kMax,
        {x, x_.FillLike(x, t_ == DType::kF64 ? std::numeric_limits<double>::lowest()
                                             : double{std::numeric_limits<float>::lowest()})});
    NodeId gate = x_.Add(Op::kErf, {Times(x, x_.FillLike(x, std::sqrt(0.5)))});
    return Times(Times(finite, x_.FillLike(x, 0.5)), Sum(gate, x_.FillLike(gate, 1)));
  }

  NodeId Norm(NodeId x, const std::string& name) {
    NodeId scale = Parameter(name + ".scale", {kModel}), bias = Parameter(name + ".bias", {kModel});
    if (!primitives_) return x_.Add(Op::kLayerNorm, {x, scale, bias}, {{"epsilon", 1e-5}});
    const Shape shape = ShapeOf(x);
    auto mean = [&](NodeId v) {
      NodeId sum = x_.Reduce(Op::kSumReduce, v, {2});
      return x_.Add(Op::kDiv, {sum, x_.FillLike(sum, kModel)});
    };
    NodeId centred = x_.Sub(x, x_.Repeat(mean(x), 2, shape));
    NodeId variance = mean(Times(centred, centred));
    NodeId root = x_.Add(Op::kSqrt, {Sum(variance, x_.FillLike(variance, 1e-5))});
    NodeId normal = Times(centred, x_.Repeat(x_.Add(Op::kRecip, {root}), 2, shape));
    return Sum(Times(normal, AlongLast(scale, x)), AlongLast(bias, x));
  }

  Graph g_;
  Expansion x_{&g_};
  DType t_;
  bool primitives_, causal_;
};

std::map<std::string, std::string> KernelsOf(const Graph& g) {
  absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(g, Avx512());
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::map<std::string, std::string> kernels;
  if (!plan.ok()) return kernels;
  for (const v1::Kernel& k : plan->kernels()) kernels[k.kir_hash()] = k.name();
  EXPECT_GE(kernels.size(), 5u);
  return kernels;
}

class RecogniseKirTest : public testing::TestWithParam<std::tuple<DType, bool>> {};

TEST_P(RecogniseKirTest, EncoderLayerInPrimitivesHasTheKernelsOfComposites) {
  const auto [dtype, causal] = GetParam();
  EXPECT_EQ(KernelsOf(Layer(dtype, true, causal).Build()),
            KernelsOf(Layer(dtype, false, causal).Build()));
}

// The composites' decompositions compile to the composites' kernels too.
TEST_P(RecogniseKirTest, DecomposedEncoderLayerHasTheKernelsOfComposites) {
  const auto [dtype, causal] = GetParam();
  const Graph composites = Layer(dtype, false, causal).Build();
  auto all = [](const Node& n) { return OpInfo(n.op).composite(); };
  absl::StatusOr<Graph> primitives = Decompose(composites, all);
  ASSERT_TRUE(primitives.ok());
  primitives = Decompose(*primitives, all);  // also the contractions inside attention
  ASSERT_TRUE(primitives.ok());
  EXPECT_EQ(KernelsOf(*primitives), KernelsOf(composites));
}

TEST(SdkEncoderTest, InPrimitivesHasTheKernelsOfComposites) {
  const Graph primitives = TestdataGraph("encoder_primitives");
  for (const Node& n : primitives.nodes) EXPECT_FALSE(OpInfo(n.op).composite());
  EXPECT_EQ(KernelsOf(primitives), KernelsOf(TestdataGraph("encoder_composites")));
}

INSTANTIATE_TEST_SUITE_P(Layers, RecogniseKirTest,
                         testing::Combine(testing::Values(DType::kF32, DType::kF64),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(DTypeName(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) ? "_causal" : "");
                         });

}  // namespace
}  // namespace athanor
