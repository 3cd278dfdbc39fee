// Elementwise handlers against their definitions, and changes between opsets.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Elem kF = Elem::kFloat;

using Attrs1 = std::map<std::string, TestAttr>;

Numbers Unary(const std::string& op, int64_t opset, Elem elem, const Numbers& x,
              const Attrs1& attrs = {}, Elem out = Elem::kString) {
  OneNode node(op, opset);
  node.In(elem, {static_cast<int64_t>(x.size())}, x);
  for (const auto& [name, value] : attrs) node.Attr(name, value);
  return node.Out(out == Elem::kString ? elem : out).Values();
}

TEST(HandlersElementwiseTest, FunctionsOfOneOperand) {
  struct Row {
    std::string op;
    int64_t opset;
    std::function<double(double)> want;
    Attrs1 attrs;
  };
  const auto softplus = [](double x) {
    return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<Row> rows = {
      {"Abs", 13, [](double x) { return std::abs(x); }, {}},
      {"Ceil", 13, [](double x) { return std::ceil(x); }, {}},
      {"Celu", 12, [](double x) { return x > 0 ? x : 2 * std::expm1(x / 2); }, {{"alpha", 2.0F}}},
      {"Cos", 7, [](double x) { return std::cos(x); }, {}},
      {"Elu", 6, [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); }, {{"alpha", 0.5F}}},
      {"Erf", 13, [](double x) { return std::erf(x); }, {}},
      {"Gelu", 20, [](double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; }, {}},
      {"HardSigmoid",
       22,
       [](double x) { return std::clamp(x * 0.25 + 0.5, 0.0, 1.0); },
       {{"alpha", 0.25F}}},
      {"HardSwish",
       14,
       [](double x) { return x * std::clamp(x * (1.0F / 6) + 0.5, 0.0, 1.0); },
       {}},
      {"LeakyRelu", 16, [](double x) { return x < 0 ? x / 8 : x; }, {{"alpha", 0.125F}}},
      {"Mish", 18, [&](double x) { return x * std::tanh(softplus(x)); }, {}},
      {"Neg", 13, [](double x) { return -x; }, {}},
      {"Reciprocal", 13, [](double x) { return 1 / x; }, {}},
      {"Round", 11, [](double x) { return std::nearbyint(x); }, {}},
      {"Selu",
       6,
       [](double x) { return 2 * (x > 0 ? x : 0.5 * std::expm1(x)); },
       {{"alpha", 0.5F}, {"gamma", 2.0F}}},
      {"Sigmoid", 13, sigmoid, {}},
      {"Sinh", 9, [](double x) { return std::sinh(x); }, {}},
      {"Softplus", 1, softplus, {}},
      {"Softsign", 1, [](double x) { return x / (1 + std::abs(x)); }, {}},
      {"Swish", 24, [&](double x) { return x * sigmoid(x); }, {}},
      {"Swish", 24, [&](double x) { return x * sigmoid(1.5 * x); }, {{"alpha", 1.5F}}},
      {"ThresholdedRelu", 10, [](double x) { return x > 0.75 ? x : 0; }, {{"alpha", 0.75F}}},
  };
  const Numbers x = {-3.5, -1, -0.5, -0.125, 0.25, 0.5, 0.75, 1, 2.5, 9};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.op);
    Numbers want;
    for (double v : x) want.push_back(row.want(v));
    ExpectNear(Unary(row.op, row.opset, kF, x, row.attrs), want, 2e-6);
    if (row.op == "Celu") continue;  // takes only f32 until opset 28
    ExpectNear(Unary(row.op, row.opset < 22 ? 22 : row.opset, Elem::kFloat16, x, row.attrs), want,
               6e-4);
  }
}

TEST(HandlersElementwiseTest, HardSwishTakesASixthInF32) {
  EXPECT_EQ(Unary("HardSwish", 14, Elem::kDouble, {1}),
            (Numbers{static_cast<double>(1.0F / 6) + 0.5}));
}

