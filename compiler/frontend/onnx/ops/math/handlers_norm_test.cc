// Normalisations against their definitions in double, and changes between opsets.
#include <cmath>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

constexpr Elem kF = Elem::kFloat, kF16 = Elem::kFloat16;
constexpr double kEpsilon = 0.5;
using Ints = std::vector<int64_t>;

const Numbers kX = {1, 4, -2, 3, 0, 5, 7, -1, 2, 6, -3, 8};

// Normalises each run of `size` elements to mean 0 and variance 1.
Numbers Normal(const Numbers& x, int size, double epsilon = kEpsilon, bool mean = true) {
  Numbers y;
  for (size_t first = 0; first < x.size(); first += size) {
    double sum = 0, squares = 0;
    for (int i = 0; i < size; ++i) sum += x[first + i];
    const double m = mean ? sum / size : 0;
    for (int i = 0; i < size; ++i) squares += (x[first + i] - m) * (x[first + i] - m);
    for (int i = 0; i < size; ++i) {
      y.push_back((x[first + i] - m) / std::sqrt(squares / size + epsilon));
    }
  }
  return y;
}
// Computes y[i] * scale[(i / stride) % n] + bias[...].
Numbers Affine(Numbers y, const Numbers& scale, const Numbers& bias, int stride) {
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t at = i / stride % scale.size();
    y[i] = y[i] * scale[at] + (bias.empty() ? 0 : bias[at]);
  }
  return y;
}

TEST(BatchNormalizationTest, InferenceByOpset) {
  const Numbers scale = {2, -1}, bias = {1, 0.5}, mean = {1, 2}, variance = {3.5, 0.25};
  Numbers want;
  for (size_t i = 0; i < kX.size(); ++i) {
    const int c = static_cast<int>(i) / 3 % 2;
    want.push_back((kX[i] - mean[c]) / std::sqrt(variance[c] + kEpsilon) * scale[c] + bias[c]);
  }
  const auto run = [&](int64_t opset, Elem x, Elem params) {
    return OneNode("BatchNormalization", opset)
        .In(x, {2, 2, 3}, kX)
        .In(params, {2}, scale)
        .In(params, {2}, bias)
        .In(params, {2}, mean)
        .In(params, {2}, variance)
        .Attr("epsilon", 0.5F);
  };
  for (int64_t opset : {7, 9, 14, 15}) ExpectNear(run(opset, kF, kF).Out(kF).Values(), want);
  ExpectNear(run(15, kF16, kF).Out(kF16).Values(), want, 6e-4);
  ExpectNear(run(6, kF, kF).Attr("is_test", int64_t{1}).Out(kF).Values(), want);
  EXPECT_NE(run(6, kF, kF).Out(kF).Error().find("training"), std::string::npos);
  EXPECT_NE(run(7, kF, kF).Attr("spatial", int64_t{0}).Out(kF).Error().find("spatial=0"),
            std::string::npos);
  EXPECT_NE(run(9, kF, kF).Out(kF).Out(kF).Error().find("training"), std::string::npos);
}

TEST(BatchNormalizationTest, RunningMomentsAreOfTraining) {
  const std::string refused = OneNode("BatchNormalization", 15)
                                  .In(kF, {2, 1}, {1, 2})
                                  .In(kF, {1}, {1})
                                  .In(kF, {1}, {0})
                                  .In(kF, {1}, {0})
                                  .In(kF, {1}, {1})
                                  .Out(kF)
                                  .Out(kF)
                                  .Error();
  EXPECT_NE(refused.find("the others need training_mode=1"), std::string::npos) << refused;
}

TEST(BatchNormalizationTest, TrainingMode) {
  const std::vector<Tensor> y = OneNode("BatchNormalization", 15)
                                    .In(kF, {2, 1, 2}, {1, 2, 3, 6})
                                    .In(kF, {1}, {1})
                                    .In(kF, {1}, {0})
                                    .In(kF, {1}, {10})
                                    .In(kF, {1}, {20})
                                    .Attr("training_mode", int64_t{1})
                                    .Attr("epsilon", 0.5F)
                                    .Attr("momentum", 0.75F)
                                    .Out(kF)
                                    .Out(kF)
                                    .Out(kF)
                                    .Results();
  ExpectNear(ValuesOf(y[0]), Normal({1, 2, 3, 6}, 4));
  ExpectNear(ValuesOf(y[1]), {10 * 0.75 + 3 * 0.25});
  ExpectNear(ValuesOf(y[2]), {20 * 0.75 + 3.5 * 0.25});  // variance of the population
}

TEST(LayerNormalizationTest, RowOrPrimitives) {
  const auto run = [](Elem elem, int64_t axis) {
    return OneNode("LayerNormalization", 17)
        .InDynamic(elem, {2, 2, 3}, kX)
        .Attr("axis", axis)
        .Attr("epsilon", 0.5F);
  };
  const Numbers scale = {1, 2, 3}, bias = {0, -1, 1};
  const Numbers want = Affine(Normal(kX, 3), scale, bias, 1);
  ExpectNear(run(kF, -1).In(kF, {3}, scale).In(kF, {3}, bias).Out(kF).Values(), want);
  ExpectNear(run(kF16, 2).In(kF16, {3}, scale).In(kF16, {3}, bias).Out(kF16).Values(), want, 1e-3);
  ExpectNear(run(kF, 2).In(kF, {3}, scale).Out(kF).Values(), Affine(Normal(kX, 3), scale, {}, 1));
  // Two axes: a scale of exactly these axes, and one that broadcasts.
  const Numbers six = {1, 2, 3, 4, 5, 6};
  ExpectNear(run(kF, 1).In(kF, {2, 3}, six).Out(kF).Values(), Affine(Normal(kX, 6), six, {}, 1));
  ExpectNear(run(kF, 1).In(kF, {3}, scale).In(kF, {1}, {7}).Out(kF).Values(),
             Affine(Normal(kX, 6), scale, {7, 7, 7}, 1));
  const std::vector<Tensor> all =
      run(kF16, -1).In(kF16, {1}, {1}).Out(kF16).Out(kF).Out(kF).Results();
  EXPECT_EQ(all[1].shape, (Ints{2, 2, 1}));
  ExpectNear(ValuesOf(all[1]), {1, 8.0 / 3, 8.0 / 3, 11.0 / 3});
  EXPECT_NEAR(ValuesOf(all[2])[0], 1 / std::sqrt(6 + kEpsilon), 1e-6);
  EXPECT_FALSE(run(kF, 0).In(kF, {5}, {1, 1, 1, 1, 1}).Out(kF).Error().empty());
}

