#include "compiler/ir/value/tensor.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double DoubleOf(const std::string& bits) {
  const uint64_t value = std::stoull(bits, nullptr, 16);
  return DecodeFloat(DType::kF64, value);
}

// Expected values from numpy, ml_dtypes and exact fractions: see testdata/make_tables.py.
TEST(TensorTest, EncodesAsTheTableSays) {
  std::ifstream table("compiler/ir/testdata/encode.txt");
  std::string dtype, operand, code;
  int rows = 0;
  for (; table >> dtype >> operand >> code; ++rows) {
    const DType t = ParseDType(dtype).value();
    const uint64_t got = EncodeFloat(t, DoubleOf(operand));
    if (code == "nan") {
      EXPECT_TRUE(std::isnan(DecodeFloat(t, got))) << dtype << " " << operand;
    } else {
      EXPECT_EQ(got, std::stoull(code, nullptr, 16)) << dtype << " " << operand;
    }
  }
  EXPECT_GT(rows, 300);
}

TEST(TensorTest, DecodesAsTheTableSays) {
  std::ifstream table("compiler/ir/testdata/decode.txt");
  std::string dtype, code, value;
  int rows = 0;
  for (; table >> dtype >> code >> value; ++rows) {
    const double got = DecodeFloat(ParseDType(dtype).value(), std::stoull(code, nullptr, 16));
    if (value == "nan") {
      EXPECT_TRUE(std::isnan(got)) << dtype << " " << code;
    } else {
      EXPECT_EQ(EncodeFloat(DType::kF64, got), std::stoull(value, nullptr, 16))
          << dtype << " " << code;
    }
  }
  EXPECT_GT(rows, 800);
}

TEST(TensorTest, EveryCodeSurvivesDecodingAndEncoding) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kF8E8M0}) {
    const uint64_t codes = uint64_t{1} << (8 * DTypeBytes(t));
    for (uint64_t code = 0; code < codes; ++code) {
      const double value = DecodeFloat(t, code);
      const uint64_t again = EncodeFloat(t, value);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(DecodeFloat(t, again))) << DTypeName(t) << " " << code;
      } else {
        EXPECT_EQ(again, code) << DTypeName(t);
      }
    }
  }
}

// Between every two neighbours of f16, the midpoint goes to the even code. A value beside it, even
// by the last bit of a double, goes to the nearer one.
TEST(TensorTest, F16RoundsToNearestEvenEverywhere) {
  for (uint64_t code = 0; code < 0x7bff; ++code) {
    const double middle = (DecodeFloat(DType::kF16, code) + DecodeFloat(DType::kF16, code + 1)) / 2;
    EXPECT_EQ(EncodeFloat(DType::kF16, middle), code + (code & 1));
    EXPECT_EQ(EncodeFloat(DType::kF16, std::nextafter(middle, 0.0)), code);
    EXPECT_EQ(EncodeFloat(DType::kF16, -std::nextafter(middle, kInfinity)), 0x8000 | (code + 1));
  }
}

// 1 + 2^-8 + 2^-40 is above halfway between two bf16 values. Rounded to f32 first, it would be
// halfway and then go to the even value below.
TEST(TensorTest, NoDoubleRounding) {
  const double above_half = 1 + std::ldexp(1, -8) + std::ldexp(1, -40);
  EXPECT_EQ(EncodeFloat(DType::kBF16, above_half), 0x3f81u);
  EXPECT_EQ(EncodeFloat(DType::kBF16, static_cast<float>(above_half)), 0x3f80u);
}

TEST(TensorTest, F8E8M0HoldsPowersOfTwoOnly) {
  const auto encode = [](double v) { return EncodeFloat(DType::kF8E8M0, v); };
  EXPECT_EQ(encode(1), 127u);
  EXPECT_EQ(encode(1.4999), 127u);
  EXPECT_EQ(encode(1.5), 128u);  // ties to the larger
  EXPECT_EQ(encode(3), 129u);
  EXPECT_EQ(encode(0), 0u);
  EXPECT_EQ(encode(1e-300), 0u);
  EXPECT_EQ(encode(std::ldexp(1, 127)), 254u);
  EXPECT_EQ(encode(std::ldexp(1, 128)), 255u);
  EXPECT_EQ(encode(-1), 255u);
  EXPECT_EQ(encode(kInfinity), 255u);
}

TEST(TensorTest, ScalarsKeepTheExtremesOfEveryDType) {
  for (const DTypeRow& row : kDTypes) {
    if (row.kind != DTypeKind::kSigned && row.kind != DTypeKind::kUnsigned) continue;
    Tensor t = Tensor::Zeros(row.dtype, {3});
    for (size_t i = 0; i < t.bytes.size(); ++i) t.bytes[i] = static_cast<char>(0x7f + i * 37);
    Tensor copy = Tensor::Zeros(row.dtype, {3});
    for (int i = 0; i < 3; ++i) StoreScalar(copy, i, LoadScalar(t, i));
    EXPECT_EQ(copy, t) << row.name;
  }
  Tensor t = Tensor::Zeros(DType::kI64, {2});
  StoreScalar(t, 0, Scalar::Signed(DType::kI64, std::numeric_limits<int64_t>::min()));
  StoreScalar(t, 1, Scalar::Signed(DType::kI64, int64_t{1} << 40));
  EXPECT_EQ(LoadScalar(t, 0).i, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(t.data<int64_t>()[1], int64_t{1} << 40);
}

TEST(TensorTest, StoringIntegersWraps) {
  Tensor t = Tensor::Zeros(DType::kI8, {1});
  StoreScalar(t, 0, Scalar::Signed(DType::kI8, 200));
  EXPECT_EQ(LoadScalar(t, 0).i, -56);
  Tensor u = Tensor::Zeros(DType::kU16, {1});
  StoreScalar(u, 0, Scalar::Unsigned(DType::kU16, 65537));
  EXPECT_EQ(LoadScalar(u, 0).u, 1u);
}

TEST(TensorTest, BoolIsZeroOrOne) {
  Tensor t = Tensor::Zeros(DType::kBool, {2});
  StoreScalar(t, 0, Scalar::Unsigned(DType::kBool, 256));
  EXPECT_EQ(t.bytes, std::string("\1\0", 2));
  EXPECT_EQ(LoadScalar(t, 0).u, 1u);
}

}  // namespace
}  // namespace athanor
