// com.microsoft's ops against results of ONNX Runtime 1.31 for the same operands.
#include <cmath>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

constexpr Elem kF = Elem::kFloat, kU8 = Elem::kUInt8, kI8 = Elem::kInt8, kI32 = Elem::kInt32;

OneNode Node(const std::string& op) { return OneNode(op, 17, "com.microsoft"); }

const Numbers kX = {1, -2, 0.5, 3, -1, 0.25, 4, -3};
const Numbers kBias = {0.5, -0.5, 1, 0};
const Numbers kSkip = {2, 1, -1, 0, 1, 1, 1, 1};
const Numbers kGamma = {1, 2, 3, 4}, kBeta = {0, 1, 0, -1};

TEST(MicrosoftTest, Gelus) {
  const auto x = [](const std::string& op) { return Node(op).InDynamic(kF, {2, 4}, kX); };
  ExpectNear(x("Gelu").Out(kF).Values(), {0.8413447, -0.0455003, 0.3457312, 2.9959502, -0.1586553,
                                          0.1496766, 3.9998732, -0.0040497});
  ExpectNear(
      x("BiasGelu").In(kF, {4}, kBias).Out(kF).Values(),
      {1.3997892, -0.0155241, 1.3997892, 2.9959502, -0.1542688, -0.1003234, 4.9999986, -0.0040497});
  ExpectNear(
      x("FastGelu").In(kF, {4}, kBias).Out(kF).Values(),
      {1.3995715, -0.0150843, 1.3995715, 2.9963627, -0.154286, -0.1003247, 4.9999995, -0.0036375});
  ExpectNear(
      x("QuickGelu").Attr("alpha", 1.5F).Out(kF).Values(),
      {0.8175744, -0.0948517, 0.3395894, 2.9670391, -0.1824256, 0.1481667, 3.9901094, -0.0329609});
  const auto gelu = [](double v) { return v * (1 + std::erf(v / std::sqrt(2.0))) / 2; };
  ExpectNear(Node("BiasSplitGelu")
                 .In(kF, {1, 1, 4}, {1, 2, 3, 4})
                 .In(kF, {4}, {1, 0, 0, -3})
                 .Out(kF)
                 .Values(),
             {2 * gelu(3), 2 * gelu(1)});
}

TEST(MicrosoftTest, SkipNorms) {
  const std::vector<Tensor> layer = Node("SkipLayerNormalization")
                                        .InDynamic(kF, {1, 2, 4}, kX)
                                        .In(kF, {2, 4}, kSkip)
                                        .In(kF, {4}, kGamma)
                                        .In(kF, {4}, kBeta)
                                        .In(kF, {4}, kBias)
                                        .Attr("epsilon", 0.5F)
                                        .Out(kF)
                                        .Out(kF)
                                        .Out(kF)
                                        .Out(kF)
                                        .Results();
  const Numbers sum = {3.5, -1.5, 0.5, 3, 0.5, 0.75, 6, -2};
  ExpectNear(ValuesOf(layer[0]), {0.9965577, -1.6965678, -1.2310419, 2.0482941, -0.2711276,
                                  0.6245925, 4.6925945, -5.4214668});
  ExpectNear(ValuesOf(layer[1]), {1.375, 1.3125});
  ExpectNear(ValuesOf(layer[2]), {0.4689683, 0.3336956});
  ExpectNear(ValuesOf(layer[3]), sum);
  const std::vector<Tensor> rms = Node("SkipSimplifiedLayerNormalization")
                                      .InDynamic(kF, {1, 2, 4}, kX)
                                      .In(kF, {1, 2, 4}, kSkip)
                                      .In(kF, {4}, kGamma)
                                      .In(kF, {4}, kBias)
                                      .Attr("epsilon", 0.5F)
                                      .Out(kF)
                                      .Unwanted()
                                      .Out(kF)
                                      .Out(kF)
                                      .Results();
  ExpectNear(ValuesOf(rms[0]), {1.3794611, -1.1823951, 0.5911976, 4.7295804, 0.1528322, 0.4584964,
                                5.5019569, -2.4453144});
  ExpectNear(ValuesOf(rms[1]), {0.3941317, 0.3056643});
  ExpectNear(ValuesOf(rms[2]), sum);
  ExpectNear(
      OneNode("SimplifiedLayerNormalization", 17)
          .InDynamic(kF, {1, 2, 4}, kX)
          .In(kF, {4}, kGamma)
          .Attr("epsilon", 0.5F)
          .Out(kF)
          .Values(),
      {0.4961389, -1.9845557, 0.7442084, 5.9536672, -0.3775433, 0.1887717, 4.53052, -4.53052});
}

