#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"

namespace athanor {
namespace {

using Values = std::vector<double>;

Expr At(int axis) { return Expr::Axis(axis); }

Tensor Counting(DType dtype, std::vector<int64_t> shape) {
  Tensor t = Tensor::Zeros(dtype, shape);
  Values values;
  for (int64_t i = 0; i < t.elements(); ++i) values.push_back(static_cast<double>(i));
  return Of(dtype, shape, values);
}

TEST(ReferenceMovementTest, ConstantKeepsItsBits) {
  const Tensor value = OfCode(DType::kF32, 0x7fa00001);
  EXPECT_EQ(RunOp(Op::kConstant, {}, {{"value", value}}), value);
}

TEST(ReferenceMovementTest, IotaCountsAlongItsAxis) {
  const Shape shape = {2, Expr::Symbol("b")};
  const Tensor t = RunOp(
      Op::kIota, {}, {{"shape", shape}, {"axis", int64_t{1}}, {"dtype", DType::kI32}}, {{"b", 3}});
  EXPECT_EQ(t.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(ValuesOf(t), (Values{0, 1, 2, 0, 1, 2}));
  const Attrs bytes = {{"shape", Shape{300}}, {"axis", int64_t{0}}, {"dtype", DType::kI8}};
  EXPECT_EQ(ValuesOf(RunOp(Op::kIota, {}, bytes))[200], -56);
  const Attrs halves = {{"shape", Shape{2052}}, {"axis", int64_t{0}}, {"dtype", DType::kF16}};
  EXPECT_EQ(ValuesOf(RunOp(Op::kIota, {}, halves))[2051], 2052);  // 2051 rounds to even
}

// Expected values are Philox4x32-10 of an independent implementation, which was checked against the
// published known answers: see testdata/make_tables.py.
TEST(ReferenceMovementTest, RandomBitsArePhilox) {
  std::ifstream table("compiler/ir/testdata/philox.txt");
  std::string seed, word;
  int element, rows = 0;
  for (; table >> seed >> element >> word; ++rows) {
    const Tensor bits =
        RunOp(Op::kRandomBits, {OfCode(DType::kU64, std::stoull(seed, nullptr, 16))},
              {{"shape", Shape{1, 11}}});
    EXPECT_EQ(LoadScalar(bits, element).u, std::stoull(word, nullptr, 16))
        << seed << " " << element;
  }
  EXPECT_EQ(rows, 44);
  const Tensor zero = OfCode(DType::kU64, 0);
  const Tensor bits = RunOp(Op::kRandomBits, {zero}, {{"shape", Shape{2, 2}}});
  EXPECT_EQ(ValuesOf(bits), (Values{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(ReferenceMovementTest, IndexMapPermutesExpandsReshapesAndSlices) {
  const Tensor x = Counting(DType::kF32, {2, 3});
  const auto map = [&](IndexMap m) { return ValuesOf(RunOp(Op::kIndexMap, {x}, {{"map", m}})); };
  EXPECT_EQ(map({{3, 2}, {At(1), At(0)}}), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(map({{2, 2, 3}, {At(0), At(2)}}), (Values{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(map({{6}, {FloorDiv(At(0), 3), Mod(At(0), 3)}}), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(map({{2, 2}, {1 - At(0), At(1) + 1}}), (Values{4, 5, 1, 2}));
  EXPECT_EQ(map({{}, {1, 2}}), (Values{5}));
  EXPECT_EQ(map({{0, 7}, {0, 0}}), Values{});
  const Tensor one = Of(DType::kF32, {}, {3});
  EXPECT_EQ(ValuesOf(RunOp(Op::kIndexMap, {one}, {{"map", IndexMap{{}, {}}}})), (Values{3}));
  EXPECT_EQ(ValuesOf(RunOp(Op::kIndexMap, {one}, {{"map", IndexMap{{2}, {}}}})), (Values{3, 3}));
}

TEST(ReferenceMovementTest, IndexMapFillsOutsideWithTheLiteral) {
  const Tensor x = Counting(DType::kF64, {3});
  const Tensor fill = Of(DType::kF64, {}, {1.0000000000000002});
  const IndexMap pad = {{5}, {At(0) - 1}};
  EXPECT_EQ(ValuesOf(RunOp(Op::kIndexMap, {x}, {{"map", pad}, {"fill", fill}})),
            (Values{1.0000000000000002, 0, 1, 2, 1.0000000000000002}));
  // 1 plus the floors of 0, -0.5, -1, -1.5, -2: 1, 0, 0, and the last two lie outside. A divisor
  // that is a dim keeps the normal form from making the dividend positive.
  const IndexMap halves = {{5}, {FloorDiv(-1 * At(0), Expr::Symbol("two")) + 1}};
  EXPECT_EQ(ValuesOf(RunOp(Op::kIndexMap, {x},
                           {{"map", halves}, {"fill", Of(DType::kF64, {}, {9})}}, {{"two", 2}})),
            (Values{1, 0, 0, 9, 9}));
  const Tensor empty = Of(DType::kF64, {0}, {});
  EXPECT_EQ(
      ValuesOf(RunOp(Op::kIndexMap, {empty}, {{"map", IndexMap{{2}, {At(0)}}}, {"fill", fill}})),
      (Values{1.0000000000000002, 1.0000000000000002}));
}

TEST(ReferenceMovementTest, IndexMapUsesDims) {
  const Expr b = Expr::Symbol("b");
  const Tensor x = Counting(DType::kI64, {5});
  const IndexMap reverse = {{b}, {b - 1 - At(0)}};
  EXPECT_EQ(ValuesOf(RunOp(Op::kIndexMap, {x}, {{"map", reverse}}, {{"b", 5}})),
            (Values{4, 3, 2, 1, 0}));
  const IndexMap clamp = {{b}, {MinOf(MaxOf(At(0), 1), b - 2)}};
  EXPECT_EQ(ValuesOf(RunOp(Op::kIndexMap, {x}, {{"map", clamp}}, {{"b", 5}})),
            (Values{1, 1, 2, 3, 3}));
}

// Rows along which coordinates grow by constants, from far below the operand to far above it.
TEST(ReferenceMovementTest, IndexMapOfEverySlope) {
  const Tensor x = Counting(DType::kF32, {5, 4});
  const Tensor fill = Of(DType::kF32, {}, {-1});
  const int64_t length = 7;
  for (int64_t slope_a = -3; slope_a <= 3; ++slope_a) {
    for (int64_t slope_b = -2; slope_b <= 2; ++slope_b) {
      for (int64_t first = -13; first <= 13; ++first) {
        const IndexMap map = {{2, length}, {first + slope_a * At(1), slope_b * At(1) + At(0) + 1}};
        Values want;
        for (int64_t row = 0; row < 2; ++row) {
          for (int64_t i = 0; i < length; ++i) {
            const int64_t a = first + slope_a * i, b = slope_b * i + row + 1;
            const bool inside = a >= 0 && a < 5 && b >= 0 && b < 4;
            want.push_back(inside ? static_cast<double>(4 * a + b) : -1);
          }
        }
        EXPECT_EQ(ValuesOf(RunOp(Op::kIndexMap, {x}, {{"map", map}, {"fill", fill}})), want)
            << slope_a << " " << slope_b << " " << first;
      }
    }
  }
}

// Coordinates that do not grow by constants, and firsts that no sum holds.
TEST(ReferenceMovementTest, IndexMapOfNoSlope) {
  const Tensor x = Counting(DType::kF32, {6});
  const Tensor fill = Of(DType::kF32, {}, {-1});
  const auto map = [&](Expr at) {
    return ValuesOf(
        RunOp(Op::kIndexMap, {x}, {{"map", IndexMap{{2, 4}, {std::move(at)}}}, {"fill", fill}}));
  };
  EXPECT_EQ(map(At(0) * At(1)), (Values{0, 0, 0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(map(At(0) + FloorDiv(At(1), 2)), (Values{0, 0, 1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(map(MinOf(At(1), 2) + 3 * At(0)), (Values{0, 1, 2, 2, 3, 4, 5, 5}));
  EXPECT_EQ(map(At(1) - std::numeric_limits<int64_t>::max() - 1), (Values(8, -1)));
  EXPECT_EQ(map(At(1) + (int64_t{1} << 40)), (Values(8, -1)));
}

// The reference itself refuses a map that inference would have refused.
TEST(ReferenceMovementTest, IndexMapOutsideWithoutFillIsAnError) {
  const Tensor x = Counting(DType::kF32, {3});
  Tensor result = Tensor::Zeros(DType::kF32, {4});
  const absl::Status status =
      OpInfo(Op::kIndexMap).reference({&x}, {{"map", IndexMap{{4}, {At(0)}}}}, {}, &result);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(std::string(status.message()).find("gives 3 for axis 0"), std::string::npos) << status;
}

TEST(ReferenceMovementTest, GatherTakesAlongTheAxis) {
  const Tensor x = Counting(DType::kBF16, {2, 3, 2});
  const Tensor indices = Of(DType::kI32, {2, 2}, {2, 0, 1, 2});
  const Tensor y = RunOp(Op::kGather, {x, indices}, {{"axis", int64_t{1}}});
  EXPECT_EQ(y.shape, (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(ValuesOf(y), (Values{4, 5, 0, 1, 2, 3, 4, 5, 10, 11, 6, 7, 8, 9, 10, 11}));
  const Tensor scalar = Of(DType::kU8, {}, {1});
  EXPECT_EQ(ValuesOf(RunOp(Op::kGather, {x, scalar}, {{"axis", int64_t{0}}})),
            (Values{6, 7, 8, 9, 10, 11}));
  const Tensor none = Of(DType::kI64, {0}, {});
  EXPECT_EQ(RunOp(Op::kGather, {x, none}, {{"axis", int64_t{2}}}).shape,
            (std::vector<int64_t>{2, 3, 0}));
}

TEST(ReferenceMovementTest, GatherNamesTheIndexOutside) {
  const Tensor x = Counting(DType::kF32, {5});
  for (const auto& [indices, text] : std::vector<std::pair<Tensor, std::string>>{
           {Of(DType::kI64, {2, 2}, {0, 4, 1, 5}), "index 5 at position [1,1]"},
           {Of(DType::kI8, {1}, {-1}), "index -1 at position [0]"},
           {Tensor::Of<uint64_t>(DType::kU64, {}, {~uint64_t{0}}),
            "index 18446744073709551615 at position []"}}) {
    const absl::StatusOr<Tensor> y = TryOp(Op::kGather, {x, indices}, {{"axis", int64_t{0}}});
    EXPECT_EQ(y.status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_NE(std::string(y.status().message()).find(text), std::string::npos) << y.status();
    EXPECT_NE(std::string(y.status().message()).find("5 elements"), std::string::npos);
  }
}

Tensor Scatter(const Tensor& data, const Tensor& indices, const Tensor& updates, int64_t axis,
               const char* mode) {
  return RunOp(Op::kScatter, {data, indices, updates},
               {{"axis", axis}, {"mode", std::string(mode)}});
}

TEST(ReferenceMovementTest, ScatterModes) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI32, DType::kU8}) {
    const Tensor data = Of(t, {4}, {10, 20, 30, 40});
    const Tensor indices = Of(DType::kI64, {3}, {1, 3, 1});
    const Tensor updates = Of(t, {3}, {25, 1, 2});
    EXPECT_EQ(ValuesOf(Scatter(data, indices, updates, 0, "set")), (Values{10, 2, 30, 1}));
    EXPECT_EQ(ValuesOf(Scatter(data, indices, updates, 0, "add")), (Values{10, 47, 30, 41}));
    const double twice = t == DType::kU8 ? 20 * 25 * 2 % 256 : 20 * 25 * 2;
    EXPECT_EQ(ValuesOf(Scatter(data, indices, updates, 0, "mul")), (Values{10, twice, 30, 40}));
    EXPECT_EQ(ValuesOf(Scatter(data, indices, updates, 0, "max")), (Values{10, 25, 30, 40}));
    EXPECT_EQ(ValuesOf(Scatter(data, indices, updates, 0, "min")), (Values{10, 2, 30, 1}));
  }
  const Tensor bools = Of(DType::kBool, {2, 2}, {0, 1, 0, 0});
  EXPECT_EQ(ValuesOf(Scatter(bools, Of(DType::kI32, {1}, {0}), Of(DType::kBool, {2, 1}, {1, 1}), 1,
                             "set")),
            (Values{1, 1, 1, 0}));
  const Tensor negative = Of(DType::kI8, {1}, {-3});
  EXPECT_EQ(
      ValuesOf(Scatter(negative, Of(DType::kI32, {1}, {0}), Of(DType::kI8, {1}, {-5}), 0, "max")),
      (Values{-3}));
  EXPECT_EQ(
      ValuesOf(Scatter(negative, Of(DType::kI32, {1}, {0}), Of(DType::kI8, {1}, {-100}), 0, "mul")),
      (Values{44}));
  // The intermediate value exceeds f16; the result is rounded once.
  EXPECT_EQ(ValuesOf(Scatter(Of(DType::kF16, {1}, {60000}), Of(DType::kI32, {2}, {0, 0}),
                             Of(DType::kF16, {2}, {2, 0.25}), 0, "mul")),
            (Values{30000}));
}

TEST(ReferenceMovementTest, ScatterKeepsNanAndNamesTheIndexOutside) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor data = Of(DType::kF32, {2}, {nan, 1});
  const Tensor indices = Of(DType::kI64, {2}, {0, 1});
  for (const char* mode : {"max", "min"}) {
    const Values y = ValuesOf(Scatter(data, indices, Of(DType::kF32, {2}, {5, nan}), 0, mode));
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << mode;
  }
  const absl::StatusOr<Tensor> outside =
      TryOp(Op::kScatter, {data, Of(DType::kI64, {1}, {2}), Of(DType::kF32, {1}, {0})},
            {{"axis", int64_t{0}}, {"mode", std::string("add")}});
  EXPECT_EQ(outside.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_NE(std::string(outside.status().message()).find("index 2 at position [0]"),
            std::string::npos);
}

}  // namespace
}  // namespace athanor
