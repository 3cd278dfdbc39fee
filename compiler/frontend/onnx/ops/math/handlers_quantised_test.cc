// Casts between element types as nodes, and quantisation.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Elem kF = Elem::kFloat, kU8 = Elem::kUInt8, kI8 = Elem::kInt8;

TEST(HandlersCastTest, TypesByNumber) {
  EXPECT_EQ(OneNode("Cast", 13)
                .In(kF, {2}, {1.7, -1.7})
                .Attr("to", int64_t{6})
                .Out(Elem::kInt32)
                .Values(),
            (Numbers{1, -1}));
  EXPECT_NE(
      OneNode("Cast", 13).In(kF, {1}, {1}).Attr("to", int64_t{8}).Out(kF).Error().find("string"),
      std::string::npos);
  EXPECT_NE(
      OneNode("Cast", 13).In(kF, {1}, {1}).Attr("to", int64_t{99}).Out(kF).Error().find("to=99"),
      std::string::npos);
  EXPECT_EQ(OneNode("CastLike", 19).In(kF, {1}, {2.5}).In(kI8, {3}, {0, 0, 0}).Out(kI8).Values(),
            Numbers{2});
}

// Infinities become NaN in FNUZ types until opset 23, and the largest numbers since.
TEST(HandlersCastTest, Float8ByOpset) {
  const auto cast = [](int64_t opset, bool saturate) {
    return OneNode("Cast", opset)
        .In(kF, {3}, {kInf, -kInf, 1e9})
        .Attr("to", int64_t{18})
        .Attr("saturate", int64_t{saturate})
        .Out(Elem::kFloat8E4M3FNUZ)
        .Values();
  };
  EXPECT_EQ(cast(19, true), (Numbers{0x80, 0x80, 0x7f}));
  EXPECT_EQ(cast(23, true), (Numbers{0x80, 0x80, 0x7f}));
  EXPECT_EQ(cast(24, true), (Numbers{0x7f, 0xff, 0x7f}));
  EXPECT_EQ(cast(24, false), (Numbers{0x80, 0x80, 0x80}));
  const auto power = [](const std::string& round) {
    return OneNode("Cast", 24)
        .In(kF, {2}, {1.25, 1.5})
        .Attr("to", int64_t{24})
        .Attr("round_mode", round)
        .Out(Elem::kFloat8E8M0);
  };
  EXPECT_EQ(power("up").Values(), (Numbers{128, 128}));
  EXPECT_EQ(power("down").Values(), (Numbers{127, 127}));
  EXPECT_EQ(power("nearest").Values(), (Numbers{127, 128}));
  EXPECT_FALSE(power("odd").Error().empty());
}

TEST(HandlersCastTest, BitCast) {
  EXPECT_EQ(
      OneNode("BitCast", 26).In(kF, {1}, {1}).Attr("to", int64_t{12}).Out(Elem::kUInt32).Values(),
      Numbers{0x3f800000});
  EXPECT_NE(OneNode("BitCast", 26)
                .In(kF, {1}, {1})
                .Attr("to", int64_t{7})
                .Out(Elem::kInt64)
                .Error()
                .find("32 and 64 bits"),
            std::string::npos);
}

OneNode Quantize(int64_t opset, std::vector<int64_t> shape, const Numbers& x) {
  return OneNode("QuantizeLinear", opset).In(kF, std::move(shape), x);
}

TEST(QuantizeLinearTest, HalvesGoToEvenBeforeTheZeroPoint) {
  EXPECT_EQ(Quantize(10, {6}, {0, 1, 3, 1000, -254, -1000})
                .In(kF, {}, {2})
                .In(kU8, {}, {127})
                .Out(kU8)
                .Values(),
            (Numbers{127, 127, 129, 255, 0, 0}));
  EXPECT_EQ(Quantize(13, {4}, {0.5, 1.5, kInf, -kInf}).In(kF, {}, {1}).Out(kU8).Values(),
            (Numbers{0, 2, 255, 0}));
  EXPECT_EQ(Quantize(21, {2}, {1e30, -1e30})
                .In(kF, {}, {1})
                .In(Elem::kInt16, {}, {-32768})
                .Out(Elem::kInt16)
                .Values(),
            (Numbers{32767, -32768}));
}

