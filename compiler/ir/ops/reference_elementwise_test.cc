#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"
#include "compiler/ir/sample/compare.h"

namespace athanor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Expected values are mpmath's with 400 bits: see testdata/make_tables.py. Narrow dtypes must be
// correctly rounded. f64 may be one unit off, which no path through f32 could achieve.
TEST(ReferenceElementwiseTest, FunctionsAsTheTableSays) {
  std::ifstream table("compiler/ir/testdata/functions.txt");
  int rows = 0;
  for (std::string line; std::getline(table, line); ++rows) {
    std::istringstream words(line);
    std::string name, dtype;
    words >> name >> dtype;
    std::vector<Tensor> tensors;
    for (std::string code; words >> code;) {
      tensors.push_back(OfCode(ParseDType(dtype).value(), std::stoull(code, nullptr, 16)));
    }
    const Tensor want = tensors.back();
    tensors.pop_back();
    const bool tanh = name == "GeluTanh";
    const Attrs attrs = tanh ? Attrs{{"approximate", std::string("tanh")}} : Attrs{};
    const Tensor got = RunOp(ParseOp(tanh ? "Gelu" : name).value(), tensors, attrs);
    const absl::Status same = CompareTensorsUlp(got, want, dtype == "f64" ? 1 : 0);
    EXPECT_TRUE(same.ok()) << line << ": " << same;
    EXPECT_EQ(std::signbit(LoadScalar(got, 0).f), std::signbit(LoadScalar(want, 0).f)) << line;
  }
  EXPECT_GT(rows, 1500);
}

double Run1(Op op, DType dtype, double x, const Attrs& attrs = {}) {
  return ValuesOf(RunOp(op, {Of(dtype, {}, {x})}, attrs))[0];
}
double Run2(Op op, DType dtype, double a, double b) {
  return ValuesOf(RunOp(op, {Of(dtype, {}, {a}), Of(dtype, {}, {b})}))[0];
}

TEST(ReferenceElementwiseTest, EdgesOfFunctions) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    EXPECT_EQ(Run1(Op::kLog, t, 0), -kInf);
    EXPECT_TRUE(std::isnan(Run1(Op::kLog2, t, -1)));
    EXPECT_EQ(Run1(Op::kExp, t, -kInf), 0);
    EXPECT_EQ(Run1(Op::kExp2, t, kInf), kInf);
    EXPECT_EQ(Run1(Op::kExp, t, 30000), kInf);
    EXPECT_TRUE(std::isnan(Run1(Op::kSin, t, kInf)));
    EXPECT_TRUE(std::signbit(Run1(Op::kSin, t, -0.0)));
    EXPECT_TRUE(std::signbit(Run1(Op::kSqrt, t, -0.0)));
    EXPECT_TRUE(std::isnan(Run1(Op::kSqrt, t, -1)));
    EXPECT_EQ(Run1(Op::kRecip, t, -0.0), -kInf);
    EXPECT_EQ(Run1(Op::kTanh, t, -kInf), -1);
    EXPECT_EQ(Run1(Op::kErf, t, kInf), 1);
    EXPECT_EQ(Run1(Op::kSigmoid, t, -kInf), 0);
    EXPECT_EQ(Run1(Op::kSigmoid, t, kInf), 1);
    for (Op op : {Op::kGelu, Op::kSilu}) {
      EXPECT_EQ(Run1(op, t, -kInf), 0);
      EXPECT_TRUE(std::signbit(Run1(op, t, -kInf)));
      EXPECT_EQ(Run1(op, t, kInf), kInf);
      EXPECT_TRUE(std::isnan(Run1(op, t, kNan)));
    }
    EXPECT_EQ(Run1(Op::kGelu, t, -kInf, {{"approximate", std::string("tanh")}}), 0);
    EXPECT_TRUE(std::isnan(Run1(Op::kRelu, t, kNan)));
    EXPECT_FALSE(std::signbit(Run1(Op::kRelu, t, -0.0)));
    EXPECT_EQ(Run1(Op::kRelu, t, -3), 0);
  }
  EXPECT_EQ(Run1(Op::kRelu, DType::kI8, -3), 0);
  EXPECT_EQ(Run1(Op::kRelu, DType::kU8, 200), 200);
}

