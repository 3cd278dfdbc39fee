#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"
#include "compiler/ir/sample/compare.h"

namespace athanor {
namespace {

using Values = std::vector<double>;
using Ints = std::vector<int64_t>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DType kFloats[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

// Small integers in no simple order.
Tensor Some(DType t, Ints shape, int64_t modulus) {
  Tensor values = Tensor::Zeros(t, std::move(shape));
  for (int64_t i = 0; i < values.elements(); ++i) {
    const int64_t v = (i * i * 3 + i * 5 + i / 3) % modulus - modulus / 2;
    StoreScalar(values, i,
                IsFloat(t) ? Scalar::Float(t, static_cast<double>(v)) : Scalar::Signed(t, v));
  }
  return values;
}

Attrs Window(Ints strides, Ints dilations, Shape begin, Shape out) {
  return {{"strides", strides}, {"dilations", dilations}, {"begin", begin}, {"out", out}};
}

Attrs With(Attrs attrs, const char* name, AttrValue value) {
  attrs[name] = std::move(value);
  return attrs;
}

Attrs PoolOf(const char* mode, Ints kernel, Attrs window) {
  return With(With(std::move(window), "mode", std::string(mode)), "kernel", std::move(kernel));
}

// Expected values are those of ONNX Runtime's Conv, MaxPool and AveragePool in f32; all are exact.
TEST(ReferenceWindowTest, ConvolutionsOfOneToThreeAxes) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8, DType::kI32,
                  DType::kI64}) {
    EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {Some(t, {2, 3, 7}, 7), Some(t, {4, 3, 3}, 5)},
                             Window({2}, {2}, {1}, {4}))),
              (Values{8, -7, 2, 7, 3, -4, -7, 1, -1, 1, 0, -4, 6, 13, 3, -8,
                      8, -7, 2, 7, 3, -4, -7, 1, -1, 1, 0, -4, 6, 13, 3, -8}));
    EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {Some(t, {1, 4, 4, 5}, 7), Some(t, {6, 2, 2, 3}, 5)},
                             With(Window({2, 1}, {1, 2}, {0, 2}, {2, 3}), "group", int64_t{2}))),
              (Values{2,   -17, -15, 0, 10, 5, 7,  -7, -9, 15, 12, -3, 9,  1,  -8, -6, 0,  -1,
                      -15, 4,   2,   0, -5, 3, -3, 7,  -3, -1, 13, 9,  -7, -2, 4,  -3, -4, -2}));
    EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {Some(t, {1, 2, 3, 2, 4}, 7), Some(t, {2, 2, 2, 1, 3}, 5)},
                             Window({1, 2, 1}, {1, 1, 1}, {1, 0, 1}, {3, 1, 4}))),
              (Values{-9, 0,  -4,  -9, -7, 22, -12, -6, 3,  21, -4,  0,
                      -1, 14, -10, -4, -2, 18, 2,   0,  -6, 0,  -16, 1}));
    EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {Some(t, {1, 3, 4, 4}, 7), Some(t, {3, 1, 3, 3}, 5)},
                             With(Window({2, 2}, {1, 1}, {1, 1}, {2, 2}), "group", int64_t{3}))),
              (Values{2, -12, 6, 10, -2, 1, 5, 1, 2, -8, 1, -1}));
  }
}

TEST(ReferenceWindowTest, BeginMayBeNegativeAndFollowDims) {
  const Tensor x = Of(DType::kF32, {1, 1, 5}, {1, 2, 3, 4, 5}),
               w = Of(DType::kF32, {1, 1, 2}, {1, 10});
  EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {x, w}, Window({1}, {1}, {-2}, {4}))),
            (Values{43, 54, 5, 0}));
  const Expr s = Expr::Symbol("s");
  EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {x, w}, Window({2}, {1}, {s - 2}, {FloorDiv(s, 2) + 1}),
                           {{"s", 3}})),
            (Values{10, 32}));
}

TEST(ReferenceWindowTest, NothingToSum) {
  const Tensor none = Of(DType::kF32, {2, 1, 0}, {}), w = Of(DType::kF32, {1, 1, 2}, {1, 2});
  EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {none, w}, Window({1}, {1}, {1}, {2}))),
            (Values{0, 0, 0, 0}));
  const Tensor no_channel = Of(DType::kF32, {1, 0, 3}, {}),
               no_weight = Of(DType::kF32, {2, 0, 1}, {});
  EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {no_channel, no_weight}, Window({1}, {1}, {0}, {2}))),
            (Values{0, 0, 0, 0}));
  EXPECT_EQ(RunOp(Op::kConv, {none, w}, Window({1}, {1}, {1}, {0})).elements(), 0);
  EXPECT_EQ(RunOp(Op::kConv, {Of(DType::kF32, {0, 1, 3}, {}), w}, Window({1}, {1}, {1}, {2})).shape,
            (Ints{0, 1, 2}));
}

TEST(ReferenceWindowTest, PaddingIsZeroTimesTheWeight) {
  const Tensor x = Of(DType::kF32, {1, 1, 2}, {1, 2}), w = Of(DType::kF32, {1, 1, 2}, {kInf, 1});
  const Values y = ValuesOf(RunOp(Op::kConv, {x, w}, Window({1}, {1}, {1}, {3})));
  EXPECT_TRUE(std::isnan(y[0]));  // 0 * inf + 1
  EXPECT_EQ(y[1], kInf);
  EXPECT_EQ(y[2], kInf);
}