TEST(QuantizeLinearTest, PerAxisAndBlocks) {
  const Numbers x = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(
      Quantize(13, {2, 3}, x).In(kF, {3}, {1, 2, 0.5}).In(kI8, {3}, {0, 1, -1}).Out(kI8).Values(),
      (Numbers{1, 2, 5, 4, 3, 11}));
  EXPECT_EQ(Quantize(13, {2, 3}, x).In(kF, {2}, {1, 2}).Attr("axis", int64_t{-2}).Out(kU8).Values(),
            (Numbers{1, 2, 3, 2, 2, 3}));
  EXPECT_EQ(Quantize(21, {2, 3}, x)
                .In(kF, {2, 2}, {1, 0.5, 2, 1})
                .Attr("block_size", int64_t{2})
                .Out(kU8)
                .Values(),
            (Numbers{1, 2, 6, 2, 2, 6}));
  EXPECT_EQ(Quantize(13, {3}, {1, 2, 3}).In(kF, {1}, {2}).Out(kU8).Values(), (Numbers{0, 1, 2}));
  EXPECT_NE(Quantize(13, {2, 3}, x).In(kF, {2}, {1, 2}).Out(kU8).Error().find("y_scale has shape"),
            std::string::npos);
  EXPECT_NE(Quantize(21, {2, 3}, x)
                .In(kF, {2, 3}, x)
                .Attr("block_size", int64_t{2})
                .Out(kU8)
                .Error()
                .find("ceildiv(3, 2)"),
            std::string::npos);
}

TEST(QuantizeLinearTest, Types) {
  const auto to = [](int64_t type) {
    return Quantize(21, {4}, {-20, -1, 2.5, 100}).In(kF, {}, {1}).Attr("output_dtype", type);
  };
  EXPECT_EQ(to(22).Out(Elem::kInt4).Values(), (Numbers{-8, -1, 2, 7}));
  EXPECT_EQ(to(21).Out(Elem::kUInt4).Values(), (Numbers{0, 0, 2, 15}));
  EXPECT_EQ(to(17).Out(Elem::kFloat8E4M3FN).Values(), (Numbers{0xda, 0xb8, 0x42, 0x6c}));
  EXPECT_NE(to(22).In(kU8, {}, {0}).Out(kU8).Error().find("must agree"), std::string::npos);
  for (int64_t wide : {1, 6, 7, 9, 10, 11, 12, 13, 16}) {
    EXPECT_NE(to(wide).Out(kU8).Error().find("at most 16 bits"), std::string::npos) << wide;
  }
  EXPECT_EQ(Quantize(24, {2}, {1, 3}).In(Elem::kFloat8E8M0, {}, {128}).Out(kU8).Values(),
            (Numbers{0, 2}));
  // The division is in the scale's type: in f16, 2049 is 2048.
  EXPECT_EQ(Quantize(23, {1}, {2049}).In(Elem::kFloat16, {}, {4096}).Out(kU8).Values(), Numbers{0});
  EXPECT_EQ(Quantize(23, {1}, {2049}).In(kF, {}, {4096}).Out(kU8).Values(), Numbers{1});
}

TEST(DequantizeLinearTest, SubtractsExactly) {
  const auto d = [](int64_t opset, Elem elem, const Numbers& x) {
    return OneNode("DequantizeLinear", opset).In(elem, {static_cast<int64_t>(x.size())}, x);
  };
  EXPECT_EQ(d(10, kU8, {0, 3, 255}).In(kF, {}, {2}).In(kU8, {}, {128}).Out(kF).Values(),
            (Numbers{-256, -250, 254}));
  EXPECT_EQ(d(21, Elem::kUInt16, {0, 65535})
                .In(kF, {}, {1})
                .In(Elem::kUInt16, {}, {65535})
                .Out(kF)
                .Values(),
            (Numbers{-65535, 0}));
  EXPECT_EQ(d(13, Elem::kInt32, {-100, 1 << 24}).In(kF, {}, {0.5}).Out(kF).Values(),
            (Numbers{-50, 1 << 23}));
  EXPECT_EQ(d(21, Elem::kInt4, {-8, 7}).In(Elem::kFloat16, {}, {0.5}).Out(Elem::kFloat16).Values(),
            (Numbers{-4, 3.5}));
  EXPECT_EQ(d(23, Elem::kFloat4E2M1, {7, 9}).In(kF, {}, {2}).Out(kF).Values(), (Numbers{12, -1}));
  EXPECT_EQ(d(23, kI8, {4})
                .In(kF, {}, {0.25})
                .Attr("output_dtype", int64_t{10})
                .Out(Elem::kFloat16)
                .Values(),
            Numbers{1});
}

