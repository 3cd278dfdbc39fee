// Handlers with several elementwise operands, and changes between opsets.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/testing/node_testing.h"

namespace athanor::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Elem kF = Elem::kFloat, kI32 = Elem::kInt32;

Numbers Two(const std::string& op, int64_t opset, Elem elem, const Numbers& x, const Numbers& y,
            Elem out = Elem::kString) {
  const auto count = static_cast<int64_t>(x.size());
  return OneNode(op, opset)
      .In(elem, {count}, x)
      .In(elem, {count}, y)
      .Out(out == Elem::kString ? elem : out)
      .Values();
}

TEST(HandlersBinaryTest, ArithmeticAndLogic) {
  EXPECT_EQ(Two("Add", 14, kF, {1, kInf}, {2, -1}), (Numbers{3, kInf}));
  EXPECT_EQ(Two("Sub", 14, Elem::kUInt8, {1, 9}, {2, 4}), (Numbers{255, 5}));
  EXPECT_EQ(Two("Mul", 14, Elem::kInt8, {100, -3}, {3, 4}), (Numbers{44, -12}));
  EXPECT_EQ(Two("Div", 14, kI32, {-7, 7}, {2, -2}), (Numbers{-3, -3}));
  EXPECT_EQ(Two("Div", 14, kF, {-7, 0}, {2, 0.5}), (Numbers{-3.5, 0}));
  EXPECT_EQ(Two("Xor", 7, Elem::kBool, {0, 1, 1}, {1, 1, 0}), (Numbers{1, 0, 1}));
  EXPECT_EQ(Two("BitwiseAnd", 18, Elem::kUInt8, {12, 255}, {10, 1}), (Numbers{8, 1}));
  EXPECT_EQ(Two("Greater", 13, kF, {1, kNan, 2}, {0, 0, 2}, Elem::kBool), (Numbers{1, 0, 0}));
  EXPECT_EQ(Two("GreaterOrEqual", 16, kF, {1, kNan, 2}, {0, 0, 2}, Elem::kBool),
            (Numbers{1, 0, 1}));
  EXPECT_EQ(Two("LessOrEqual", 16, kI32, {1, -5, 2}, {0, 0, 2}, Elem::kBool), (Numbers{0, 1, 1}));
  EXPECT_EQ(Two("Equal", 13, Elem::kBool, {0, 1}, {1, 1}, Elem::kBool), (Numbers{0, 1}));
}