TEST(RmsNormalizationTest, RowOrPrimitives) {
  const auto run = [](Elem elem) {
    return OneNode("RMSNormalization", 23).InDynamic(elem, {4, 3}, kX).Attr("epsilon", 0.5F);
  };
  const Numbers scale = {1, 2, 3};
  const Numbers want = Affine(Normal(kX, 3, kEpsilon, false), scale, {}, 1);
  ExpectNear(run(kF).In(kF, {3}, scale).Out(kF).Values(), want);
  ExpectNear(run(kF).In(kF, {1}, {2}).Out(kF).Values(),
             Affine(Normal(kX, 3, kEpsilon, false), {2}, {}, 1));
  ExpectNear(run(kF16).In(kF, {3}, scale).Out(kF).Values(), want);  // scale's type
}

TEST(InstanceNormalizationTest, PerChannel) {
  const Numbers scale = {2, -1}, bias = {1, 3};
  ExpectNear(OneNode("InstanceNormalization", 22)
                 .InDynamic(kF, {2, 2, 3}, kX)
                 .In(kF, {2}, scale)
                 .In(kF, {2}, bias)
                 .Attr("epsilon", 0.5F)
                 .Out(kF)
                 .Values(),
             Affine(Normal(kX, 3), scale, bias, 3));
  EXPECT_NE(OneNode("InstanceNormalization", 6)
                .In(kF, {2, 2, 3}, kX)
                .In(kF, {3}, {1, 1, 1})
                .In(kF, {2}, bias)
                .Out(kF)
                .Error()
                .find("scale has shape [3]"),
            std::string::npos);
}

// Scale and bias are per channel; the version of opset 18, with groups, is deprecated.
TEST(GroupNormalizationTest, ByOpset) {
  const auto run = [](int64_t opset, const Numbers& scale, const Numbers& bias) {
    const auto n = static_cast<int64_t>(scale.size());
    return OneNode("GroupNormalization", opset)
        .In(kF, {1, 4, 3}, kX)
        .In(kF, {n}, scale)
        .In(kF, {n}, bias)
        .Attr("num_groups", int64_t{2})
        .Attr("epsilon", 0.5F);
  };
  const Numbers four = {1, 2, 3, 4}, zeros = {0, 1, 0, -1};
  ExpectNear(run(21, four, zeros).Out(kF).Values(), Affine(Normal(kX, 6), four, zeros, 3));
  EXPECT_NE(run(18, {1, 2}, {3, 4}).Out(kF).Error().find("was removed in version"),
            std::string::npos);
  EXPECT_FALSE(run(21, {1, 2}, {3, 4}).Out(kF).Error().empty());
  EXPECT_NE(OneNode("GroupNormalization", 21)
                .In(kF, {1, 3, 1}, {1, 2, 3})
                .In(kF, {3}, {1, 1, 1})
                .In(kF, {3}, {0, 0, 0})
                .Attr("num_groups", int64_t{2})
                .Out(kF)
                .Error()
                .find("does not divide"),
            std::string::npos);
}

TEST(NormTest, LpNormOfNothingIsZero) {
  const auto run = [](int64_t p, const Numbers& x) {
    return OneNode("LpNormalization", 22).In(kF, {2, 2}, x).Attr("p", p).Out(kF).Values();
  };
  ExpectNear(run(2, {3, 4, 0, 0}), {0.6, 0.8, 0, 0});
  ExpectNear(run(1, {3, -1, 0, 0}), {0.75, -0.25, 0, 0});
}

TEST(NormTest, MeanVariance) {
  ExpectNear(OneNode("MeanVarianceNormalization", 13)
                 .In(kF, {4, 3}, kX)
                 .Attr("axes", Ints{1})
                 .Out(kF)
                 .Values(),
             Normal(kX, 3, 0));
  ExpectNear(OneNode("MeanVarianceNormalization", 13).In(kF, {1, 1, 1, 2}, {5, 5}).Out(kF).Values(),
             {0, 0});
}

TEST(NormTest, LocalResponse) {
  // Three channels and windows of 2: a channel and the one after it.
  const auto run = [](int64_t size) {
    return OneNode("LRN", 13)
        .In(kF, {1, 3, 1}, {1, 2, 3})
        .Attr("size", size)
        .Attr("alpha", 0.5F)
        .Attr("beta", 0.5F)
        .Attr("bias", 2.0F)
        .Out(kF)
        .Values();
  };
  const auto of = [](double x, double squares, int size) {
    return x / std::sqrt(2 + 0.5 / size * squares);
  };
  ExpectNear(run(2), {of(1, 5, 2), of(2, 13, 2), of(3, 9, 2)});
  ExpectNear(run(3), {of(1, 5, 3), of(2, 14, 3), of(3, 13, 3)});
}

}  // namespace
}  // namespace athanor::onnx