TEST(ReferenceWindowTest, LowPrecisionSumsRoundOnce) {
  // 2048 + 1 + 1 is 2050 in f16 only if the ones are not rounded away one by one.
  const Tensor x = Of(DType::kF16, {1, 1, 3}, {2048, 1, 1}),
               w = Of(DType::kF16, {1, 1, 3}, {1, 1, 1});
  const Attrs window = Window({1}, {1}, {0}, {1});
  EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {x, w}, window)), (Values{2050}));
  EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, PoolOf("sum", {3}, window))), (Values{2050}));
  const Tensor big = Of(DType::kF16, {1, 1, 3}, {60000, 60000, 60000});
  EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {big}, PoolOf("mean", {3}, window))), (Values{60000}));
}

TEST(ReferenceWindowTest, IntegersWrap) {
  const Tensor x = Of(DType::kI8, {1, 1, 2}, {100, 100});
  EXPECT_EQ(ValuesOf(RunOp(Op::kConv, {x, Of(DType::kI8, {1, 1, 2}, {1, 1})},
                           Window({1}, {1}, {0}, {1}))),
            (Values{-56}));
  EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, PoolOf("sum", {2}, Window({1}, {1}, {0}, {1})))),
            (Values{-56}));
}

TEST(ReferenceWindowTest, Pools) {
  const Attrs padded = Window({2, 2}, {1, 1}, {1, 1}, {2, 3});
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8, DType::kI64}) {
    const Tensor x = Some(t, {1, 2, 4, 5}, 13);
    EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, PoolOf("max", {2, 3}, padded))),
              (Values{2, 3, -2, 4, 4, 6, 0, 3, 4, 2, 5, 6}));
    EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x},
                             PoolOf("max", {2, 2}, Window({1, 1}, {2, 3}, {0, 0}, {2, 2})))),
              (Values{-2, 6, 4, 4, 5, 4, 4, 6}));
    EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, PoolOf("sum", {2, 3}, padded))),
              (Values{-4, 3, -4, 3, -13, -3, -1, 2, 4, -4, 3, 13}));
  }
  for (DType t : kFloats) {
    const Tensor x = Some(t, {1, 2, 4, 5}, 13);
    const auto expect = [&](const Tensor& y, Values numerators, double divisor) {
      for (double& v : numerators) v /= divisor;
      const absl::Status same = CompareTensors(y, Of(t, y.shape, numerators), UnitRoundoff(t), 0);
      EXPECT_TRUE(same.ok()) << same;
    };
    expect(RunOp(Op::kPool, {x}, PoolOf("mean", {2, 3}, padded)),
           {-24, 12, -24, 9, -26, -9, -6, 8, 24, -12, 6, 39}, 12);
    expect(RunOp(Op::kPool, {x}, With(PoolOf("mean", {2, 3}, padded), "counted", Shape{5, 7})),
           {-4, 3, -4, 3, -13, -3, -1, 2, 4, -4, 3, 13}, 6);
  }
}

TEST(ReferenceWindowTest, PoolsOfNothing) {
  const Attrs beyond = Window({1}, {1}, {7}, {2});
  for (DType t : kFloats) {
    const Tensor x = Of(t, {1, 1, 3}, {1, 2, 3});
    EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, PoolOf("max", {2}, beyond))), (Values{-kInf, -kInf}));
    EXPECT_EQ(ValuesOf(RunOp(Op::kPool, {x}, PoolOf("sum", {2}, beyond))), (Values{0, 0}));
    for (double v : ValuesOf(RunOp(Op::kPool, {x}, PoolOf("mean", {2}, beyond)))) {
      EXPECT_TRUE(std::isnan(v));
    }
    // The whole window counts, and none of it is inside x.
    EXPECT_EQ(
        ValuesOf(RunOp(Op::kPool, {x}, With(PoolOf("mean", {2}, beyond), "counted", Shape{10}))),
        (Values{0, 0}));
  }
  const auto lowest = [&](DType t) {
    return ValuesOf(RunOp(Op::kPool, {Tensor::Zeros(t, {1, 1, 0})}, PoolOf("max", {2}, beyond)))[0];
  };
  EXPECT_EQ(lowest(DType::kI8), -128);
  EXPECT_EQ(lowest(DType::kI64), -std::pow(2.0, 63));
  EXPECT_EQ(lowest(DType::kU16), 0);
  EXPECT_EQ(lowest(DType::kBool), 0);
}

TEST(ReferenceWindowTest, MaximaOfUnsignedBoolsAndNaN) {
  const Attrs pairs = PoolOf("max", {2}, Window({1}, {1}, {0}, {3}));
  const auto max = [&](DType t, const Values& x) {
    return ValuesOf(RunOp(Op::kPool, {Of(t, {1, 1, 4}, x)}, pairs));
  };
  EXPECT_EQ(max(DType::kU8, {200, 3, 255, 0}), (Values{200, 255, 255}));
  EXPECT_EQ(max(DType::kI16, {-200, -300, 5, -1}), (Values{-200, 5, 5}));
  EXPECT_EQ(max(DType::kBool, {0, 0, 1, 0}), (Values{0, 1, 1}));
  const Values y = max(DType::kF32, {1, kNan, 2, -kInf});
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(y[2], 2);
}

}  // namespace
}  // namespace athanor