TEST(MicrosoftTest, EmbedLayerNorm) {
  Numbers words;
  for (int i = 0; i < 12; ++i) words.push_back(std::pow(i, 1.5));
  const std::vector<Tensor> y = Node("EmbedLayerNormalization")
                                    .InDynamic(kI32, {1, 3}, {1, 0, 2})
                                    .InDynamic(kI32, {1, 3}, {0, 1, 0})
                                    .In(kF, {3, 4}, words)
                                    .In(kF, {3, 4}, {1, 0, 2, 0, 0, 3, 0, 1, 2, 2, 2, 5})
                                    .In(kF, {2, 4}, {0, 1, 0, 1, 1, 0, 0, 0})
                                    .In(kF, {4}, kGamma)
                                    .In(kF, {4}, kBeta)
                                    .InDynamic(kI32, {1, 3}, {1, 1, 0})
                                    .Attr("epsilon", 0.5F)
                                    .Out(kF)
                                    .Out(kI32)
                                    .Out(kF)
                                    .Results();
  ExpectNear(ValuesOf(y[0]), {-1.3015417, -0.0554867, 1.7135271, 4.0324354, -1.2445418, 1.4904929,
                              -1.0096562, 4.343389, -1.2320507, 0.17925, 0.4310623, 4.9949541});
  EXPECT_EQ(ValuesOf(y[1]), Numbers{2});
  ExpectNear(ValuesOf(y[2]), {9, 12.1803398, 16.6969376, 19.5202579, 1, 4, 2.8284271, 6.1961527,
                              24.6274166, 30, 33.622776, 42.482872});
}

TEST(MicrosoftTest, EmbedLayerNormOfTablesThatAreNone) {
  const auto error = [](const std::vector<int64_t>& places, const Numbers& of_places,
                        const std::vector<int64_t>& segments, const Numbers& of_segments) {
    return Node("EmbedLayerNormalization")
        .InDynamic(kI32, {1, 1}, {0})
        .InDynamic(kI32, {1, 1}, {0})
        .In(kF, {1, 2}, {1, 2})
        .In(kF, places, of_places)
        .In(kF, segments, of_segments)
        .In(kF, {2}, {1, 1})
        .In(kF, {2}, {0, 0})
        .Out(kF)
        .Out(kI32)
        .Error();
  };
  EXPECT_NE(error({1, 2}, {0, 0}, {}, {0}).find("segment_embedding has shape []; it must be [rows"),
            std::string::npos);
  EXPECT_NE(error({2}, {0, 0}, {1, 2}, {0, 0}).find("position_embedding has shape [2]"),
            std::string::npos);
}