TEST(ReferenceElementwiseTest, EdgesOfTrigonometry) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    for (Op op : {Op::kTan, Op::kAsin, Op::kAtan, Op::kSinh, Op::kAsinh, Op::kAtanh, Op::kLog1p,
                  Op::kExpm1}) {
      EXPECT_EQ(Run1(op, t, -0.0), 0) << OpName(op);
      EXPECT_TRUE(std::signbit(Run1(op, t, -0.0))) << OpName(op);
      EXPECT_FALSE(std::signbit(Run1(op, t, 0.0))) << OpName(op);
    }
    for (Op op : {Op::kCos, Op::kTan, Op::kAsin, Op::kAcos, Op::kAtan, Op::kSinh, Op::kCosh,
                  Op::kAsinh, Op::kAcosh, Op::kAtanh, Op::kLog1p, Op::kExpm1}) {
      EXPECT_TRUE(std::isnan(Run1(op, t, kNan))) << OpName(op);
    }
    for (Op op : {Op::kCos, Op::kTan, Op::kAsin, Op::kAcos, Op::kAtanh}) {
      EXPECT_TRUE(std::isnan(Run1(op, t, kInf))) << OpName(op);
      EXPECT_TRUE(std::isnan(Run1(op, t, -kInf))) << OpName(op);
    }
    for (Op op : {Op::kAsin, Op::kAcos, Op::kAtanh}) {
      EXPECT_TRUE(std::isnan(Run1(op, t, 1.5))) << OpName(op);
      EXPECT_TRUE(std::isnan(Run1(op, t, -1.5))) << OpName(op);
    }
    EXPECT_EQ(Run1(Op::kCos, t, -0.0), 1);
    EXPECT_EQ(Run1(Op::kAcos, t, 1), 0);
    EXPECT_FALSE(std::signbit(Run1(Op::kAcos, t, 1)));
    EXPECT_NEAR(Run1(Op::kAcos, t, -1), M_PI, 0.01);
    EXPECT_NEAR(Run1(Op::kAsin, t, -1), -M_PI_2, 0.01);
    EXPECT_NEAR(Run1(Op::kAtan, t, -kInf), -M_PI_2, 0.01);
    EXPECT_EQ(Run1(Op::kSinh, t, -kInf), -kInf);
    EXPECT_EQ(Run1(Op::kSinh, t, -10000), -kInf);
    EXPECT_EQ(Run1(Op::kCosh, t, 0), 1);
    EXPECT_EQ(Run1(Op::kCosh, t, -kInf), kInf);
    EXPECT_EQ(Run1(Op::kCosh, t, -10000), kInf);
    EXPECT_EQ(Run1(Op::kAsinh, t, -kInf), -kInf);
    EXPECT_EQ(Run1(Op::kAcosh, t, 1), 0);
    EXPECT_EQ(Run1(Op::kAcosh, t, kInf), kInf);
    EXPECT_TRUE(std::isnan(Run1(Op::kAcosh, t, 0.5)));
    EXPECT_EQ(Run1(Op::kAtanh, t, 1), kInf);
    EXPECT_EQ(Run1(Op::kAtanh, t, -1), -kInf);
    EXPECT_EQ(Run1(Op::kLog1p, t, -1), -kInf);
    EXPECT_EQ(Run1(Op::kLog1p, t, kInf), kInf);
    EXPECT_TRUE(std::isnan(Run1(Op::kLog1p, t, -1.5)));
    EXPECT_EQ(Run1(Op::kExpm1, t, -kInf), -1);
    EXPECT_EQ(Run1(Op::kExpm1, t, -1000), -1);
    EXPECT_EQ(Run1(Op::kExpm1, t, kInf), kInf);
    EXPECT_EQ(Run1(Op::kExpm1, t, 30000), kInf);
  }
  // A composition of other ops would lose these values.
  EXPECT_EQ(Run1(Op::kLog1p, DType::kF32, std::ldexp(1, -40)), std::ldexp(1, -40));
  EXPECT_EQ(Run1(Op::kExpm1, DType::kF64, std::ldexp(1, -80)), std::ldexp(1, -80));
  EXPECT_EQ(Run1(Op::kSinh, DType::kF32, std::ldexp(1, -40)), std::ldexp(1, -40));
}

TEST(ReferenceElementwiseTest, RoundsToEvenAndKeepsSigns) {
  EXPECT_EQ(Run1(Op::kRound, DType::kF32, 2.5), 2);
  EXPECT_EQ(Run1(Op::kRound, DType::kF64, 3.5), 4);
  EXPECT_EQ(Run1(Op::kRound, DType::kF64, 0.49999999999999994), 0);
  EXPECT_TRUE(std::signbit(Run1(Op::kRound, DType::kF16, -0.3)));
  EXPECT_EQ(Run1(Op::kFloor, DType::kBF16, -0.5), -1);
  EXPECT_TRUE(std::signbit(Run1(Op::kFloor, DType::kF32, -0.0)));
}

TEST(ReferenceElementwiseTest, F64NeverPassesThroughF32) {
  const double x = 1.0000000000000002;
  EXPECT_EQ(Run2(Op::kAdd, DType::kF64, x, 0), x);
  EXPECT_EQ(Run2(Op::kMul, DType::kF64, x, 1), x);
  EXPECT_EQ(Run2(Op::kMax, DType::kF64, x, 1), x);
  EXPECT_EQ(Run2(Op::kDiv, DType::kF64, x, 1), x);
  EXPECT_EQ(Run1(Op::kRelu, DType::kF64, x), x);
  EXPECT_EQ(Run1(Op::kExp, DType::kF64, 1), 2.718281828459045);
}