TEST(HandlersElementwiseTest, EdgesOfActivations) {
  EXPECT_EQ(Unary("Elu", 6, kF, {kInf, -kInf, 0}), (Numbers{kInf, -1, 0}));
  ExpectNear(Unary("Celu", 12, kF, {-kInf, kNan}), {-1, kNan});
  EXPECT_EQ(Unary("Softplus", 1, kF, {kInf, -kInf, 100}), (Numbers{kInf, 0, 100}));
  ExpectNear(Unary("LeakyRelu", 16, kF, {kNan, kInf, -kInf}), {kNan, kInf, -kInf});
  EXPECT_EQ(Unary("ThresholdedRelu", 10, kF, {1, 1.0 + 0x1p-20, -kInf}),
            (Numbers{0, 1.0 + 0x1p-20, 0}));
  EXPECT_EQ(Unary("Relu", 14, Elem::kInt32, {-3, 4}), (Numbers{0, 4}));
  EXPECT_EQ(Unary("Sign", 13, Elem::kUInt8, {0, 200}), (Numbers{0, 1}));
  EXPECT_EQ(Unary("Sign", 13, Elem::kInt64, {-7, 0, 5}), (Numbers{-1, 0, 1}));
  ExpectNear(Unary("Sign", 13, kF, {-kInf, 0.5, kNan}), {-1, 1, kNan});
}

TEST(HandlersElementwiseTest, Shrink) {
  const Attrs1 attrs = {{"bias", 1.5F}, {"lambd", 1.5F}};
  EXPECT_EQ(Unary("Shrink", 9, kF, {-2, -1, 0, 1, 2}, attrs), (Numbers{-0.5, 0, 0, 0, 0.5}));
  EXPECT_EQ(Unary("Shrink", 9, Elem::kInt8, {-4, -1, 1, 4}, attrs), (Numbers{-2, 0, 0, 2}));
  EXPECT_NE(OneNode("Shrink", 9).In(Elem::kInt64, {1}, {1}).Out(Elem::kInt64).Error().find("2^53"),
            std::string::npos);
}

TEST(HandlersElementwiseTest, InfinitiesAndNaN) {
  const Numbers x = {kInf, -kInf, kNan, 1};
  EXPECT_EQ(Unary("IsInf", 10, kF, x, {}, Elem::kBool), (Numbers{1, 1, 0, 0}));
  EXPECT_EQ(Unary("IsInf", 20, kF, x, {{"detect_negative", int64_t{0}}}, Elem::kBool),
            (Numbers{1, 0, 0, 0}));
  EXPECT_EQ(Unary("IsInf", 20, kF, x, {{"detect_positive", int64_t{0}}}, Elem::kBool),
            (Numbers{0, 1, 0, 0}));
  EXPECT_EQ(Unary("IsInf", 20, Elem::kFloat8E5M2, {0x7c, 0xfc, 0x7f}, {}, Elem::kBool),
            (Numbers{1, 1, 0}));
  EXPECT_EQ(Unary("IsInf", 20, Elem::kFloat8E4M3FN, {0x7f, 0}, {}, Elem::kBool), (Numbers{0, 0}));
  EXPECT_EQ(Unary("IsNaN", 13, kF, x, {}, Elem::kBool), (Numbers{0, 0, 1, 0}));
  EXPECT_EQ(Unary("IsNaN", 20, Elem::kFloat8E5M2FNUZ, {0x80, 0}, {}, Elem::kBool), (Numbers{1, 0}));
}

// Until opset 10 the bounds are attributes; the defaults clip infinities.
TEST(HandlersElementwiseTest, Clip) {
  const double most = std::numeric_limits<float>::max();
  EXPECT_EQ(Unary("Clip", 6, kF, {kInf, -kInf, 3}), (Numbers{most, -most, 3}));
  EXPECT_EQ(Unary("Clip", 6, kF, {-2, 0.5, 3}, {{"min", 0.0F}, {"max", 1.0F}}),
            (Numbers{0, 0.5, 1}));
  EXPECT_EQ(Unary("Clip", 13, kF, {kInf, -kInf}), (Numbers{kInf, -kInf}));
  const auto clip = [](Elem elem) { return OneNode("Clip", 13).In(elem, {3}, {-2, 1, 9}); };
  EXPECT_EQ(clip(kF).In(kF, {}, {0}).In(kF, {}, {5}).Out(kF).Values(), (Numbers{0, 1, 5}));
  EXPECT_EQ(clip(kF).Omit().In(kF, {1}, {0}).Out(kF).Values(), (Numbers{-2, 0, 0}));
  const Elem i8 = Elem::kInt8;
  EXPECT_EQ(clip(i8).Fixed(i8, {}, {7}).Fixed(i8, {}, {3}).Out(i8).Values(), (Numbers{3, 3, 3}));
  ExpectNear(OneNode("Clip", 13).In(kF, {1}, {kNan}).In(kF, {}, {0}).Out(kF).Values(), {kNan});
  EXPECT_NE(clip(kF).In(kF, {2}, {0, 1}).Out(kF).Error().find("min has shape [2]"),
            std::string::npos);
}

