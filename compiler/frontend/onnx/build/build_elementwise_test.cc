// Tests of OpBuilder's elementwise functions: broadcasting, and edge values of each type.
#include "compiler/frontend/onnx/build/build_elementwise.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_testing.h"

namespace athanor::onnx {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Numbers = std::vector<double>;

Expr S(const char* name) { return Expr::Symbol(name); }

// Applies the function to two vectors of one type; NaN is written as 12345.
template <typename F>
Numbers Of2(F function, Elem elem, const Numbers& x, const Numbers& y) {
  Built t;
  const auto count = static_cast<int64_t>(x.size());
  const Value a = t.Input(elem, {count}), b = t.Input(elem, {count});
  const DType dtype = CarrierOf(elem);
  Numbers values =
      ValuesOf(t.Run(function(t.b(), a, b), {Of(dtype, {count}, x), Of(dtype, {count}, y)}));
  for (double& v : values) v = std::isnan(v) ? 12345 : v;
  return values;
}
template <typename F>
Numbers Of1(F function, Elem elem, const Numbers& x) {
  return Of2([&](OpBuilder& b, const Value& v, const Value&) { return function(b, v); }, elem, x,
             x);
}

constexpr Elem kFloats[] = {Elem::kFloat16, Elem::kBFloat16, Elem::kFloat, Elem::kDouble};

TEST(BuildElementwiseTest, ShapesBroadcastFromTheEnd) {
  Built t({{"n", 1, 9}, {"m", 2, 9}});
  const Expr n = S("n"), m = S("m");
  const std::vector<std::pair<std::vector<Shape>, Shape>> cases = {
      {{}, {}},
      {{{}, {3}}, {3}},
      {{{2, 1, 4}, {3, 1}}, {2, 3, 4}},
      {{{n, 1}, {m}}, {n, m}},
      {{{n}, {n}}, {n}},
      {{{1}, {0}}, {0}},
      {{{5}, {1, 1, 1}, {7, 1}}, {1, 7, 5}},
      {{{FloorDiv(n * 4, 2)}, {n * 2}}, {n * 2}},
  };
  for (const auto& [shapes, want] : cases) {
    const absl::StatusOr<Shape> got = BroadcastShape(t.b(), shapes);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, want);
  }
}

