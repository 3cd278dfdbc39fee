#include "server/tuner/check/plan_errors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/graph/graph.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/tuner/check/roundings.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

constexpr double kU = 1.0 / (1 << 24);
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
absl::string_view Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// An output of 40 rows of 25: exact f64 values, and f32 values off by a given error.
class PlanErrorsTest : public ::testing::Test {
 protected:
  PlanErrorsTest() {
    for (double& t : exact_) t = normal_(random_);
    for (size_t i = 0; i < exact_.size(); ++i) baseline_[i] = Noisy(i, kU);
    for (size_t i = 0; i < exact_.size(); ++i) candidate_[i] = Noisy(i, kU);
  }

  float Noisy(size_t i, double deviation) {
    return static_cast<float>(exact_[i] + deviation * normal_(random_));
  }

  absl::Status Judge(double noise = kU) {
    OutputErrors errors("y", DType::kF32);
    errors.Add("b=40", {{{40, 25}, Bytes(candidate_), Bytes(baseline_), Bytes(exact_)}}, noise,
               DrawnValues::kUsual);
    worst_ = errors.Summarize().worst;
    return errors.Judge();
  }

  void ExpectRefused(const std::string& why) {
    const absl::Status status = Judge();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_THAT(std::string(status.message()), HasSubstr("output \"y\" at b=40"));
  }

  std::mt19937_64 random_{5};
  std::normal_distribution<double> normal_;
  std::vector<double> exact_ = std::vector<double>(1000);
  std::vector<float> baseline_ = std::vector<float>(1000), candidate_ = baseline_;
  double worst_ = 0;
};

TEST_F(PlanErrorsTest, NoiseLikeTheBaselinesPasses) {
  EXPECT_TRUE(Judge().ok()) << Judge();
  EXPECT_GT(worst_, 0.2);
  EXPECT_LT(worst_, 1);
}

TEST_F(PlanErrorsTest, MoreThanTwiceTheNoiseDoesNot) {
  for (size_t i = 0; i < exact_.size(); ++i) candidate_[i] = Noisy(i, 3 * kU);
  ExpectRefused("error is");
}

TEST_F(PlanErrorsTest, OneWrongElementIsNamed) {
  candidate_[7 * 25 + 3] += 1e-4f;
  ExpectRefused("the largest error");
  ExpectRefused("element [7,3]: got ");
}

TEST_F(PlanErrorsTest, ALittleWrongEverywhereIsSeenBelowTheLargest) {
  // The baseline has one bad element; the candidate has none, but a bias.
  baseline_[0] += 1e-3f;
  for (size_t i = 0; i < exact_.size(); ++i) candidate_[i] = Noisy(i, kU) + 3e-4f;
  ExpectRefused("root mean square error");
  // Many bad elements, as when comparisons of rounded values go the other way.
  for (size_t i = 0; i < exact_.size(); i += 5) baseline_[i] += 1e-3f;
  ExpectRefused("the median error");
}

TEST_F(PlanErrorsTest, SmallRowsDoNotHideBehindLargeOnes) {
  for (size_t i = 0; i < 25; ++i) {
    exact_[i] *= 1e-6;
    baseline_[i] = candidate_[i] = static_cast<float>(exact_[i]);
  }
  EXPECT_TRUE(Judge().ok()) << Judge();
  candidate_[3] += 1e-9f;
  ExpectRefused("element [0,3]");
}

TEST_F(PlanErrorsTest, CancellationInOneElementIsNoError) {
  exact_[5] = 1e-12;
  baseline_[5] = 0;
  candidate_[5] = 3e-8f;
  EXPECT_TRUE(Judge().ok()) << Judge();
}

TEST_F(PlanErrorsTest, AnExactBaselineLeavesAFloor) {
  for (size_t i = 0; i < exact_.size(); ++i) exact_[i] = baseline_[i];
  for (size_t i = 0; i < exact_.size(); ++i) candidate_[i] = baseline_[i];
  candidate_[1] = std::nextafter(baseline_[1], 9.0f);
  EXPECT_TRUE(Judge().ok()) << Judge();
  EXPECT_FALSE(Judge(/*noise=*/0).ok());  // no rounding: moved values must be equal
  candidate_[1] = baseline_[1] * (1 + 100 * static_cast<float>(kU));
  ExpectRefused("largest");
}

TEST_F(PlanErrorsTest, NonFiniteOnesAreWhereTheyBelong) {
  exact_[0] = kNaN;
  exact_[1] = kInfinity;
  exact_[2] = 1e39;  // infinite in f32
  for (std::vector<float>* got : {&baseline_, &candidate_}) {
    (*got)[0] = std::nanf("");
    (*got)[1] = (*got)[2] = std::numeric_limits<float>::infinity();
  }
  EXPECT_TRUE(Judge().ok()) << Judge();
  candidate_[1] = -candidate_[1];
  ExpectRefused("element [0,1]: got -inf where the baseline has inf and f64 inf");
  candidate_[1] = 5;
  ExpectRefused("1 of 1000 elements are not as in f64, of the baseline 0");
  candidate_[1] = baseline_[1];
  candidate_[900] = std::nanf("");
  ExpectRefused("element [36,0]: got nan");
  // If the baseline overflows and f64 does not, the candidate may do either.
  const float right = candidate_[899];
  candidate_[899] = baseline_[899] = std::numeric_limits<float>::infinity();
  candidate_[900] = static_cast<float>(exact_[900]);
  EXPECT_TRUE(Judge().ok()) << Judge();
  candidate_[899] = right;
  EXPECT_TRUE(Judge().ok()) << Judge();
  candidate_[899] = right + 1;
  ExpectRefused("largest");
}

