#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"

namespace athanor {
namespace {

using Values = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Values Rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  return ValuesOf(RunOp(Op::kRotary, {x, cos, sin}, {{"interleaved", interleaved}}));
}

TEST(ReferenceModelsTest, RotatesPairs) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const Tensor x = Of(t, {1, 6}, {1, 2, 3, 4, 5, 6});
    const Tensor cos = Of(t, {1, 2}, {0, 2}), sin = Of(t, {1, 2}, {1, 10});
    // Rotates (1, 3) by (0, 1) and (2, 4) by (2, 10); 5 and 6 stay.
    EXPECT_EQ(Rotated(x, cos, sin, false), (Values{-3, -36, 1, 28, 5, 6})) << DTypeName(t);
    // Rotates (1, 2) and (3, 4).
    EXPECT_EQ(Rotated(x, cos, sin, true), (Values{-2, 1, -34, 38, 5, 6})) << DTypeName(t);
  }
}

TEST(ReferenceModelsTest, AnglesAreOfRowsAndRepeatAlongLeadingAxes) {
  const Tensor x = Of(DType::kF32, {2, 2, 2}, {1, 0, 1, 0, 1, 0, 1, 0});
  const Tensor sin = Of(DType::kF32, {2, 1}, {5, 6});
  EXPECT_EQ(Rotated(x, Of(DType::kF32, {2, 1}, {1, 2}), sin, false),
            (Values{1, 5, 2, 6, 1, 5, 2, 6}));
  const Tensor four = Of(DType::kF32, {2, 2, 1}, {1, 2, 3, 4});
  EXPECT_EQ(Rotated(x, four, four, false), (Values{1, 1, 2, 2, 3, 3, 4, 4}));
  const Tensor one = Of(DType::kF32, {1, 2, 1}, {1, 2});
  EXPECT_EQ(Rotated(x, one, one, true), (Values{1, 1, 2, 2, 1, 1, 2, 2}));
}

TEST(ReferenceModelsTest, WhatIsNotRotatedStaysBitForBit) {
  const Tensor x = Tensor::Of<uint32_t>(DType::kF32, {1, 3}, {0x3f800000, 0, 0x7fa00001});
  const Tensor zero = Of(DType::kF32, {1, 1}, {0});
  EXPECT_EQ(RunOp(Op::kRotary, {x, zero, zero}).data<uint32_t>()[2], 0x7fa00001u);
  const Tensor none = Of(DType::kF32, {1, 0}, {});
  EXPECT_EQ(RunOp(Op::kRotary, {x, none, none}), x);
}

TEST(ReferenceModelsTest, RotaryRoundsOnce) {
  // 2049 * 1 - 1 * 1 in f16, which has no 2049: the operands reach it as products of exact values.
  const Tensor x = Of(DType::kF16, {1, 2}, {683, 1}), cos = Of(DType::kF16, {1, 1}, {3}),
               sin = Of(DType::kF16, {1, 1}, {1});
  EXPECT_EQ(Rotated(x, cos, sin, false)[0], 2048);
  const Tensor nan = Of(DType::kF32, {1, 2}, {kNan, 1}), ones = Of(DType::kF32, {1, 1}, {1});
  for (double v : Rotated(nan, ones, ones, false)) EXPECT_TRUE(std::isnan(v));
}

Values Unpacked(const std::vector<Tensor>& operands, Attrs attrs) {
  attrs.try_emplace("dtype", DType::kF32);
  return ValuesOf(RunOp(Op::kDequantize, operands, attrs));
}