// K = 20 is one and a quarter blocks. Zero points are packed too, or default to 2^(bits - 1).
TEST(MicrosoftTest, MatMulNBits) {
  struct Row {
    int64_t bits;
    Numbers zeros, plain, with_zeros;
  };
  const std::vector<Row> rows = {
      {4, {7, 98}, {5.6710525, -1.0526319}, {10.7236843, -7.7894721}},
      {8, {7, 98, 189, 24}, {95.6052628, -198.1052551}, {-82.9210587, 708}},
      {2, {7, 98}, {2.1973686, 0.6315789}, {4.7236843, 14.1052628}}};
  Numbers a;
  for (int i = 0; i < 20; ++i) a.push_back(-1 + 2.0 * i / 19);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.bits);
    const int64_t blob = 16 * row.bits / 8;
    Numbers packed;
    for (int i = 0; i < 4 * blob; ++i) packed.push_back((i * 37 + 11) % 256);
    const auto node = [&] {
      return Node("MatMulNBits")
          .InDynamic(kF, {1, 20}, a)
          .Fixed(kU8, {2, 2, blob}, packed)
          .Fixed(kF, {2, 2}, {0.5, 0.25, 1, 2})
          .Attr("K", int64_t{20})
          .Attr("N", int64_t{2})
          .Attr("bits", row.bits)
          .Attr("block_size", int64_t{16});
    };
    ExpectNear(node().Out(kF).Values(), row.plain, 3e-6);
    const auto zeros = static_cast<int64_t>(row.zeros.size()) / 2;
    ExpectNear(node().Fixed(kU8, {2, zeros}, row.zeros).Out(kF).Values(), row.with_zeros, 3e-6);
    Numbers biased = row.plain;
    biased[0] += 1, biased[1] -= 1;
    ExpectNear(node().Omit().Omit().In(kF, {2}, {1, -1}).Out(kF).Values(), biased, 3e-6);
  }
}

TEST(MicrosoftTest, QLinearElementwise) {
  const auto a = [](const std::string& op, double scale) {
    return Node(op).In(kU8, {4}, {0, 100, 200, 255}).In(kF, {}, {scale}).In(kU8, {}, {128});
  };
  const auto two = [&](const std::string& op, double out) {
    return a(op, 0.1)
        .In(kU8, {4}, {10, 20, 30, 250})
        .In(kF, {}, {0.2})
        .In(kU8, {}, {5})
        .In(kF, {}, {out})
        .In(kU8, {}, {100})
        .Out(kU8)
        .Values();
  };
  EXPECT_EQ(two("QLinearAdd", 0.3), (Numbers{61, 101, 141, 255}));
  EXPECT_EQ(two("QLinearMul", 2), (Numbers{94, 96, 118, 255}));
  EXPECT_EQ(a("QLinearSigmoid", 0.05).In(kF, {}, {1.0 / 256}).In(kU8, {}, {0}).Out(kU8).Values(),
            (Numbers{0, 51, 249, 255}));
  EXPECT_EQ(a("QLinearLeakyRelu", 0.1)
                .In(kF, {}, {0.1})
                .In(kU8, {}, {100})
                .Attr("alpha", 0.25F)
                .Out(kU8)
                .Values(),
            (Numbers{68, 93, 172, 227}));
  EXPECT_EQ(a("QLinearSoftmax", 0.02)
                .In(kF, {}, {1.0 / 256})
                .In(kU8, {}, {0})
                .Attr("opset", int64_t{13})
                .Out(kU8)
                .Values(),
            (Numbers{1, 8, 62, 185}));
  EXPECT_EQ(Node("QLinearGlobalAveragePool")
                .In(kU8, {1, 1, 2, 2}, {0, 100, 200, 255})
                .In(kF, {}, {0.1})
                .In(kU8, {}, {128})
                .In(kF, {}, {0.2})
                .In(kU8, {}, {7})
                .Out(kU8)
                .Values(),
            Numbers{12});
  EXPECT_EQ(Node("QLinearConcat")
                .In(kF, {}, {0.2})
                .In(kU8, {}, {50})
                .In(kU8, {4}, {0, 100, 200, 255})
                .In(kF, {}, {0.1})
                .In(kU8, {}, {128})
                .In(kU8, {4}, {10, 20, 30, 250})
                .In(kF, {}, {0.2})
                .In(kU8, {}, {5})
                .Attr("axis", int64_t{0})
                .Out(kU8)
                .Values(),
            (Numbers{0, 36, 86, 114, 55, 65, 75, 255}));
}