TEST(ReferenceElementwiseTest, IntegersWrapAndAreExact) {
  EXPECT_EQ(Run2(Op::kAdd, DType::kI8, 127, 1), -128);
  EXPECT_EQ(Run2(Op::kMul, DType::kU8, 16, 17), 16);
  const Tensor big = Tensor::Of<int64_t>(DType::kI64, {}, {(int64_t{1} << 40) + 1});
  EXPECT_EQ(LoadScalar(RunOp(Op::kMul, {big, big}), 0).i,
            (int64_t{1} << 41) + 1);  // 2^80 disappears by wrapping
  EXPECT_EQ(LoadScalar(RunOp(Op::kAdd, {big, big}), 0).i, (int64_t{1} << 41) + 2);
  EXPECT_EQ(LoadScalar(RunOp(Op::kNot, {big}), 0).i, -(int64_t{1} << 40) - 2);
  EXPECT_EQ(Run1(Op::kNot, DType::kBool, 0), 1);
}

// Tests all pairs of i8: quotients and remainders by their defining property.
TEST(ReferenceElementwiseTest, IntegerDivisionOfEveryPair) {
  std::vector<double> a, b;
  for (int i = -128; i < 128; ++i) {
    for (int j = -128; j < 128; ++j) {
      a.push_back(i);
      b.push_back(j);
    }
  }
  const std::vector<Tensor> operands = {Of(DType::kI8, {65536}, a), Of(DType::kI8, {65536}, b)};
  const std::vector<double> mod = ValuesOf(RunOp(Op::kMod, operands));
  const std::vector<double> floor_div = ValuesOf(RunOp(Op::kFloorDiv, operands));
  const std::vector<double> trunc_div = ValuesOf(RunOp(Op::kTruncDiv, operands));
  for (size_t i = 0; i < a.size(); ++i) {
    if (b[i] == 0 || (a[i] == -128 && b[i] == -1)) {
      const double quotient = b[i] == 0 ? 0 : -128;
      EXPECT_EQ(mod[i], 0);
      EXPECT_EQ(floor_div[i], quotient);
      EXPECT_EQ(trunc_div[i], quotient);
      continue;
    }
    EXPECT_EQ(floor_div[i], std::floor(a[i] / b[i])) << a[i] << " " << b[i];
    EXPECT_EQ(trunc_div[i], std::trunc(a[i] / b[i])) << a[i] << " " << b[i];
    EXPECT_EQ(mod[i], a[i] - b[i] * std::floor(a[i] / b[i])) << a[i] << " " << b[i];
  }
}

TEST(ReferenceElementwiseTest, WideIntegerDivisionEdges) {
  for (DType t : {DType::kI32, DType::kI64}) {
    const double minimum = -std::ldexp(1.0, 8 * DTypeBytes(t) - 1);
    EXPECT_EQ(Run2(Op::kTruncDiv, t, minimum, -1), minimum);
    EXPECT_EQ(Run2(Op::kFloorDiv, t, minimum, -1), minimum);
    EXPECT_EQ(Run2(Op::kMod, t, minimum, -1), 0);
    EXPECT_EQ(Run2(Op::kMod, t, -7, 3), 2);
    EXPECT_EQ(Run2(Op::kMod, t, 7, -3), -2);
    EXPECT_EQ(Run2(Op::kTruncDiv, t, 5, 0), 0);
  }
  EXPECT_EQ(Run2(Op::kFloorDiv, DType::kU64, 7, 2), 3);
  EXPECT_EQ(Run2(Op::kMod, DType::kU8, 7, 0), 0);
}

// Expected values are those of Python's `%` if Python has one.
TEST(ReferenceElementwiseTest, FloatModHasTheDivisorsSign) {
  for (DType t : {DType::kF16, DType::kF32, DType::kF64}) {
    EXPECT_EQ(Run2(Op::kMod, t, -7, 3), 2);
    EXPECT_EQ(Run2(Op::kMod, t, 7, -3), -2);
    EXPECT_EQ(Run2(Op::kMod, t, 5.5, 2), 1.5);
    EXPECT_TRUE(std::signbit(Run2(Op::kMod, t, 6, -3)));
    EXPECT_FALSE(std::signbit(Run2(Op::kMod, t, -6, 3)));
    EXPECT_EQ(Run2(Op::kMod, t, -1, kInf), kInf);
    EXPECT_EQ(Run2(Op::kMod, t, 1, kInf), 1);
    EXPECT_TRUE(std::isnan(Run2(Op::kMod, t, 1, 0)));
    EXPECT_TRUE(std::isnan(Run2(Op::kMod, t, kInf, 3)));
  }
}

