#include <cmath>
#include <limits>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"

namespace athanor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor Cast(const Tensor& x, DType to) { return RunOp(Op::kCast, {x}, {{"dtype", to}}); }
double CastValue(DType from, double value, DType to) {
  return ValuesOf(Cast(Of(from, {}, {value}), to))[0];
}
Tensor I64(int64_t value) { return Tensor::Of<int64_t>(DType::kI64, {}, {value}); }
Tensor U64(uint64_t value) { return Tensor::Of<uint64_t>(DType::kU64, {}, {value}); }

TEST(ReferenceCastTest, IdentityIsBitForBitInEveryDType) {
  for (const DTypeRow& row : kDTypes) {
    Tensor x = Tensor::Zeros(row.dtype, {16});
    for (size_t i = 0; i < x.bytes.size(); ++i) {
      x.bytes[i] = static_cast<char>(row.kind == DTypeKind::kBool ? i % 2 : i * 151 + 0x7f);
    }
    EXPECT_EQ(Cast(x, row.dtype), x) << row.name;
  }
}

TEST(ReferenceCastTest, FloatToIntegerTruncatesAndSaturates) {
  EXPECT_EQ(CastValue(DType::kF32, -1.9, DType::kI8), -1);
  EXPECT_EQ(CastValue(DType::kF32, 300, DType::kI8), 127);
  EXPECT_EQ(CastValue(DType::kF32, -300, DType::kI8), -128);
  EXPECT_EQ(CastValue(DType::kF32, -128.5, DType::kI8), -128);
  EXPECT_EQ(CastValue(DType::kF32, -1, DType::kU8), 0);
  EXPECT_EQ(CastValue(DType::kF32, -0.5, DType::kU64), 0);
  EXPECT_EQ(CastValue(DType::kF32, 255.5, DType::kU8), 255);
  EXPECT_EQ(CastValue(DType::kF32, kNan, DType::kI32), 0);
  EXPECT_EQ(LoadScalar(Cast(Of(DType::kF64, {}, {kInf}), DType::kI64), 0).i,
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(LoadScalar(Cast(Of(DType::kF64, {}, {-kInf}), DType::kI64), 0).i,
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(LoadScalar(Cast(Of(DType::kF64, {}, {1e30}), DType::kU64), 0).u,
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(LoadScalar(Cast(Of(DType::kF64, {}, {std::ldexp(1, 63)}), DType::kU64), 0).u,
            uint64_t{1} << 63);
  EXPECT_EQ(CastValue(DType::kF64, 2147483647.9, DType::kI32), 2147483647);
  EXPECT_EQ(CastValue(DType::kF64, 2147483648.0, DType::kI32), 2147483647);
  EXPECT_EQ(LoadScalar(Cast(Of(DType::kF32, {}, {std::ldexp(1, 63)}), DType::kI64), 0).i,
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(LoadScalar(Cast(Of(DType::kF32, {}, {std::ldexp(1, 64)}), DType::kU64), 0).u,
            std::numeric_limits<uint64_t>::max());
}

TEST(ReferenceCastTest, IntegersWrap) {
  EXPECT_EQ(LoadScalar(Cast(I64((int64_t{1} << 40) + 5), DType::kI32), 0).i, 5);
  EXPECT_EQ(LoadScalar(Cast(I64(int64_t{1} << 31), DType::kI32), 0).i, -(int64_t{1} << 31));
  EXPECT_EQ(LoadScalar(Cast(I64(-1), DType::kU64), 0).u, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(CastValue(DType::kI8, -1, DType::kU16), 65535);
  EXPECT_EQ(CastValue(DType::kU8, 200, DType::kI8), -56);
}

// 2^24 + 1 is halfway between two f32 values. The others are off a halfway point by one in the last
// of 64 bits, which an intermediate double would lose.
TEST(ReferenceCastTest, IntegerToFloatRoundsOnceToNearestEven) {
  EXPECT_EQ(CastValue(DType::kI32, 16777217, DType::kF32), 16777216);
  EXPECT_EQ(CastValue(DType::kI32, 16777219, DType::kF32), 16777220);
  const int64_t beside_f32 = (int64_t{1} << 62) + (int64_t{1} << 38) + 1;
  EXPECT_EQ(LoadScalar(Cast(I64(beside_f32), DType::kF32), 0).f,
            static_cast<double>(static_cast<float>(beside_f32)));
  EXPECT_GT(LoadScalar(Cast(I64(beside_f32), DType::kF32), 0).f, std::ldexp(1, 62));
  EXPECT_LT(LoadScalar(Cast(I64(-beside_f32), DType::kF32), 0).f, -std::ldexp(1, 62));
  const uint64_t beside_bf16 = (uint64_t{1} << 63) + (uint64_t{1} << 55) + 1;
  EXPECT_EQ(LoadScalar(Cast(U64(beside_bf16), DType::kBF16), 0).f,
            std::ldexp(1, 63) + std::ldexp(1, 56));
  EXPECT_EQ(LoadScalar(Cast(U64(beside_bf16 - 1), DType::kBF16), 0).f, std::ldexp(1, 63));
  EXPECT_EQ(LoadScalar(Cast(I64(std::numeric_limits<int64_t>::min()), DType::kF64), 0).f,
            -std::ldexp(1, 63));
  EXPECT_EQ(CastValue(DType::kI32, 65519, DType::kF16), 65504);
  EXPECT_EQ(CastValue(DType::kI32, 65520, DType::kF16), kInf);
  EXPECT_EQ(LoadScalar(Cast(U64(~uint64_t{0}), DType::kF16), 0).f, kInf);
}

TEST(ReferenceCastTest, FloatToFloatRoundsOnce) {
  const double above_half = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);
  EXPECT_EQ(CastValue(DType::kF64, above_half, DType::kF16), 1 + std::ldexp(1, -10));
  EXPECT_EQ(CastValue(DType::kF32, 1e6, DType::kF16), kInf);
  EXPECT_TRUE(std::isnan(CastValue(DType::kF32, 1e6, DType::kF8E4M3)));
  EXPECT_TRUE(std::isnan(CastValue(DType::kF16, kNan, DType::kBF16)));
  EXPECT_EQ(CastValue(DType::kF32, 0.3, DType::kF8E8M0), 0.25);
  EXPECT_EQ(CastValue(DType::kF8E8M0, 0.25, DType::kF32), 0.25);
}

TEST(ReferenceCastTest, BoolIsNotEqualZero) {
  EXPECT_EQ(CastValue(DType::kF32, 0.25, DType::kBool), 1);
  EXPECT_EQ(CastValue(DType::kF64, kNan, DType::kBool), 1);
  EXPECT_EQ(CastValue(DType::kF64, -0.0, DType::kBool), 0);
  EXPECT_EQ(CastValue(DType::kI16, 256, DType::kBool), 1);
  EXPECT_EQ(CastValue(DType::kBool, 1, DType::kF16), 1);
  EXPECT_EQ(CastValue(DType::kBool, 1, DType::kI64), 1);
}

TEST(ReferenceCastTest, BitcastKeepsBits) {
  const Tensor nan = OfCode(DType::kU32, 0x7fa00001);  // a signalling NaN with a payload
  const Tensor f = RunOp(Op::kBitcast, {nan}, {{"dtype", DType::kF32}});
  EXPECT_TRUE(std::isnan(LoadScalar(f, 0).f));
  EXPECT_EQ(RunOp(Op::kBitcast, {f}, {{"dtype", DType::kU32}}), nan);
  EXPECT_EQ(
      LoadScalar(RunOp(Op::kBitcast, {Of(DType::kF16, {}, {1})}, {{"dtype", DType::kI16}}), 0).i,
      0x3c00);
}

}  // namespace
}  // namespace athanor
