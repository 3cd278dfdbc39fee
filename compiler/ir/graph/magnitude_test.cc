#include "compiler/ir/graph/magnitude.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// `count` elements, with `value` at index `at`; the bytes begin at an odd address.
std::optional<int> WithOne(DType dtype, double value, int64_t count = 1, int64_t at = 0) {
  Tensor t = Tensor::Zeros(dtype, {count});
  StoreScalar(t, at, Scalar::Float(dtype, value));
  const std::string shifted = "?" + t.bytes;
  return MagnitudeOf(dtype, std::string_view(shifted).substr(1));
}

TEST(MagnitudeTest, IsTheLeastOfFewBounds) {
  EXPECT_EQ(WithOne(DType::kF32, 1), 20);
  EXPECT_EQ(WithOne(DType::kF32, -0x1p20), 20);
  EXPECT_EQ(WithOne(DType::kF32, std::nextafterf(0x1p20f, kInf)), 60);
  EXPECT_EQ(WithOne(DType::kF32, -0x1p60), 60);
  EXPECT_EQ(WithOne(DType::kF32, 0x1p61), 128);
  EXPECT_EQ(WithOne(DType::kF32, -std::numeric_limits<float>::max()), 128);
  EXPECT_EQ(WithOne(DType::kBF16, 0x1p20), 20);
  EXPECT_EQ(WithOne(DType::kBF16, 0x1p127), 128);
  EXPECT_EQ(WithOne(DType::kF16, 65504), 20);
  EXPECT_EQ(WithOne(DType::kF64, 0x1p60), 60);
  EXPECT_EQ(WithOne(DType::kF64, std::numeric_limits<double>::max()), 1024);
}

TEST(MagnitudeTest, ZerosSubnormalsAndNothingAreSmall) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    EXPECT_EQ(MagnitudeOf(dtype, ""), 20);
    EXPECT_EQ(WithOne(dtype, -0.0), 20);
    EXPECT_EQ(WithOne(dtype, std::ldexp(-1, dtype == DType::kF16 ? -24 : -133)), 20);
  }
}

TEST(MagnitudeTest, ComesPieceByPieceCutAnywhere) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    Tensor t = Tensor::Zeros(dtype, {40});
    for (const int64_t at : {0, 17, 39}) {
      const double value = dtype == DType::kF16 ? kInf : 0x1p50;
      StoreScalar(t, at, Scalar::Float(dtype, value));
      const std::optional<int> whole = MagnitudeOf(dtype, t.bytes);
      EXPECT_EQ(whole, dtype == DType::kF16 ? std::nullopt : std::optional(60));
      for (size_t piece = 1; piece <= 19; ++piece) {
        MagnitudeFinder finder(dtype);
        for (size_t from = 0; from < t.bytes.size(); from += piece) {
          finder.Update(std::string_view(t.bytes).substr(from, piece));
          finder.Update("");
        }
        EXPECT_EQ(finder.Found(), whole) << DTypeName(dtype) << " " << at << " by " << piece;
      }
      StoreScalar(t, at, Scalar::Float(dtype, 0));
    }
  }
  MagnitudeFinder integers(DType::kI32);
  integers.Update("1234");
  EXPECT_EQ(integers.Found(), std::nullopt);
  EXPECT_EQ(MagnitudeFinder(DType::kF32).Found(), 20);
}

// Tries every position, in whole vectors and in the remainder.
TEST(MagnitudeTest, OneInfinityOrNaNLeavesNone) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    for (const int64_t count : {1, 15, 64, 67, 333}) {
      for (int64_t at = 0; at < count; ++at) {
        for (const double value : {kInf, -kInf, kNaN, -kNaN}) {
          ASSERT_EQ(WithOne(dtype, value, count, at), std::nullopt) << DTypeName(dtype) << at;
        }
        ASSERT_EQ(WithOne(dtype, -3, count, at), 20) << DTypeName(dtype) << at;
      }
    }
  }
}

// Tries every bit pattern of the narrow dtypes.
TEST(MagnitudeTest, HoldsOfEveryElement) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const std::string bytes = {static_cast<char>(bits), static_cast<char>(bits >> 8)};
      const double size = std::fabs(DecodeFloat(dtype, bits));
      const std::optional<int> magnitude = MagnitudeOf(dtype, bytes);
      ASSERT_EQ(magnitude.has_value(), std::isfinite(size)) << bits;
      if (magnitude) ASSERT_LE(size, std::ldexp(1.0, *magnitude)) << bits;
    }
  }
}

TEST(MagnitudeTest, OtherDTypesHaveNone) {
  for (const DType dtype : {DType::kI8, DType::kBool, DType::kU64, DType::kF8E4M3}) {
    EXPECT_EQ(MagnitudeOf(dtype, std::string(8, '\0')), std::nullopt) << DTypeName(dtype);
    EXPECT_FALSE(HasMagnitude(dtype));
  }
  EXPECT_EQ(LargestExponent(DType::kI8), 7);
  EXPECT_EQ(LargestExponent(DType::kU32), 32);
  EXPECT_EQ(LargestExponent(DType::kBool), 0);
  EXPECT_EQ(LargestExponent(DType::kF16), 15);
}

constexpr char kText[] = R"(graph "g" {
  %0 = Parameter "w" : f32[4]
  output "y" = %0
}
)";

TEST(MagnitudeTest, IsPartOfTheGraph) {
  const Graph unknown = ParseGraph(kText).value();
  Graph known = unknown;
  EXPECT_EQ(MagnitudeOf(known.nodes[0]), std::nullopt);
  SetMagnitude(20, &known.nodes[0]);
  EXPECT_EQ(MagnitudeOf(known.nodes[0]), 20);
  EXPECT_TRUE(Verify(known).ok());
  EXPECT_NE(ToText(known).find("Parameter \"w\" {magnitude=20} : f32[4]"), std::string::npos);
  EXPECT_EQ(ToText(ParseGraph(ToText(known)).value()), ToText(known));
  EXPECT_EQ(MagnitudeOf(Canonicalize(known).nodes[0]), 20);
  EXPECT_NE(CanonicalHash(known), CanonicalHash(unknown));
  Graph larger = known;
  SetMagnitude(60, &larger.nodes[0]);
  EXPECT_NE(CanonicalHash(known), CanonicalHash(larger));
  SetMagnitude(std::nullopt, &known.nodes[0]);
  EXPECT_EQ(CanonicalHash(known), CanonicalHash(unknown));
}

TEST(MagnitudeTest, IsChecked) {
  Graph graph = ParseGraph(kText).value();
  SetMagnitude(5000, &graph.nodes[0]);
  EXPECT_NE(Verify(graph).message().find("magnitude: is 5000; it must be in [-1100, 1100]"),
            std::string::npos)
      << Verify(graph);
  SetMagnitude(20, &graph.nodes[0]);
  graph.nodes[0].type.dtype = DType::kI8;
  EXPECT_NE(Verify(graph).message().find("elements of dtype i8 have none"), std::string::npos)
      << Verify(graph);
  for (const char* op : {"Input", "Constant"}) {
    std::string text = kText;
    text.replace(text.find("Parameter \"w\""), 13, std::string(op) + " \"w\" {magnitude=20}");
    EXPECT_FALSE(ParseGraph(text).ok()) << text;
  }
}

}  // namespace
}  // namespace athanor