TEST(HandlersBinaryTest, BroadcastsAsNumpy) {
  const Tensor y =
      OneNode("Add", 14).InDynamic(kF, {2, 1}, {10, 20}).In(kF, {3}, {1, 2, 3}).Out(kF).Result();
  EXPECT_EQ(y, Of(DType::kF32, {2, 3}, {11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(
      OneNode("Mul", 14).InDynamic(kF, {0, 1}, {}).In(kF, {3}, {1, 2, 3}).Out(kF).Result().shape,
      (std::vector<int64_t>{0, 3}));
}

// Before opset 7, B is broadcast within A's axes, and only with `broadcast`.
TEST(HandlersBinaryTest, BroadcastByAttributes) {
  const auto add = [](std::vector<int64_t> shape) {
    Numbers x(6, 100);
    return OneNode("Add", 6)
        .In(kF, {2, 3}, x)
        .In(kF, shape, Numbers(shape.empty() ? 1 : shape[0], 1));
  };
  const auto values = [&](Numbers y, std::vector<int64_t> shape, bool axis, int64_t at) {
    OneNode node("Sub", 6);
    node.In(kF, {2, 3}, Numbers(6, 100)).In(kF, std::move(shape), y).Attr("broadcast", int64_t{1});
    if (axis) node.Attr("axis", at);
    return node.Out(kF).Values();
  };
  EXPECT_EQ(values({1, 2, 3}, {3}, false, 0), (Numbers{99, 98, 97, 99, 98, 97}));
  EXPECT_EQ(values({1, 2}, {2}, true, 0), (Numbers{99, 99, 99, 98, 98, 98}));
  EXPECT_EQ(values({5}, {}, false, 0), Numbers(6, 95));
  EXPECT_NE(add({3}).Out(kF).Error().find("without broadcast=1"), std::string::npos);
  EXPECT_EQ(OneNode("Greater", 6)
                .In(kF, {2, 1}, {1, 2})
                .In(kF, {2}, {1, 1})
                .Attr("axis", int64_t{0})
                .Attr("broadcast", int64_t{1})
                .Out(Elem::kBool)
                .Values(),
            (Numbers{0, 1}));
}

TEST(HandlersBinaryTest, ManyOperands) {
  const auto many = [](const std::string& op, int64_t opset, Elem elem) {
    return OneNode(op, opset)
        .In(elem, {2, 1}, {1, 8})
        .In(elem, {2}, {2, 5})
        .In(elem, {}, {3})
        .Out(elem)
        .Values();
  };
  EXPECT_EQ(many("Max", 13, kI32), (Numbers{3, 5, 8, 8}));
  EXPECT_EQ(many("Min", 13, kF), (Numbers{1, 1, 2, 3}));
  EXPECT_EQ(many("Sum", 13, kF), (Numbers{6, 9, 13, 16}));
  EXPECT_EQ(many("Mean", 13, Elem::kDouble), (Numbers{2, 3, 13.0 / 3, 16.0 / 3}));
  ExpectNear(Two("Max", 13, kF, {kNan, 1}, {1, kNan}), {kNan, kNan});
  EXPECT_EQ(OneNode("Sum", 6).In(kF, {1}, {4}).Out(kF).Values(), Numbers{4});
  EXPECT_NE(OneNode("Max", 6)
                .In(kF, {2}, {1, 2})
                .In(kF, {1}, {1})
                .Out(kF)
                .Error()
                .find("opsets before 8"),
            std::string::npos);
  // In f16, 2048 + 1 + 1 summed stepwise would stay 2048.
  const Elem f16 = Elem::kFloat16;
  EXPECT_EQ(
      OneNode("Sum", 13).In(f16, {}, {2048}).In(f16, {}, {1}).In(f16, {}, {1}).Out(f16).Values(),
      Numbers{2050});
}

TEST(HandlersBinaryTest, Mod) {
  const auto mod = [](int64_t opset, Elem elem, const Numbers& x, const Numbers& y, int64_t fmod) {
    const auto count = static_cast<int64_t>(x.size());
    return OneNode("Mod", opset)
        .In(elem, {count}, x)
        .In(elem, {count}, y)
        .Attr("fmod", fmod)
        .Out(elem);
  };
  EXPECT_EQ(mod(13, kI32, {-7, 7, 7}, {3, -3, 3}, 0).Values(), (Numbers{2, -2, 1}));
  EXPECT_EQ(mod(13, kI32, {-7, 7, 7}, {3, -3, 3}, 1).Values(), (Numbers{-1, 1, 1}));
  ExpectNear(mod(13, kF, {-7.5, 7.5, 5, 1, kInf}, {3, -3, kInf, 0, 1}, 1).Values(),
             {-1.5, 1.5, 5, kNan, kNan});
  EXPECT_EQ(mod(28, kF, {-7.5, 7.5}, {3, -3}, 0).Values(), (Numbers{1.5, -1.5}));
  EXPECT_NE(mod(13, kF, {1}, {1}, 0).Error().find("floats need fmod=1"), std::string::npos);
}

TEST(HandlersBinaryTest, BitShift) {
  const auto shift = [](const std::string& direction) {
    return OneNode("BitShift", 11)
        .In(Elem::kUInt8, {3}, {16, 4, 255})
        .In(Elem::kUInt8, {3}, {1, 2, 8})
        .Attr("direction", direction)
        .Out(Elem::kUInt8);
  };
  EXPECT_EQ(shift("LEFT").Values(), (Numbers{32, 16, 0}));
  EXPECT_EQ(shift("RIGHT").Values(), (Numbers{8, 1, 0}));
  EXPECT_FALSE(shift("UP").Error().empty());
  EXPECT_EQ(OneNode("BitShift", 28)
                .In(kI32, {2}, {-8, -1})
                .In(kI32, {2}, {1, 40})
                .Attr("direction", "RIGHT")
                .Out(kI32)
                .Values(),
            (Numbers{-4, -1}));
}

TEST(HandlersBinaryTest, Where) {
  EXPECT_EQ(OneNode("Where", 16)
                .In(Elem::kBool, {2, 1}, {1, 0})
                .In(kF, {2}, {1, 2})
                .In(kF, {}, {9})
                .Out(kF)
                .Values(),
            (Numbers{1, 2, 9, 9}));
}

Numbers Power(Elem x_elem, const Numbers& x, Elem y_elem, const Numbers& y) {
  const auto count = static_cast<int64_t>(x.size());
  return OneNode("Pow", 15).In(x_elem, {count}, x).In(y_elem, {count}, y).Out(x_elem).Values();
}

TEST(HandlersBinaryTest, PowHasTheBasesType) {
  ExpectNear(Power(kF, {2, 9, -8, 0}, kF, {10, 0.5, 1.0 / 3, 0}), {1024, 3, kNan, 1});
  EXPECT_EQ(Power(kI32, {2, -3, 7, 0, 5}, kI32, {10, 3, 0, 0, 1}), (Numbers{1024, -27, 1, 1, 5}));
  EXPECT_EQ(Power(kI32, {1, -1, -1, 2, 0}, kI32, {-5, -3, -2, -1, -1}), (Numbers{1, -1, 1, 0, 0}));
  EXPECT_EQ(Power(Elem::kInt64, {3, 2}, Elem::kUInt8, {39, 62}),
            (Numbers{std::pow(3, 39), 0x1p62}));
  EXPECT_EQ(Power(kI32, {2, 3}, kF, {3.5, 2}), (Numbers{11, 9}));
  EXPECT_EQ(Power(kF, {2, -2, -2}, Elem::kInt64, {3, 3, 4}), (Numbers{8, -8, 16}));
  // In f64 this exponent is no longer odd.
  EXPECT_EQ(Power(kF, {-1}, Elem::kInt64, {0x1p53}), (Numbers{1}));
  const Tensor odd = Tensor::Of<int64_t>(DType::kI64, {1}, {(int64_t{1} << 53) + 1});
  TestModel m(15);
  m.Input("x", kF, {1}).Input("y", Elem::kInt64, {1});
  m.Node("Pow", {"x", "y"}, {"z"}).Output("z", kF);
  EXPECT_EQ(ValuesOf(RunModel(m, {Of(DType::kF32, {1}, {-1}), odd}).value()[0]), Numbers{-1});
  EXPECT_EQ(Power(Elem::kDouble, {2, 4}, kF, {0.5, 0.5}), (Numbers{std::sqrt(2.0), 2}));
}

// Known exponents: products and roots, with the edge cases of pow.
TEST(HandlersBinaryTest, PowOfAKnownExponent) {
  const auto power = [](Elem elem, const Numbers& x, double y) {
    return OneNode("Pow", 15)
        .In(elem, {static_cast<int64_t>(x.size())}, x)
        .Fixed(elem, {}, {y})
        .Out(elem)
        .Values();
  };
  const Numbers x = {-2, -0.0, 0.5, 3, kInf, -kInf, kNan};
  for (double y : {0.0, 0.5, 1.0, 2.0, 3.0, 4.0, -1.0}) {
    Numbers want;
    for (double v : x) want.push_back(std::pow(v, y));
    ExpectNear(power(kF, x, y), want);
    ExpectNear(power(Elem::kDouble, x, y), want, 1e-14);
    ExpectNear(power(Elem::kFloat16, x, y), want, 5e-4);
  }
  EXPECT_FALSE(std::signbit(power(kF, {-0.0}, 0.5)[0]));
  EXPECT_EQ(power(kI32, {5, -3, 0}, 0), (Numbers{1, 1, 1}));
  EXPECT_EQ(power(kI32, {5, -3, 0}, 3), (Numbers{125, -27, 0}));
  EXPECT_EQ(OneNode("Pow", 15).In(kF, {2}, {2, 3}).Fixed(kF, {2, 1}, {2, 2}).Out(kF).Values(),
            (Numbers{4, 9, 4, 9}));
  EXPECT_EQ(OneNode("Pow", 15).In(kF, {2}, {2, 3}).Fixed(kF, {1, 1}, {2}).Out(kF).Result().shape,
            (std::vector<int64_t>{1, 2}));
}

}  // namespace
}  // namespace athanor::onnx
