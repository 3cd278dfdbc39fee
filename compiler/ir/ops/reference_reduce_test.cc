#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"

namespace athanor {
namespace {

using Values = std::vector<double>;
using Axes = std::vector<int64_t>;
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor Sum(const Tensor& x, Axes axes) { return RunOp(Op::kSumReduce, {x}, {{"axes", axes}}); }
Tensor MaxOver(const Tensor& x, Axes axes) { return RunOp(Op::kMaxReduce, {x}, {{"axes", axes}}); }

TEST(ReferenceReduceTest, SumsOverAnyAxes) {
  const Tensor x = Of(DType::kF32, {2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(ValuesOf(Sum(x, {0})), (Values{8, 10, 12, 14, 16, 18}));
  EXPECT_EQ(ValuesOf(Sum(x, {1})), (Values{9, 12, 27, 30}));
  EXPECT_EQ(ValuesOf(Sum(x, {0, 2})), (Values{18, 26, 34}));
  EXPECT_EQ(ValuesOf(Sum(x, {0, 1, 2})), (Values{78}));
  EXPECT_EQ(Sum(x, {}), x);
}

TEST(ReferenceReduceTest, EmptyAndRankZero) {
  EXPECT_EQ(ValuesOf(Sum(Of(DType::kF32, {0, 2}, {}), {0})), (Values{0, 0}));
  EXPECT_EQ(ValuesOf(MaxOver(Of(DType::kF16, {2, 0}, {}), {1})), (Values{-kInf, -kInf}));
  EXPECT_EQ(ValuesOf(MaxOver(Of(DType::kI8, {0}, {}), {0})), (Values{-128}));
  EXPECT_EQ(LoadScalar(MaxOver(Of(DType::kI64, {0}, {}), {0}), 0).i,
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ValuesOf(MaxOver(Of(DType::kU32, {0}, {}), {0})), (Values{0}));
  EXPECT_EQ(ValuesOf(MaxOver(Of(DType::kBool, {0}, {}), {0})), (Values{0}));
  EXPECT_EQ(Sum(Of(DType::kF32, {0, 2}, {}), {1}).elements(), 0);
  EXPECT_EQ(ValuesOf(Sum(Of(DType::kF64, {}, {3}), {})), (Values{3}));
}

TEST(ReferenceReduceTest, SumsRoundOnceAndIntegersWrap) {
  const Tensor tenths = Of(DType::kF16, {4099}, Values(4099, 0.1));
  // 4099 times the f16 nearest 0.1, in exact arithmetic 409.79980...; f16 steps by 0.25 there.
  EXPECT_EQ(ValuesOf(Sum(tenths, {0})), (Values{409.75}));
  // In f64, 1 + 2^-53 is a tie that a plain sum drops; four of them are two units.
  const double tiny = std::ldexp(1, -53);
  EXPECT_EQ(ValuesOf(Sum(Of(DType::kF64, {5}, {1, tiny, tiny, tiny, tiny}), {0})),
            (Values{1 + 4 * tiny}));
  EXPECT_EQ(ValuesOf(Sum(Of(DType::kI8, {2}, {100, 100}), {0})), (Values{-56}));
  EXPECT_EQ(ValuesOf(Sum(Of(DType::kU8, {3}, {100, 100, 100}), {0})), (Values{44}));
  const int64_t big = (int64_t{1} << 40) + 1;
  EXPECT_EQ(LoadScalar(Sum(Tensor::Of<int64_t>(DType::kI64, {2}, {big, big}), {0}), 0).i, 2 * big);
}

TEST(ReferenceReduceTest, MaxPropagatesNanAndOrdersZeros) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = Of(DType::kF32, {3, 2}, {1, -2, nan, -0.0, 5, -1});
  const Values y = ValuesOf(MaxOver(x, {1}));
  EXPECT_EQ(y[0], 1);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], 5);
  EXPECT_FALSE(std::signbit(ValuesOf(MaxOver(Of(DType::kF64, {2}, {-0.0, 0.0}), {0}))[0]));
  EXPECT_EQ(ValuesOf(MaxOver(Of(DType::kI16, {2}, {-7, -3}), {0})), (Values{-3}));
  EXPECT_EQ(ValuesOf(MaxOver(Of(DType::kU8, {2}, {200, 3}), {0})), (Values{200}));
  EXPECT_EQ(ValuesOf(MaxOver(Of(DType::kBool, {2}, {0, 1}), {0})), (Values{1}));
}

TEST(ReferenceReduceTest, ProductsOverAnyAxes) {
  const auto product = [](const Tensor& x, Axes axes) {
    return RunOp(Op::kMulReduce, {x}, {{"axes", axes}});
  };
  const Tensor x = Of(DType::kF32, {2, 3, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(ValuesOf(product(x, {0})), (Values{7, 16, 27, 40, 55, 72}));
  EXPECT_EQ(ValuesOf(product(x, {1, 2})), (Values{720, 665280}));
  EXPECT_EQ(product(x, {}), x);
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8, DType::kU64}) {
    EXPECT_EQ(ValuesOf(product(Of(t, {2, 0}, {}), {1})), (Values{1, 1})) << DTypeName(t);
    EXPECT_EQ(product(Of(t, {0, 2}, {}), {1}).elements(), 0);
  }
  EXPECT_EQ(ValuesOf(product(Of(DType::kF64, {}, {3}), {})), (Values{3}));
  EXPECT_EQ(ValuesOf(product(Of(DType::kI8, {2}, {-128, -1}), {0})), (Values{-128}));
  EXPECT_EQ(ValuesOf(product(Of(DType::kU8, {3}, {100, 100, 3}), {0})), (Values{48}));
  const int64_t big = (int64_t{1} << 40) + 1;
  EXPECT_EQ(LoadScalar(product(Tensor::Of<int64_t>(DType::kI64, {2}, {big, big}), {0}), 0).i,
            (int64_t{1} << 41) + 1);
  // The intermediate product exceeds f16; the result is rounded once. 1.0009765625^3 is
  // 1.00293254...
  EXPECT_EQ(ValuesOf(product(Of(DType::kF16, {3}, {60000, 2, 0.25}), {0})), (Values{30000}));
  const double next = 1 + std::ldexp(1, -10);
  EXPECT_EQ(ValuesOf(product(Of(DType::kF16, {3}, {next, next, next}), {0})),
            (Values{1 + 3 * std::ldexp(1, -10)}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(ValuesOf(product(Of(DType::kF32, {2}, {0, kInf}), {0}))[0]));
  EXPECT_TRUE(std::isnan(ValuesOf(product(Of(DType::kF32, {2}, {nan, 0}), {0}))[0]));
  EXPECT_TRUE(std::signbit(ValuesOf(product(Of(DType::kF32, {2}, {-0.0, 3}), {0}))[0]));
}

Tensor Contract(const Tensor& a, const Tensor& b, const char* spec) {
  return RunOp(Op::kContract, {a, b}, {{"spec", std::string(spec)}});
}

// Element i is ((i * step) mod modulus) - shift.
Tensor Pattern(DType dtype, std::vector<int64_t> shape, int step, int modulus, int shift) {
  Tensor t = Tensor::Zeros(dtype, shape);
  Values values;
  for (int64_t i = 0; i < t.elements(); ++i) {
    values.push_back(static_cast<double>(i * step % modulus - shift));
  }
  return Of(dtype, shape, values);
}

double Weighted(const Tensor& t) {
  double sum = 0;
  const Values values = ValuesOf(t);
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * static_cast<double>(i);
  return sum;
}

// Expected values are those of numpy.einsum.
TEST(ReferenceReduceTest, ContractsPrimeSizesInEveryDType) {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI16, DType::kI64}) {
    const Tensor a = Pattern(t, {2, 7, 13}, 37, 11, 5);
    const Tensor b = Pattern(t, {2, 13, 5}, 29, 7, 3);
    const Tensor c = Contract(a, b, "bmk,bkn->bmn");
    EXPECT_EQ(c.shape, (std::vector<int64_t>{2, 7, 5}));
    EXPECT_EQ(Weighted(c), -4520) << DTypeName(t);
    const Values values = ValuesOf(c);
    EXPECT_EQ(Values(values.begin(), values.begin() + 5), (Values{15, 44, 10, -17, -30}));
    EXPECT_EQ(Weighted(Contract(a, b, "bmk,bkn->nm")), -1742) << DTypeName(t);
  }
}