// Compares the norms of two tensors in a group with those of the sorted errors. The median may
// share its upper bits with others or not, be 0, or be infinite.
TEST(OutputErrors, NormsAreThoseOfAllErrors) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> normal;
  for (const double spread : {0.0, 1e-30, 1e-7, 1e-2, 30.0}) {
    for (const size_t n : {1, 2, 17, 1000, 4001}) {
      const std::vector<double> exact(n, 1.0);
      std::vector<double> off(n);
      std::vector<float> wanted;
      for (double& value : off) value = 1 + spread * std::exp2(normal(random)) * normal(random);
      OutputErrors errors("y", DType::kF64);
      const auto rows = static_cast<int64_t>(n);
      errors.Add("twice",
                 {{{rows}, Bytes(off), Bytes(exact), Bytes(exact)},
                  {{rows}, Bytes(off), Bytes(exact), Bytes(exact)}},
                 kU, DrawnValues::kUsual);
      for (const double value : off) {
        const double scale = 2 + std::numeric_limits<double>::min();
        wanted.insert(wanted.end(), 2, static_cast<float>(std::fabs(value - 1) / scale));
      }
      std::sort(wanted.begin(), wanted.end());
      double sum = 0;
      for (const float error : wanted) sum += static_cast<double>(error) * error;
      const auto found = errors.Summarize();
      EXPECT_EQ(found.candidate[kMedian], wanted[n]) << spread << " " << n;
      EXPECT_EQ(found.candidate[kLargest], wanted.back()) << spread << " " << n;
      EXPECT_NEAR(found.candidate[kRootMeanSquare], std::sqrt(sum / (2 * n)), 1e-12 * spread);
      EXPECT_EQ(found.baseline[kMedian], 0);
      EXPECT_EQ(found.elements, 2 * rows);
    }
  }
}

TEST(OutputErrors, IntegersAreEqualOrCounted) {
  std::vector<int32_t> exact(100, 7), baseline = exact, candidate = exact;
  const auto judge = [&] {
    OutputErrors errors("n", DType::kI32);
    errors.Add("one size",
               {{{10, 10}, Bytes(candidate), Bytes(baseline), Bytes(exact), DType::kI32}}, 0,
               DrawnValues::kUsual);
    return errors.Judge();
  };
  EXPECT_TRUE(judge().ok());
  candidate[42] = 8;
  EXPECT_THAT(std::string(judge().message()),
              HasSubstr("element [4,2]: got 8 where the baseline has 7 and f64 7"));
  // A choice that rounding changes, in the baseline as well.
  baseline[1] = baseline[2] = 6;
  EXPECT_TRUE(judge().ok());
  for (int i = 50; i < 54; ++i) candidate[i] = 9;
  EXPECT_FALSE(judge().ok());
}

TEST(OutputErrors, OtherSizesTellWhatIsUsual) {
  // The baseline's one element is exact by chance.
  const std::vector<float> one = {1}, off = {1 + 4e-7f};
  const std::vector<double> exact_one = {1};
  std::vector<double> exact(64, 1.0);
  std::vector<float> baseline(64, 1 + 4e-7f), candidate = baseline;
  OutputErrors errors("y", DType::kF32);
  errors.Add("b=1", {{{1}, Bytes(off), Bytes(one), Bytes(exact_one)}}, kU / 2, DrawnValues::kUsual);
  EXPECT_FALSE(errors.Judge().ok());
  errors.Add("b=64", {{{64}, Bytes(candidate), Bytes(baseline), Bytes(exact)}}, kU / 2,
             DrawnValues::kUsual);
  EXPECT_TRUE(errors.Judge().ok()) << errors.Judge();
}

double NoiseOf(const std::string& body) {
  auto graph = ParseGraph("graph \"g\" { dim b in [1, 99] %0 = Input \"x\" : " + body);
  EXPECT_TRUE(graph.ok()) << graph.status();
  auto noise = RoundingNoise(*graph, {{"b", 9}});
  EXPECT_TRUE(noise.ok()) << noise.status();
  return noise->at(0);
}

TEST(RoundingNoise, FollowsTheFormula) {
  EXPECT_EQ(NoiseOf("f32[b] %1 = IndexMap(%0) {map=map[b]($0)} output \"y\" = %1 }"), 0);
  EXPECT_DOUBLE_EQ(NoiseOf("f32[b] %1 = Add(%0, %0) output \"y\" = %1 }"), kU);
  EXPECT_DOUBLE_EQ(NoiseOf("f32[b] %1 = Exp(%0) %2 = Add(%1, %0) output \"y\" = %2 }"),
                   kU * std::sqrt(26));
  EXPECT_DOUBLE_EQ(NoiseOf("f32[b, 48] %1 = SumReduce(%0) {axes=[1]} output \"y\" = %1 }"), 7 * kU);
  EXPECT_DOUBLE_EQ(NoiseOf("f32[48, b] %1 = Contract(%0, %0) {spec=\"kb,kc->bc\"} "
                           "output \"y\" = %1 }"),
                   7 * kU);
  // Sums of bf16 accumulate in f32.
  EXPECT_NEAR(NoiseOf("bf16[b, 48] %1 = SumReduce(%0) {axes=[1]} output \"y\" = %1 }"),
              std::ldexp(1, -8), 1e-8);
  EXPECT_EQ(NoiseOf("i32[b] %1 = Mul(%0, %0) output \"y\" = %1 }"), 0);
}

}  // namespace
}  // namespace athanor
