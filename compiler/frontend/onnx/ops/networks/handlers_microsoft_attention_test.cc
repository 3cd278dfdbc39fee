// com.microsoft's attention against results of ONNX Runtime 1.31: causality with different numbers
// of keys, scores as a result, sinks; and norms of heads against their definition.
#include <cmath>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

constexpr Elem kF = Elem::kFloat, kI32 = Elem::kInt32;
constexpr double kLowest = -0x1.FFFFFEp127;

OneNode Heads(int64_t keys) {
  const bool three = keys == 3;
  return OneNode("MultiHeadAttention", 17, "com.microsoft")
      .In(kF, {1, 3, 2}, {1, 0, 0.5, 1, -1, 2})
      .In(kF, {1, keys, 2}, three ? Numbers{1, 1, 0, -1, 2, 0} : Numbers{1, 1, 0, -1})
      .In(kF, {1, keys, 2}, three ? Numbers{1, 2, 3, 5, 0, -1} : Numbers{1, 2, 3, 5})
      .Attr("num_heads", int64_t{1})
      .Attr("scale", 0.5F);
}

std::vector<Tensor> WithScores(OneNode node) {
  return node.Out(kF).Unwanted().Unwanted().Out(kF).Results();
}

TEST(MultiHeadAttentionTest, CausalityCountsFromTheFirstKey) {
  const std::vector<Tensor> fewer = WithScores(Heads(2).Attr("unidirectional", int64_t{1}));
  ExpectNear(ValuesOf(fewer[0]), {1, 2, 1.4454004, 2.6681006, 1.364851, 2.5472765});
  ExpectNear(ValuesOf(fewer[1]), {0.5, kLowest, 0.75, -0.5, 0.5, -1});
  const std::vector<Tensor> same = WithScores(Heads(3).Attr("unidirectional", int64_t{1}));
  ExpectNear(ValuesOf(same[0]), {1, 2, 1.4454004, 2.6681006, 1.1542807, 1.9999999});
  ExpectNear(ValuesOf(same[1]), {0.5, kLowest, kLowest, 0.75, -0.5, kLowest, 0.5, -1, -1});
}

TEST(MultiHeadAttentionTest, TheLastQuerySeesAllKeys) {
  ExpectNear(OneNode("MultiHeadAttention", 17, "com.microsoft")
                 .In(kF, {1, 1, 2}, {1, 0})
                 .In(kF, {1, 2, 2}, {1, 1, 0, -1})
                 .In(kF, {1, 2, 2}, {1, 2, 3, 5})
                 .Attr("num_heads", int64_t{1})
                 .Attr("unidirectional", int64_t{1})
                 .Attr("scale", 0.5F)
                 .Out(kF)
                 .Values(),
             {1.7550814, 3.1326222});
}

TEST(MultiHeadAttentionTest, ScoresHaveTheMaskAndTheBias) {
  const std::vector<Tensor> y =
      WithScores(Heads(3)
                     .Omit()
                     .In(kI32, {1, 3}, {1, 1, 0})
                     .In(kF, {1, 1, 3, 3}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9}));
  ExpectNear(ValuesOf(y[0]), {1.8026246, 3.2039368, 1.480978, 2.721467, 1.3956323, 2.5934484});
  ExpectNear(ValuesOf(y[1]), {0.6, 0.2, -9998.7, 1.15, 0, -9998.9, 1.2, -0.2, -10000.1}, 1e-5);
}

// Two heads of 16 elements, of which the first three are set, over a past of one key.
OneNode Grouped() {
  Numbers q(64), k(32), v(32), past_k(16), past_v(16);
  q[0] = 1, q[16] = -1, q[32] = 2, q[49] = 1;
  k[0] = 1, k[17] = 2;
  v[0] = 1, v[17] = 1;
  past_k[0] = 0.5, past_v[2] = 1;
  return OneNode("GroupQueryAttention", 17, "com.microsoft")
      .In(kF, {1, 2, 32}, q)
      .In(kF, {1, 2, 16}, k)
      .In(kF, {1, 2, 16}, v)
      .In(kF, {1, 1, 1, 16}, past_k)
      .In(kF, {1, 1, 1, 16}, past_v)
      .In(kI32, {1}, {2})
      .Fixed(kI32, {}, {3})
      .Attr("num_heads", int64_t{2})
      .Attr("kv_num_heads", int64_t{1})
      .Attr("scale", 0.5F);
}