TEST(HandlersElementwiseTest, PRelu) {
  const Numbers x = {-1, -2, -4, -8, 3, 4, 5, 6};
  EXPECT_EQ(OneNode("PRelu", 16).In(kF, {2, 4}, x).In(kF, {4}, {1, 2, 3, 4}).Out(kF).Values(),
            (Numbers{-1, -4, -12, -32, 3, 4, 5, 6}));
  // Before opset 7, a vector of slopes is per channel.
  EXPECT_EQ(OneNode("PRelu", 6).In(kF, {1, 2, 4}, x).In(kF, {2}, {2, 9}).Out(kF).Values(),
            (Numbers{-2, -4, -8, -16, 3, 4, 5, 6}));
  EXPECT_EQ(OneNode("PRelu", 6).In(kF, {2, 4}, x).In(kF, {1}, {3}).Out(kF).Values(),
            (Numbers{-3, -6, -12, -24, 3, 4, 5, 6}));
  EXPECT_NE(OneNode("PRelu", 9)
                .In(kF, {2}, {1, 2})
                .In(kF, {3, 1}, {1, 2, 3})
                .Out(kF)
                .Error()
                .find("does not broadcast"),
            std::string::npos);
}

TEST(HandlersElementwiseTest, DropoutInference) {
  const auto run = [](int64_t opset, Elem mask) {
    return OneNode("Dropout", opset).In(kF, {2}, {1, kNan}).Out(kF).Out(mask);
  };
  for (auto [opset, mask] :
       {std::pair<int64_t, Elem>{7, kF}, {10, Elem::kBool}, {13, Elem::kBool}}) {
    const std::vector<Tensor> y = run(opset, mask).Results();
    ExpectNear(ValuesOf(y[0]), {1, kNan});
    EXPECT_EQ(ValuesOf(y[1]), (Numbers{1, 1}));
  }
  EXPECT_EQ(OneNode("Dropout", 6).Attr("is_test", int64_t{1}).In(kF, {1}, {3}).Out(kF).Values(),
            Numbers{3});
  const Elem b = Elem::kBool;
  EXPECT_NE(OneNode("Dropout", 6).In(kF, {1}, {3}).Out(kF).Error().find("training"),
            std::string::npos);
  EXPECT_EQ(
      OneNode("Dropout", 13).In(kF, {1}, {3}).Fixed(kF, {}, {0}).Fixed(b, {}, {1}).Out(kF).Values(),
      Numbers{3});
  EXPECT_NE(OneNode("Dropout", 13)
                .In(kF, {1}, {3})
                .Fixed(kF, {}, {0.5})
                .Fixed(b, {}, {1})
                .Out(kF)
                .Error()
                .find("training"),
            std::string::npos);
}

TEST(HandlersElementwiseTest, SwiGlu) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  ExpectNear(OneNode("SwiGLU", 28).In(kF, {2}, {1, -2}).In(kF, {2}, {3, 5}).Out(kF).Values(),
             {3 * sigmoid(1), -10 * sigmoid(-2)});
  EXPECT_NE(OneNode("SwiGLU", 28)
                .In(kF, {2}, {1, 1})
                .In(kF, {1}, {3})
                .Out(kF)
                .Error()
                .find("provably equal"),
            std::string::npos);
}

}  // namespace
}  // namespace athanor::onnx