TEST(ReferenceElementwiseTest, MinAndMaxOrderNanAndZeros) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    for (Op op : {Op::kMin, Op::kMax}) {
      EXPECT_TRUE(std::isnan(Run2(op, t, kNan, 1)));
      EXPECT_TRUE(std::isnan(Run2(op, t, 1, kNan)));
    }
    EXPECT_TRUE(std::signbit(Run2(Op::kMin, t, 0.0, -0.0)));
    EXPECT_FALSE(std::signbit(Run2(Op::kMax, t, -0.0, 0.0)));
    EXPECT_EQ(Run2(Op::kMax, t, -kInf, -2), -2);
  }
  EXPECT_EQ(Run2(Op::kMin, DType::kI16, -5, 3), -5);
  EXPECT_EQ(Run2(Op::kMax, DType::kU8, 255, 3), 255);
  EXPECT_EQ(Run2(Op::kMax, DType::kBool, 0, 1), 1);
}

TEST(ReferenceElementwiseTest, PowEdges) {
  for (DType t : {DType::kF16, DType::kF32, DType::kF64}) {
    EXPECT_EQ(Run2(Op::kPow, t, kNan, 0), 1);
    EXPECT_EQ(Run2(Op::kPow, t, 1, kNan), 1);
    EXPECT_TRUE(std::isnan(Run2(Op::kPow, t, -2, 0.5)));
    EXPECT_EQ(Run2(Op::kPow, t, -0.0, -3), -kInf);
    EXPECT_EQ(Run2(Op::kPow, t, 0, -2), kInf);
  }
}

Tensor Shifted(DType t, double value, double amount, const char* direction) {
  return RunOp(Op::kShift, {Of(t, {}, {value}), Of(t, {}, {amount})},
               {{"direction", std::string(direction)}});
}

TEST(ReferenceElementwiseTest, ShiftEdges) {
  for (DType t : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    const int width = 8 * DTypeBytes(t);
    for (double amount : {-1.0, static_cast<double>(width), 100.0}) {
      EXPECT_EQ(LoadScalar(Shifted(t, -5, amount, "left"), 0).i, 0);
      EXPECT_EQ(LoadScalar(Shifted(t, -5, amount, "right"), 0).i, -1);
      EXPECT_EQ(LoadScalar(Shifted(t, 5, amount, "right"), 0).i, 0);
    }
    EXPECT_EQ(LoadScalar(Shifted(t, -5, 1, "right"), 0).i, -3);
    EXPECT_EQ(LoadScalar(Shifted(t, 1, width - 1, "left"), 0).i, -(int64_t{1} << (width - 2)) * 2);
  }
  EXPECT_EQ(LoadScalar(Shifted(DType::kU8, 0x81, 1, "left"), 0).u, 2u);
  EXPECT_EQ(LoadScalar(Shifted(DType::kU8, 0x81, 7, "right"), 0).u, 1u);
  EXPECT_EQ(LoadScalar(Shifted(DType::kU8, 0x81, 8, "right"), 0).u, 0u);
}

TEST(ReferenceElementwiseTest, BitOpsComparisonAndSelect) {
  EXPECT_EQ(Run2(Op::kAnd, DType::kI32, -2, 7), 6);
  EXPECT_EQ(Run2(Op::kOr, DType::kU8, 0xf0, 0x0f), 255);
  EXPECT_EQ(Run2(Op::kXor, DType::kBool, 1, 1), 0);
  EXPECT_EQ(Run2(Op::kLessThan, DType::kF32, kNan, 1), 0);
  EXPECT_EQ(Run2(Op::kLessThan, DType::kF32, -0.0, 0.0), 0);
  EXPECT_EQ(Run2(Op::kLessThan, DType::kI64, -1, 0), 1);
  EXPECT_EQ(Run2(Op::kLessThan, DType::kU64, 1, std::ldexp(1, 63)), 1);
  const Tensor selected =
      RunOp(Op::kSelect, {Of(DType::kBool, {3}, {1, 0, 1}), Of(DType::kF32, {3}, {kInf, kNan, 1}),
                          Of(DType::kF32, {3}, {kNan, -kInf, kNan})});
  EXPECT_EQ(ValuesOf(selected), (std::vector<double>{kInf, -kInf, 1}));
}

TEST(ReferenceElementwiseTest, EmptyTensors) {
  const Tensor empty = Of(DType::kF32, {0, 3}, {});
  EXPECT_EQ(RunOp(Op::kAdd, {empty, empty}), empty);
  EXPECT_EQ(RunOp(Op::kGelu, {empty}), empty);
}

}  // namespace
}  // namespace athanor