// Returns the first three elements of each head.
Numbers Firsts(const Tensor& y) {
  const Numbers all = ValuesOf(y);
  Numbers firsts;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i % 16 < 3) firsts.push_back(all[i]);
  }
  return firsts;
}

const Numbers kPlain = {0.5621765, 0,         0.4378235, 0.4378235, 0,         0.5621765,
                        0.5064804, 0.1863237, 0.3071959, 0.2119416, 0.5761169, 0.2119416};
const Numbers kSmooth = {0.419229,  0,         0.3264959, 0.2542752, 0,         0.3264959,
                         0.4269327, 0.1570598, 0.2589478, 0.1748777, 0.4753669, 0.1748777};

TEST(GroupQueryAttentionTest, Sinks) {
  ExpectNear(Firsts(Grouped().Out(kF).Result()), kPlain);
  ExpectNear(Firsts(Grouped().Attr("smooth_softmax", int64_t{1}).Out(kF).Result()), kSmooth);
  const auto sunk = [](const Numbers& sinks) {
    OneNode node = Grouped();
    for (int i = 0; i < 4; ++i) node.Omit();
    return node.In(kF, {static_cast<int64_t>(sinks.size())}, sinks).Out(kF);
  };
  ExpectNear(Firsts(sunk({0, 0}).Result()), kSmooth);
  ExpectNear(Firsts(sunk({1, -0.5}).Result()),
             {0.291756, 0, 0.2272198, 0.3045044, 0, 0.3909913, 0.3362011, 0.1236815, 0.2039163,
              0.1878, 0.5104935, 0.1878});
  EXPECT_NE(sunk({1}).Error().find("head_sink has shape [1]; it must be [2]"), std::string::npos);
}

TEST(GroupQueryAttentionTest, ScoresBeforeAndAfterTheSoftmax) {
  const auto scores = [](OneNode node) {
    return ValuesOf(node.Out(kF).Unwanted().Unwanted().Out(kF).Results()[1]);
  };
  const auto kept = [](int64_t which) { return Grouped().Attr("qk_output", which); };
  ExpectNear(scores(kept(1)), {0.25, 0.5, 0, 0.5, 1, 0, -0.25, -0.5, 0, 0, 0, 1});
  ExpectNear(scores(kept(2)), {0.4378235, 0.5621765, 0, 0.3071959, 0.5064804, 0.1863237, 0.5621765,
                               0.4378235, 0, 0.2119416, 0.2119416, 0.5761169});
  ExpectNear(scores(kept(1).Attr("softcap", 0.5F)),
             {0.2310586, 0.3807971, 0, 0.3807971, 0.4820138, 0, -0.2310586, -0.3807971, 0, 0, 0,
              0.4820138});
  ExpectNear(scores(kept(1).Attr("local_window_size", int64_t{2})),
             {0.25, 0.5, 0, 0, 1, 0, -0.25, -0.5, 0, 0, 0, 1});
  ExpectNear(scores(kept(2).Attr("smooth_softmax", int64_t{1})),
             {0.3264959, 0.419229, 0, 0.2589478, 0.4269327, 0.1570598, 0.3264959, 0.2542752, 0,
              0.1748777, 0.1748777, 0.4753669});
}

TEST(GroupQueryAttentionTest, NormsOfHeads) {
  OneNode node = Grouped();
  for (int i = 0; i < 7; ++i) node.Omit();
  const Tensor keys = node.In(kF, {16}, Numbers(16, 2))
                          .In(kF, {16}, Numbers(16, 3))
                          .Attr("qk_norm_epsilon", 0.5F)
                          .Out(kF)
                          .Out(kF)
                          .Results()[1];
  // The past is unchanged; the one new element that is set is divided by the root.
  const Numbers all = ValuesOf(keys);
  EXPECT_EQ(all[0], 0.5);
  EXPECT_NEAR(all[16], 3 / std::sqrt(1.0 / 16 + 0.5), 1e-6);
  EXPECT_NEAR(all[33], 3 * 2 / std::sqrt(4.0 / 16 + 0.5), 1e-6);
}

}  // namespace
}  // namespace athanor::onnx
