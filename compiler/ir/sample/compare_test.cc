#include "compiler/ir/sample/compare.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/ops/reference_testing.h"

namespace athanor {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(CompareTest, UnitsInTheLastPlace) {
  EXPECT_EQ(UnitRoundoff(DType::kF32), std::ldexp(1, -24));
  EXPECT_EQ(UnitInLastPlace(DType::kF32, 1), std::numeric_limits<float>::epsilon());
  EXPECT_EQ(UnitInLastPlace(DType::kF32, 0), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(UnitInLastPlace(DType::kF64, -3), 2 * std::numeric_limits<double>::epsilon());
  EXPECT_EQ(UnitInLastPlace(DType::kF64, 1e-320), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(UnitInLastPlace(DType::kBF16, 1), 0.0078125);
  EXPECT_EQ(UnitInLastPlace(DType::kF16, 65504), 32);
  EXPECT_EQ(UnitInLastPlace(DType::kF32, -HUGE_VAL), HUGE_VAL);
  EXPECT_EQ(UnitInLastPlace(DType::kF64, std::nan("")), HUGE_VAL);
  EXPECT_EQ(UlpDistance(DType::kF16, 1.001953125, 1), 2);
  EXPECT_EQ(UlpDistance(DType::kF32, kNan, kNan), 0);
  EXPECT_EQ(UlpDistance(DType::kF32, -kInf, -kInf), 0);
  EXPECT_EQ(UlpDistance(DType::kF32, 1, kNan), kInf);
  EXPECT_EQ(UlpDistance(DType::kF32, kInf, 3e38), kInf);
  EXPECT_EQ(UlpDistance(DType::kF64, -0.0, 0.0), 0);
}

TEST(CompareTest, GammaIsHighams) {
  EXPECT_EQ(Gamma(0, 0.25), 0);
  EXPECT_DOUBLE_EQ(Gamma(2, 0.25), 1);
  EXPECT_EQ(Gamma(4, 0.25), kInf);
  EXPECT_DOUBLE_EQ(Gamma(1000, std::ldexp(1, -24)), 1000 / (16777216.0 - 1000));
}

TEST(CompareTest, EqualMeansNanWithNanAndInfinityWithItself) {
  const Tensor a = Of(DType::kF32, {4}, {kNan, kInf, -kInf, 0.0});
  const Tensor b = Of(DType::kF32, {4}, {kNan, kInf, -kInf, -0.0});
  EXPECT_TRUE(CompareTensors(a, b, 0, 0).ok());
  for (double other : {-kInf, kNan, 3e38}) {
    EXPECT_FALSE(
        CompareTensors(Of(DType::kF32, {}, {other}), Of(DType::kF32, {}, {kInf}), 1, 1).ok());
    EXPECT_FALSE(
        CompareTensors(Of(DType::kF32, {}, {kInf}), Of(DType::kF32, {}, {other}), 1, 1).ok());
  }
}

TEST(CompareTest, NamesTheFirstAndTheWorst) {
  const Tensor want = Of(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor got = Of(DType::kF32, {2, 3}, {1, 2.5, 3, 4, 9, 6.25});
  const absl::Status status = CompareTensors(got, want, 0.1, 0);
  EXPECT_EQ(
      status.message(),
      "f32[2,3]: 2 of 6 elements differ; first [0,1]: got 2.5, want 2, off by 0.5, allowed 0.2; "
      "worst [1,1]: got 9, want 5, off by 4, allowed 0.5");
  EXPECT_TRUE(CompareTensors(got, want, 0, 4).ok());
  EXPECT_FALSE(CompareTensors(got, want, 0, 3.99).ok());
  const std::vector<double> tolerances = {0, 0.5, 0, 0, 4, 0.25};
  EXPECT_TRUE(CompareTensors(got, want, tolerances).ok());
}

TEST(CompareTest, AnInfinityIsTheWorst) {
  const Tensor want = Of(DType::kF32, {3}, {1, kInf, kNan});
  const absl::Status status = CompareTensors(Of(DType::kF32, {3}, {2, -kInf, 0}), want, 0.5, 0);
  EXPECT_EQ(status.message(),
            "f32[3]: 3 of 3 elements differ; first [0]: got 2, want 1, off by 1, allowed 0.5; "
            "worst [1]: got -inf, want inf, off by inf, allowed 0");
}

TEST(CompareTest, RefusesWhatCannotBeCompared) {
  const Tensor a = Of(DType::kF32, {2}, {1, 2});
  EXPECT_EQ(CompareTensors(a, Of(DType::kF64, {2}, {1, 2}), 1, 1).message(),
            "got f32[2], want f64[2]");
  EXPECT_EQ(CompareTensors(a, Of(DType::kF32, {2, 1}, {1, 2}), 1, 1).message(),
            "got f32[2], want f32[2,1]");
  Tensor cut = a;
  cut.bytes.pop_back();
  EXPECT_EQ(CompareTensors(cut, a, 1, 1).message(), "got f32[2] has 7 bytes, its shape needs 8");
  EXPECT_FALSE(CompareTensors(a, a, std::vector<double>{1}).ok());
}

TEST(CompareTest, IntegersAreComparedExactly) {
  const Tensor a = Tensor::Of<int64_t>(DType::kI64, {}, {(int64_t{1} << 60) + 1});
  const Tensor b = Tensor::Of<int64_t>(DType::kI64, {}, {int64_t{1} << 60});
  EXPECT_FALSE(CompareTensors(a, b, 1, 1e9).ok());
  EXPECT_TRUE(CompareTensors(a, a, 0, 0).ok());
  EXPECT_TRUE(CompareTensors(Of(DType::kBool, {0}, {}), Of(DType::kBool, {0}, {}), 0, 0).ok());
}

TEST(CompareTest, UlpTolerance) {
  const Tensor want = Of(DType::kF16, {2}, {1, 0});
  EXPECT_TRUE(CompareTensorsUlp(Of(DType::kF16, {2}, {1.001953125, 0}), want, 2).ok());
  EXPECT_FALSE(CompareTensorsUlp(Of(DType::kF16, {2}, {1.001953125, 0}), want, 1).ok());
}

// Compares with c * gamma(K) * sum|a*b| in the accumulator's roundoff, plus one unit of the result.
TEST(CompareTest, ContractToleranceIsItsFormula) {
  const double gamma = 100 / (16777216.0 - 100);
  EXPECT_DOUBLE_EQ(ContractTolerance(DType::kF32, 100, 8, 1), 8 * gamma + std::ldexp(1, -23));
  EXPECT_DOUBLE_EQ(ContractTolerance(DType::kF16, 100, 8, 1, 3), 24 * gamma + std::ldexp(1, -10));
  EXPECT_DOUBLE_EQ(ContractTolerance(DType::kF64, 1, 8, 0),
                   8 / (9007199254740992.0 - 1) + std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(ContractTolerance(DType::kF32, 100, kInf, 1), 0);
}

// A contraction summed in f32, in order and in reverse, stays within the bound. A wrong element
// does not, even if it is small compared with the sum of the magnitudes.
TEST(CompareTest, ContractionBoundHoldsForAnyOrderAndRefusesAWrongTerm) {
  const int64_t length = 997;
  std::vector<double> a, b;
  for (int64_t i = 0; i < length; ++i) {
    a.push_back(std::sin(static_cast<double>(i) * 1.7));
    b.push_back(std::cos(static_cast<double>(i) * 2.3) + (i % 2 ? 1 : -1));
  }
  const Tensor lhs = Of(DType::kF32, {1, length}, a);
  const Tensor rhs = Of(DType::kF32, {length, 1}, b);
  const ContractSpec spec{"mk", "kn", "mn"};
  const Tensor want = RunOp(Op::kContract, {lhs, rhs}, {{"spec", spec.ToString()}});
  const std::vector<double> magnitudes = ContractMagnitudes(spec, lhs, rhs).value();
  const std::vector<double> bound = ContractTolerances(want, magnitudes, length);
  float forward = 0, backward = 0;
  for (int64_t i = 0; i < length; ++i) {
    forward += lhs.data<float>()[i] * rhs.data<float>()[i];
    backward += lhs.data<float>()[length - 1 - i] * rhs.data<float>()[length - 1 - i];
  }
  EXPECT_TRUE(CompareTensors(Of(DType::kF32, {1, 1}, {forward}), want, bound).ok());
  EXPECT_TRUE(CompareTensors(Of(DType::kF32, {1, 1}, {backward}), want, bound).ok());
  const float dropped = forward - lhs.data<float>()[1] * rhs.data<float>()[1];
  EXPECT_FALSE(CompareTensors(Of(DType::kF32, {1, 1}, {dropped}), want, bound).ok());
  EXPECT_GT(magnitudes[0], 100);
  EXPECT_LT(bound[0], 0.1);
  EXPECT_LT(std::fabs(forward - dropped), magnitudes[0] / 500);
}

}  // namespace
}  // namespace athanor
