// Losses and random numbers.
#include <cmath>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

constexpr Elem kF = Elem::kFloat, kI64 = Elem::kInt64;
using Ints = std::vector<int64_t>;

// Log-probabilities [2, 3, 2] and classes [2, 2].
const Numbers kScores = {1, 2, 2, 2, 3, 2, 0, 1, 2, 2, 1, 2};
const Numbers kClasses = {2, 1, 0, 2};
const Numbers kLoss = {-3, -2, 0, -2};

OneNode Nll(const std::string& reduction, const Numbers& classes) {
  return OneNode("NegativeLogLikelihoodLoss", 13)
      .InDynamic(kF, {2, 3, 2}, kScores)
      .InDynamic(kI64, {2, 2}, classes)
      .Attr("reduction", reduction);
}

TEST(HandlersLossTest, Reductions) {
  const Tensor each = Nll("none", kClasses).Out(kF).Result();
  EXPECT_EQ(each.shape, (Ints{2, 2}));
  EXPECT_EQ(ValuesOf(each), kLoss);
  EXPECT_EQ(Nll("sum", kClasses).Out(kF).Result(), Of(DType::kF32, {}, {-7}));
  ExpectNear(Nll("mean", kClasses).Out(kF).Values(), {-7.0 / 4});
  EXPECT_FALSE(Nll("most", kClasses).Out(kF).Error().empty());
}

TEST(HandlersLossTest, WeightsAndIgnored) {
  const Numbers weights = {0.5, 2, 4};
  EXPECT_EQ(Nll("none", kClasses).In(kF, {3}, weights).Out(kF).Values(), (Numbers{-12, -4, 0, -8}));
  ExpectNear(Nll("mean", kClasses).In(kF, {3}, weights).Out(kF).Values(), {-24 / 10.5});
  const Numbers ignored = {2, -5, 0, 2};
  EXPECT_EQ(Nll("none", ignored).Attr("ignore_index", int64_t{-5}).Out(kF).Values(),
            (Numbers{-3, 0, 0, -2}));
  ExpectNear(Nll("mean", ignored).Attr("ignore_index", int64_t{-5}).Out(kF).Values(), {-5.0 / 3});
  ExpectNear(
      Nll("mean", ignored).In(kF, {3}, weights).Attr("ignore_index", int64_t{-5}).Out(kF).Values(),
      {-20 / 8.5});
}

TEST(HandlersLossTest, NoClassIsAnErrorOfTheRequest) {
  for (double wrong : {-1.0, 3.0}) {
    const absl::Status status = Nll("sum", {wrong, 0, 0, 0}).Out(kF).Run().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  }
  EXPECT_FALSE(OneNode("NegativeLogLikelihoodLoss", 13)
                   .In(kF, {2, 3}, Numbers(6, 0))
                   .In(kI64, {3}, {0, 0, 0})
                   .Out(kF)
                   .Error()
                   .empty());
}

TEST(HandlersLossTest, SoftmaxCrossEntropyWithItsLogProbabilities) {
  const double log_sum = std::log(std::exp(1) + std::exp(2) + std::exp(4));
  const std::vector<Tensor> y = OneNode("SoftmaxCrossEntropyLoss", 13)
                                    .In(kF, {1, 3}, {1, 2, 4})
                                    .In(Elem::kInt32, {1}, {1})
                                    .Out(kF)
                                    .Out(kF)
                                    .Results();
  ExpectNear(ValuesOf(y[0]), {log_sum - 2});
  ExpectNear(ValuesOf(y[1]), {1 - log_sum, 2 - log_sum, 4 - log_sum});
}

// --- random numbers

OneNode Draw(const std::string& op) { return OneNode(op, 22).Attr("shape", Ints{200, 100}); }

struct Summary {
  double mean = 0, variance = 0, low = 1e9, high = -1e9;
};
Summary Of20000(const Numbers& x) {
  EXPECT_EQ(x.size(), 20'000U);
  Summary s;
  for (double v : x) {
    s.mean += v / static_cast<double>(x.size());
    s.low = std::min(s.low, v), s.high = std::max(s.high, v);
  }
  for (double v : x) s.variance += (v - s.mean) * (v - s.mean) / static_cast<double>(x.size());
  return s;
}

TEST(HandlersRandomTest, UniformAndNormal) {
  const Summary u = Of20000(Draw("RandomUniform")
                                .Attr("low", -1.0F)
                                .Attr("high", 3.0F)
                                .Attr("seed", 2.0F)
                                .Out(kF)
                                .Values());
  EXPECT_GE(u.low, -1);
  EXPECT_LE(u.high, 3);
  EXPECT_NEAR(u.mean, 1, 0.05);
  EXPECT_NEAR(u.variance, 16.0 / 12, 0.05);
  const Summary n = Of20000(Draw("RandomNormal")
                                .Attr("mean", 2.0F)
                                .Attr("scale", 3.0F)
                                .Attr("seed", 2.0F)
                                .Attr("dtype", int64_t{11})
                                .Out(Elem::kDouble)
                                .Values());
  EXPECT_NEAR(n.mean, 2, 0.1);
  EXPECT_NEAR(n.variance, 9, 0.4);
  EXPECT_LT(n.low, -6);
}

TEST(HandlersRandomTest, SeedsAreNeededAndTellNodesApart) {
  EXPECT_NE(Draw("RandomUniform").Out(kF).Error().find("no seed"), std::string::npos);
  const Numbers once = Draw("RandomUniform").Seed(7).Out(kF).Values();
  EXPECT_EQ(once, Draw("RandomUniform").Seed(7).Out(kF).Values());
  EXPECT_NE(once, Draw("RandomUniform").Seed(8).Out(kF).Values());
  EXPECT_NE(once, Draw("RandomUniform").Attr("seed", 7.0F).Out(kF).Values());
}

TEST(HandlersRandomTest, BernoulliAndMultinomial) {
  const auto chance = [](double p) {
    return OneNode("Bernoulli", 22)
        .In(Elem::kFloat16, {20'000}, Numbers(20'000, p))
        .Attr("seed", 1.0F)
        .Attr("dtype", int64_t{6})
        .Out(Elem::kInt32)
        .Values();
  };
  EXPECT_NEAR(Of20000(chance(0.25)).mean, 0.25, 0.02);
  EXPECT_EQ(Of20000(chance(0)).high, 0);
  EXPECT_EQ(Of20000(chance(1)).low, 1);
  // Log-probabilities without normalisation; the ratio is 1 to 3.
  const Numbers drawn = OneNode("Multinomial", 22)
                            .In(kF, {1, 3}, {-1e30, 5, 5 + std::log(3)})
                            .Attr("sample_size", int64_t{20'000})
                            .Attr("seed", 1.0F)
                            .Out(Elem::kInt32)
                            .Values();
  const Summary s = Of20000(drawn);
  EXPECT_EQ(s.low, 1);
  EXPECT_EQ(s.high, 2);
  EXPECT_NEAR(s.mean, 1.75, 0.02);
}

}  // namespace
}  // namespace athanor::onnx