TEST(BuildElementwiseTest, WhatDoesNotBroadcastIsNamed) {
  Built t({{"n", 1, 9}, {"m", 1, 9}});
  EXPECT_EQ(BroadcastShape(t.b(), {{2, 3}, {4}}).status().message(),
            "shapes [2, 3] and [4] do not broadcast: axis -1 is 3 and 4; sizes must be equal, or "
            "one of them 1");
  EXPECT_EQ(BroadcastShape(t.b(), {{S("n"), 3}, {S("m"), 1}}).status().message(),
            "shapes [n, 3] and [m, 1] do not broadcast: axis -2 is n and m, which are not provably "
            "equal, and neither is provably 1: if they are equal, say so with "
            "dims={\"m\": \"n\"}; if one is 1, fix it");
  EXPECT_EQ(BroadcastShape(t.b(), {{0}, {2}}).status().code(), absl::StatusCode::kInvalidArgument);
  Broadcast(t.b(), t.Input(Elem::kFloat, {2, 2}), {2});
  EXPECT_EQ(t.b().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(BuildElementwiseTest, BroadcastRepeats) {
  Built t({{"n", 0, 9}});
  const Value a = t.Input(Elem::kInt32, {S("n"), 1}), b = t.Input(Elem::kInt32, {3});
  const Value sum = Add(t.b(), a, b);
  EXPECT_EQ(sum.shape, (Shape{S("n"), 3}));
  const Tensor three = Of(DType::kI32, {3}, {1, 2, 3});
  EXPECT_EQ(ValuesOf(t.Run(sum, {Of(DType::kI32, {2, 1}, {10, 20}), three})),
            (Numbers{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(t.Run(sum, {Of(DType::kI32, {0, 1}, {}), three}).elements(), 0);
}

TEST(BuildElementwiseTest, DifferentTypesFail) {
  Built t;
  Add(t.b(), t.Input(Elem::kFloat, {2}), t.Input(Elem::kDouble, {2}));
  EXPECT_FALSE(t.b().status().ok());
}

TEST(BuildElementwiseTest, SelectTakesBitForBit) {
  Built t;
  const Value c = t.Input(Elem::kBool, {3, 1}), a = t.Input(Elem::kFloat, {2});
  const Value y = Select(t.b(), c, a, t.b().Scalar(Elem::kFloat, -1));
  EXPECT_EQ(t.Run(y, {Of(DType::kBool, {3, 1}, {1, 0, 1}), Of(DType::kF32, {2}, {5, kInf})}),
            Of(DType::kF32, {3, 2}, {5, kInf, -1, -1, 5, kInf}));
}

TEST(BuildElementwiseTest, NegAndSubWrap) {
  EXPECT_EQ(Of1(Neg, Elem::kInt8, {5, -128, 0}), (Numbers{-5, -128, 0}));
  EXPECT_EQ(Of1(Neg, Elem::kUInt8, {5, 255, 0}), (Numbers{251, 1, 0}));
  EXPECT_EQ(Of2(Sub, Elem::kUInt8, {5, 7}, {7, 5}), (Numbers{254, 2}));
  for (Elem elem : kFloats) {
    EXPECT_EQ(Of1(Neg, elem, {1.5, kInf, kNan}), (Numbers{-1.5, -kInf, 12345}));
    EXPECT_TRUE(std::signbit(Of1(Neg, elem, {0})[0]));
    EXPECT_EQ(Of2(Sub, elem, {1, kInf, 2}, {3, kInf, kNan}), (Numbers{-2, 12345, 12345}));
  }
  Built t;
  const Value x = t.Input(Elem::kUInt64, {1});
  EXPECT_EQ(LoadScalar(t.Run(Neg(t.b(), x), {Of(DType::kU64, {1}, {1})}), 0).u,
            std::numeric_limits<uint64_t>::max());
}

TEST(BuildElementwiseTest, DivOfIntegersGoesTowardsZero) {
  EXPECT_EQ(Of2(Div, Elem::kInt32, {-7, 7, 7}, {2, -2, 2}), (Numbers{-3, -3, 3}));
  EXPECT_EQ(Of2(Div, Elem::kFloat, {-7, 1}, {2, 0}), (Numbers{-3.5, kInf}));
}

TEST(BuildElementwiseTest, Abs) {
  EXPECT_EQ(Of1(Abs, Elem::kInt8, {-5, -128, 3}), (Numbers{5, -128, 3}));
  EXPECT_EQ(Of1(Abs, Elem::kUInt16, {65535, 0}), (Numbers{65535, 0}));
  for (Elem elem : kFloats) {
    EXPECT_EQ(Of1(Abs, elem, {-2.5, -kInf, kNan, 1}), (Numbers{2.5, kInf, 12345, 1}));
    EXPECT_FALSE(std::signbit(Of1(Abs, elem, {-0.0})[0]));
  }
}

TEST(BuildElementwiseTest, ComparisonsBesideNaN) {
  for (Elem elem : kFloats) {
    const Numbers x = {1, 1, -0.0, kNan, kNan, 1, kInf, -kInf, kInf};
    const Numbers y = {1, 2, 0.0, kNan, 1, kNan, kInf, -kInf, -kInf};
    EXPECT_EQ(Of2(Equal, elem, x, y), (Numbers{1, 0, 1, 0, 0, 0, 1, 1, 0}));
    EXPECT_EQ(Of2(LessEqual, elem, x, y), (Numbers{1, 1, 1, 0, 0, 0, 1, 1, 0}));
  }
  EXPECT_EQ(Of2(Equal, Elem::kUInt8, {1, 0, 255}, {1, 255, 255}), (Numbers{1, 0, 1}));
  EXPECT_EQ(Of2(LessEqual, Elem::kInt8, {-1, 0, 1}, {0, 0, 0}), (Numbers{1, 1, 0}));
  EXPECT_EQ(Of2(Equal, Elem::kBool, {0, 0, 1, 1}, {0, 1, 0, 1}), (Numbers{1, 0, 0, 1}));
}

TEST(BuildElementwiseTest, IsNaN) {
  for (Elem elem : kFloats) {
    EXPECT_EQ(Of1(IsNaN, elem, {0, kNan, kInf, -kInf, 1}), (Numbers{0, 1, 0, 0, 0}));
  }
  EXPECT_EQ(Of1(IsNaN, Elem::kInt8, {0, -1}), (Numbers{0, 0}));
  EXPECT_EQ(Of1(IsNaN, Elem::kFloat8E4M3FNUZ, {0, 0x80, 0x7f, 0xff}), (Numbers{0, 1, 0, 0}));
  EXPECT_EQ(Of1(IsNaN, Elem::kFloat4E2M1, {0, 8, 15}), (Numbers{0, 0, 0}));
  for (Elem elem : {Elem::kFloat8E4M3FN, Elem::kFloat8E5M2, Elem::kFloat8E8M0}) {
    Built t;
    Tensor codes = Tensor::Zeros(CarrierOf(elem), {256});
    for (int i = 0; i < 256; ++i) codes.bytes[i] = static_cast<char>(i);
    const Tensor got = t.Run(IsNaN(t.b(), t.Input(elem, {256})), {codes});
    for (int i = 0; i < 256; ++i) {
      EXPECT_EQ(got.bytes[i] != 0, std::isnan(DecodeFloat(CarrierOf(elem), i))) << i;
    }
  }
}

TEST(BuildElementwiseTest, CopySign) {
  for (Elem elem : kFloats) {
    EXPECT_EQ(Of2(CopySign, elem, {1, -2, kInf}, {-0.0, 3, -1}), (Numbers{-1, 2, -kInf}));
  }
}

TEST(BuildElementwiseTest, ClampKeepsNaN) {
  const auto clamp = [](OpBuilder& b, const Value& x) {
    return Clamp(b, x, b.Scalar(x.elem, -1), b.Scalar(x.elem, 2));
  };
  const auto crossed = [](OpBuilder& b, const Value& x) {
    return Clamp(b, x, b.Scalar(x.elem, 2), b.Scalar(x.elem, -1));
  };
  for (Elem elem : kFloats) {
    EXPECT_EQ(Of1(clamp, elem, {-5, 0.5, 7, kNan, kInf}), (Numbers{-1, 0.5, 2, 12345, 2}));
  }
  EXPECT_EQ(Of1(clamp, Elem::kInt32, {-5, 0, 7}), (Numbers{-1, 0, 2}));
  EXPECT_EQ(Of1(crossed, Elem::kInt32, {-5, 0, 7}), (Numbers{-1, -1, -1}));
}

TEST(BuildElementwiseTest, UpIsForTheShortFloats) {
  Built t;
  EXPECT_EQ(Up(t.b(), t.Input(Elem::kFloat16, {})).elem, Elem::kFloat);
  EXPECT_EQ(Up(t.b(), t.Input(Elem::kBFloat16, {})).elem, Elem::kFloat);
  EXPECT_EQ(Up(t.b(), t.Input(Elem::kDouble, {})).elem, Elem::kDouble);
  EXPECT_EQ(Up(t.b(), t.Input(Elem::kInt8, {})).elem, Elem::kInt8);
}

}  // namespace
}  // namespace athanor::onnx