TEST(ReferenceReduceTest, ContractSumsLettersOfOneOperand) {
  const Tensor a = Pattern(DType::kF32, {2, 7, 13}, 37, 11, 5);
  const Tensor whole = Pattern(DType::kF32, {2, 13, 5}, 29, 7, 3);
  const Tensor b = RunOp(Op::kIndexMap, {whole},
                         {{"map", IndexMap{{5, 13}, {0, Expr::Axis(1), Expr::Axis(0)}}}});
  EXPECT_EQ(ValuesOf(Contract(a, b, "bmk,zk->m")), (Values{50, -52, 66, -14, -39, 46, -12}));
}

TEST(ReferenceReduceTest, ContractEdges) {
  const Tensor empty = Of(DType::kF32, {2, 0}, {});
  EXPECT_EQ(ValuesOf(Contract(empty, Of(DType::kF32, {0, 3}, {}), "mk,kn->mn")), Values(6, 0));
  EXPECT_EQ(
      Contract(Of(DType::kF32, {0, 2}, {}), Of(DType::kF32, {2}, {1, 2}), "mk,k->m").elements(), 0);
  const Tensor scalar = Of(DType::kF64, {}, {3});
  EXPECT_EQ(ValuesOf(Contract(scalar, scalar, ",->")), (Values{9}));
  EXPECT_EQ(
      ValuesOf(Contract(Of(DType::kF32, {2}, {1, 2}), Of(DType::kF32, {2}, {3, 4}), "i,j->ij")),
      (Values{3, 4, 6, 8}));
  const Values y =
      ValuesOf(Contract(Of(DType::kF32, {2}, {0, 1}), Of(DType::kF32, {2}, {kInf, 1}), "k,k->"));
  EXPECT_TRUE(std::isnan(y[0]));  // zeros are never skipped
  EXPECT_EQ(
      ValuesOf(Contract(Of(DType::kI8, {2}, {100, 50}), Of(DType::kI8, {2}, {2, 2}), "k,k->")),
      (Values{44}));
  // Sums are computed in a wider type than f32: 1e8 + 1 - 1e8.
  EXPECT_EQ(ValuesOf(Contract(Of(DType::kF32, {3}, {1e8, 1, -1e8}), Of(DType::kF32, {3}, {1, 1, 1}),
                              "k,k->")),
            (Values{1}));
}

}  // namespace
}  // namespace athanor