TEST(ReferenceModelsTest, UnpacksLowestBitsFirst) {
  const Tensor bytes = Of(DType::kU8, {1, 2}, {0xe4, 0x81}), one = Of(DType::kF32, {}, {1});
  EXPECT_EQ(Unpacked({bytes, one}, {{"bits", int64_t{2}}}), (Values{0, 1, 2, 3, 1, 0, 0, 2}));
  EXPECT_EQ(Unpacked({bytes, one}, {{"bits", int64_t{4}}}), (Values{4, 14, 1, 8}));
  EXPECT_EQ(Unpacked({bytes, one}, {}), (Values{228, 129}));
  const Tensor sign = Of(DType::kI8, {1, 2}, {-28, -127});  // the same bytes
  EXPECT_EQ(Unpacked({sign, one}, {{"bits", int64_t{2}}}), (Values{0, 1, -2, -1, 1, 0, 0, -2}));
  EXPECT_EQ(Unpacked({sign, one}, {{"bits", int64_t{4}}}), (Values{4, -2, 1, -8}));
  EXPECT_EQ(Unpacked({sign, one}, {{"bits", int64_t{4}}, {"size", Shape{3}}}), (Values{4, -2, 1}));
  // Each row starts in a new packed element.
  const Tensor rows = Of(DType::kU8, {2, 1}, {0x21, 0x43});
  EXPECT_EQ(Unpacked({rows, one}, {{"bits", int64_t{4}}, {"size", Shape{1}}}), (Values{1, 3}));
}

TEST(ReferenceModelsTest, ScalesAndZeros) {
  const Tensor q = Of(DType::kU8, {2, 3}, {1, 2, 3, 4, 5, 255});
  EXPECT_EQ(Unpacked({q, Of(DType::kF32, {}, {0.5}), Of(DType::kU8, {}, {2})}, {}),
            (Values{-0.5, 0, 0.5, 1, 1.5, 126.5}));
  EXPECT_EQ(Unpacked({q, Of(DType::kF32, {2}, {1, 10}), Of(DType::kU8, {2}, {0, 200})}, {}),
            (Values{1, 2, 3, -1960, -1950, 550}));
  EXPECT_EQ(Unpacked({q, Of(DType::kF32, {3}, {1, 10, 100})}, {{"axis", int64_t{1}}}),
            (Values{1, 20, 300, 4, 50, 25500}));
  // Blocks of two elements; the last block has one.
  EXPECT_EQ(Unpacked({q, Of(DType::kF32, {2, 2}, {1, 10, 100, 1000})},
                     {{"axis", int64_t{1}}, {"block", int64_t{2}}}),
            (Values{1, 2, 30, 400, 500, 255000}));
  EXPECT_EQ(Unpacked({q, Of(DType::kF32, {1, 3}, {1, 10, 100})}, {{"block", int64_t{2}}}),
            (Values{1, 20, 300, 4, 50, 25500}));
}

TEST(ReferenceModelsTest, DifferencesAreExactAndTheResultRoundsOnce) {
  const Tensor most = Of(DType::kU32, {}, {4294967295}), one = Of(DType::kF64, {}, {1});
  const Tensor least = Of(DType::kI32, {}, {-2147483648}), top = Of(DType::kI32, {}, {2147483647});
  const Attrs wide = {{"dtype", DType::kF64}};
  EXPECT_EQ(Unpacked({most, one}, wide), (Values{4294967295}));
  EXPECT_EQ(Unpacked({least, one, top}, wide), (Values{-4294967295}));
  EXPECT_EQ(Unpacked({Of(DType::kU16, {}, {0}), one, Of(DType::kU16, {}, {65535})}, wide),
            (Values{-65535}));
  EXPECT_EQ(
      Unpacked({Of(DType::kI8, {}, {100}), Of(DType::kF32, {}, {1000})}, {{"dtype", DType::kF16}}),
      (Values{std::numeric_limits<double>::infinity()}));
  EXPECT_TRUE(std::isnan(Unpacked({Of(DType::kI8, {}, {0}), Of(DType::kF32, {}, {kNan})}, {})[0]));
  EXPECT_EQ(Unpacked({Of(DType::kU8, {2, 0}, {}), Of(DType::kF32, {}, {1})}, {}), Values{});
}

}  // namespace
}  // namespace athanor