TEST(MicrosoftTest, QuantisedProducts) {
  const Numbers a = {1, 2, 3, 250, 5, 6}, b = {1, -2, 3, 4, -5, 6};
  ExpectNear(Node("MatMulIntegerToFloat")
                 .In(kU8, {2, 3}, a)
                 .In(kI8, {3, 2}, b)
                 .In(kF, {}, {0.5})
                 .In(kF, {2}, {0.25, 2})
                 .In(kU8, {}, {3})
                 .Omit()
                 .In(kF, {2}, {1, -1})
                 .Out(kF)
                 .Values(),
             {0.375, -1, 30.75, -469});
  ExpectNear(Node("DynamicQuantizeMatMul")
                 .In(kF, {2, 3}, {0.5, -1, 2, 3, 0, -0.25})
                 .In(kI8, {3, 2}, b)
                 .In(kF, {2}, {0.25, 2})
                 .Omit()
                 .In(kF, {2}, {1, -1})
                 .Out(kF)
                 .Values(),
             {-2.1176472, 12.8666677, 2.0627451, -15.9960794});
  const auto gemm = [&] {
    return Node("QGemm")
        .In(kU8, {2, 3}, a)
        .In(kF, {}, {0.5})
        .In(kU8, {}, {3})
        .In(kI8, {3, 2}, b)
        .In(kF, {}, {0.25})
        .In(kI8, {}, {1})
        .In(kI32, {2}, {10, -20});
  };
  EXPECT_EQ(gemm().In(kF, {}, {2}).In(kU8, {}, {100}).Out(kU8).Values(),
            (Numbers{100, 99, 100, 54}));
  ExpectNear(gemm().Out(kF).Values(), {1, -2.125, -0.5, -92.5});
}

TEST(MicrosoftTest, QuantisedAveragePool) {
  const auto pool = [](std::vector<int64_t> shape) {
    return Node("QLinearAveragePool")
        .InDynamic(kU8, std::move(shape), {10, 20, 30, 40, 50, 60, 70, 80, 90})
        .In(kF, {}, {0.5})
        .In(kU8, {}, {5})
        .In(kF, {}, {0.25})
        .In(kU8, {}, {4})
        .Attr("kernel_shape", std::vector<int64_t>{2, 2});
  };
  const auto padded = [&] {
    return pool({1, 1, 3, 3})
        .Attr("strides", std::vector<int64_t>{2, 2})
        .Attr("pads", std::vector<int64_t>{1, 1, 0, 0});
  };
  EXPECT_EQ(padded().Out(kU8).Values(), (Numbers{14, 44, 104, 134}));
  EXPECT_EQ(padded().Attr("count_include_pad", int64_t{1}).Out(kU8).Values(),
            (Numbers{6, 24, 54, 134}));
  EXPECT_EQ(pool({1, 3, 3, 1}).Attr("channels_last", int64_t{1}).Out(kU8).Values(),
            (Numbers{54, 74, 114, 134}));
}

TEST(MicrosoftQuantisedTest, ScalesAndZeroPointsAreOneNumber) {
  const auto add = [](int at) {
    OneNode node("QLinearAdd", 17, "com.microsoft");
    for (int i = 0; i < 8; ++i) {
      const Elem elem = i == 1 || i == 4 || i == 6 ? Elem::kFloat : Elem::kUInt8;
      if (i == 0 || i == 3) {
        node.In(elem, {2}, {1, 2});
      } else if (i == at) {
        node.Fixed(elem, {2}, {1, 1});
      } else {
        node.Fixed(elem, {}, {1});
      }
    }
    return node.Out(Elem::kUInt8);
  };
  EXPECT_EQ(add(0).Values(), (Numbers{1, 3}));
  for (int at : {1, 2, 4, 5, 6, 7}) {
    EXPECT_NE(add(at).Error().find("has shape [2]; it must be one number"), std::string::npos)
        << at;
  }
}

}  // namespace
}  // namespace athanor::onnx
