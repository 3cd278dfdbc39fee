#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"

namespace athanor {
namespace {

using Values = std::vector<double>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Values Order(const Tensor& x, int64_t axis, bool descending) {
  const Tensor order = RunOp(Op::kSort, {x}, {{"axis", axis}, {"descending", descending}});
  EXPECT_EQ(order.dtype, DType::kI64);
  EXPECT_EQ(order.shape, x.shape);
  return ValuesOf(order);
}

// Expected values are those of numpy.argsort with kind="stable".
TEST(ReferenceSortTest, OrdersAlongAnyAxis) {
  const Tensor x = Of(DType::kF32, {2, 3, 2}, {3, 1, 2, 9, 3, 0, 5, 5, 4, 5, 6, 4});
  EXPECT_EQ(Order(x, 0, false), (Values{0, 0, 0, 1, 0, 0, 1, 1, 1, 0, 1, 1}));
  EXPECT_EQ(Order(x, 1, false), (Values{1, 2, 0, 0, 2, 1, 1, 2, 0, 0, 2, 1}));
  EXPECT_EQ(Order(x, 2, false), (Values{1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(Order(x, 1, true), (Values{0, 1, 2, 0, 1, 2, 2, 0, 0, 1, 1, 2}));
}

TEST(ReferenceSortTest, EqualElementsKeepTheirOrder) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8, DType::kU64}) {
    const Tensor x = Of(t, {7}, {2, 1, 2, 0, 1, 2, 0});
    EXPECT_EQ(Order(x, 0, false), (Values{3, 6, 1, 4, 0, 2, 5})) << DTypeName(t);
    EXPECT_EQ(Order(x, 0, true), (Values{0, 2, 5, 1, 4, 3, 6})) << DTypeName(t);
  }
  const Tensor bools = Of(DType::kBool, {4}, {1, 0, 1, 0});
  EXPECT_EQ(Order(bools, 0, false), (Values{1, 3, 0, 2}));
  EXPECT_EQ(Order(bools, 0, true), (Values{0, 2, 1, 3}));
}

TEST(ReferenceSortTest, NanIsAboveAllAndZerosAreEqual) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const Tensor x = Of(t, {8}, {kNan, 0.0, -kInf, -0.0, kInf, -kNan, -1, 0.0});
    EXPECT_EQ(Order(x, 0, false), (Values{2, 6, 1, 3, 7, 4, 0, 5})) << DTypeName(t);
    EXPECT_EQ(Order(x, 0, true), (Values{0, 5, 4, 1, 3, 7, 6, 2})) << DTypeName(t);
  }
}

TEST(ReferenceSortTest, IntegersBeyondDoubles) {
  const int64_t big = int64_t{1} << 60;
  const Tensor x = Tensor::Of<int64_t>(DType::kI64, {4}, {big + 1, big, -big, -big - 1});
  EXPECT_EQ(Order(x, 0, false), (Values{3, 2, 1, 0}));
  const Tensor u = Tensor::Of<uint64_t>(DType::kU64, {3}, {~uint64_t{0}, 0, ~uint64_t{0} - 1});
  EXPECT_EQ(Order(u, 0, false), (Values{1, 2, 0}));
}

TEST(ReferenceSortTest, TopKIsTheBeginningOfTheOrder) {
  const Tensor x = Of(DType::kF32, {2, 4}, {1, 4, 4, 3, kNan, 2, 7, 7});
  const auto top = [&](int64_t axis, int64_t k, bool largest) {
    return RunOp(Op::kTopK, {x}, {{"axis", axis}, {"k", Shape{k}}, {"largest", largest}});
  };
  EXPECT_EQ(top(1, 2, true).shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(ValuesOf(top(1, 2, true)), (Values{1, 2, 0, 2}));
  EXPECT_EQ(ValuesOf(top(1, 3, false)), (Values{0, 3, 1, 1, 2, 3}));
  EXPECT_EQ(ValuesOf(top(0, 1, true)), (Values{1, 0, 1, 1}));
  EXPECT_EQ(top(1, 0, true).shape, (std::vector<int64_t>{2, 0}));
}

TEST(ReferenceSortTest, Empty) {
  EXPECT_EQ(Order(Of(DType::kF32, {0, 3}, {}), 0, false), Values{});
  EXPECT_EQ(Order(Of(DType::kF32, {3, 0}, {}), 0, true), Values{});
  const Tensor sums = RunOp(Op::kCumulate, {Of(DType::kF32, {2, 0}, {})},
                            {{"axis", int64_t{1}}, {"op", std::string("add")}});
  EXPECT_EQ(sums.elements(), 0);
}

Values Running(const Tensor& x, int64_t axis, const char* op, bool exclusive = false,
               bool reverse = false) {
  return ValuesOf(RunOp(
      Op::kCumulate, {x},
      {{"axis", axis}, {"op", std::string(op)}, {"exclusive", exclusive}, {"reverse", reverse}}));
}

TEST(ReferenceSortTest, CumulatesInEveryDirection) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI16, DType::kU8}) {
    const Tensor x = Of(t, {2, 3}, {1, 2, 3, 4, 5, 6});
    EXPECT_EQ(Running(x, 1, "add"), (Values{1, 3, 6, 4, 9, 15}));
    EXPECT_EQ(Running(x, 1, "add", true), (Values{0, 1, 3, 0, 4, 9}));
    EXPECT_EQ(Running(x, 1, "add", false, true), (Values{6, 5, 3, 15, 11, 6}));
    EXPECT_EQ(Running(x, 1, "add", true, true), (Values{5, 3, 0, 11, 6, 0}));
    EXPECT_EQ(Running(x, 0, "add"), (Values{1, 2, 3, 5, 7, 9}));
    EXPECT_EQ(Running(x, 1, "mul"), (Values{1, 2, 6, 4, 20, 120}));
    EXPECT_EQ(Running(x, 1, "mul", true), (Values{1, 1, 2, 1, 4, 20}));
    EXPECT_EQ(Running(x, 0, "mul", true, true), (Values{4, 5, 6, 1, 1, 1}));
  }
}

TEST(ReferenceSortTest, CumulationsWrapRoundOnceAndKeepNanBehind) {
  EXPECT_EQ(Running(Of(DType::kI8, {3}, {100, 100, 1}), 0, "add"), (Values{100, -56, -55}));
  EXPECT_EQ(Running(Of(DType::kU8, {2}, {16, 17}), 0, "mul"), (Values{16, 16}));
  // In f16, 2048 + 1 is a tie, which sums in f16 would drop each time.
  EXPECT_EQ(Running(Of(DType::kF16, {3}, {2048, 1, 1}), 0, "add"), (Values{2048, 2048, 2050}));
  const Values y = Running(Of(DType::kF32, {4}, {1, kNan, 2, 3}), 0, "add");
  EXPECT_EQ(y[0], 1);
  for (int i = 1; i < 4; ++i) EXPECT_TRUE(std::isnan(y[i]));
  // Elements that are not included have no influence.
  const Values other = Running(Of(DType::kF32, {3}, {kInf, 1, 2}), 0, "add", false, true);
  EXPECT_EQ(other, (Values{kInf, 3, 2}));
}

}  // namespace
}  // namespace athanor