TEST(DynamicQuantizeLinearTest, RangeHoldsZero) {
  const std::vector<Tensor> y = OneNode("DynamicQuantizeLinear", 11)
                                    .In(kF, {6}, {0, 2, -3, -2.5, 1.34, 0.5})
                                    .Out(kU8)
                                    .Out(kF)
                                    .Out(kU8)
                                    .Results();
  EXPECT_EQ(ValuesOf(y[0]), (Numbers{153, 255, 0, 26, 221, 179}));
  ExpectNear(ValuesOf(y[1]), {5.0 / 255});
  EXPECT_EQ(ValuesOf(y[2]), Numbers{153});
  const std::vector<Tensor> zeros =
      OneNode("DynamicQuantizeLinear", 11).In(kF, {2}, {0, 0}).Out(kU8).Out(kF).Out(kU8).Results();
  EXPECT_EQ(ValuesOf(zeros[0]), (Numbers{0, 0}));
  EXPECT_EQ(ValuesOf(zeros[2]), Numbers{0});
}

TEST(QLinearMatMulTest, ParametersByRowAndColumn) {
  EXPECT_EQ(OneNode("MatMulInteger", 10)
                .In(kU8, {2, 2}, {11, 7, 3, 10})
                .In(kU8, {2, 1}, {1, 4})
                .In(kU8, {}, {12})
                .In(kU8, {}, {0})
                .Out(Elem::kInt32)
                .Values(),
            (Numbers{-1 - 20, -9 - 8}));
  // Dequantised, A is [[2, 4], [1, 2]] and B is [[1, 10], [1, 10]].
  EXPECT_EQ(OneNode("QLinearMatMul", 10)
                .In(kU8, {2, 2}, {4, 6, 4, 6})
                .In(kF, {2}, {1, 0.5})
                .In(kU8, {2}, {2, 2})
                .In(kI8, {2, 2}, {1, 5, 1, 5})
                .In(kF, {2}, {1, 2})
                .In(kI8, {2}, {0, 0})
                .In(kF, {}, {2})
                .In(kU8, {}, {1})
                .Out(kU8)
                .Values(),
            (Numbers{4, 31, 3, 16}));
}

TEST(QLinearConvTest, ConvolutionsTakeParametersOfTheShapesTheSchemaHas) {
  // Shapes are x [2, 1, 1, 2] and w [2, 1, 1, 1]; operand `at` has two numbers, which would
  // broadcast.
  const auto conv = [](int at) {
    OneNode node("QLinearConv", 10);
    const auto pair = [&](int i, Elem elem, double value) {
      i == at ? node.Fixed(elem, {2}, {value, value}) : node.Fixed(elem, {}, {value});
    };
    node.In(Elem::kUInt8, {2, 1, 1, 2}, {1, 2, 3, 4});
    pair(1, Elem::kFloat, 1);
    pair(2, Elem::kUInt8, 0);
    node.Fixed(Elem::kUInt8, {2, 1, 1, 1}, {1, 2});
    pair(4, Elem::kFloat, 1);
    pair(5, Elem::kUInt8, 0);
    pair(6, Elem::kFloat, 1);
    pair(7, Elem::kUInt8, 0);
    return node;
  };
  const Numbers right = {1, 2, 2, 4, 3, 4, 6, 8};
  for (int at : {0, 4, 5}) EXPECT_EQ(conv(at).Values(), right) << at;
  for (const auto& [at, name] : {std::pair(1, "x_scale"), std::pair(2, "x_zero_point"),
                                 std::pair(6, "y_scale"), std::pair(7, "y_zero_point")}) {
    EXPECT_NE(conv(at).Error().find(std::string(name) + " has shape [2]"), std::string::npos) << at;
  }
}

}  // namespace
}  // namespace athanor::onnx
