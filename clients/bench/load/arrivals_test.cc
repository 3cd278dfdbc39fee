#include "clients/bench/load/arrivals.h"

#include <cmath>

#include "clients/bench/figures/statistics.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

std::vector<Arrivals::Due> All(Arrival arrival, double burstiness, std::vector<Phase> phases,
                               uint64_t seed = 1) {
  Arrivals arrivals(arrival, burstiness, std::move(phases), seed);
  std::vector<Arrivals::Due> all;
  while (std::optional<Arrivals::Due> due = arrivals.Next()) all.push_back(*due);
  return all;
}

std::vector<double> Gaps(absl::Span<const Arrivals::Due> all) {
  std::vector<double> gaps;
  for (size_t i = 1; i < all.size(); ++i) gaps.push_back(all[i].seconds - all[i - 1].seconds);
  return gaps;
}

TEST(ArrivalsTest, FixedGapsAreEqualFromTheFirstOn) {
  const auto all = All(Arrival::kFixed, 1, {{2, 50, 50}});
  ASSERT_EQ(all.size(), 100u);
  EXPECT_EQ(all[0].seconds, 0);
  for (double gap : Gaps(all)) EXPECT_NEAR(gap, 0.02, 1e-9);
}

// Gamma gaps with shape k have the mean 1 / rate and the coefficient of variation 1 / sqrt(k);
// Poisson is k = 1. Uses two seeds, so that neither was chosen to fit.
TEST(ArrivalsTest, GapsHaveTheMeanAndSpreadOfTheirDistribution) {
  for (double shape : {0.25, 1.0, 4.0}) {
    for (uint64_t seed : {1u, 2u}) {
      const Arrival arrival = shape == 1 ? Arrival::kPoisson : Arrival::kGamma;
      const auto all = All(arrival, shape, {{200, 500, 500}}, seed);
      const std::vector<double> gaps = Gaps(all);
      const double spread = 1 / std::sqrt(shape);
      // The tolerance is five standard errors.
      EXPECT_NEAR(Mean(gaps) * 500, 1, 5 * spread / std::sqrt(gaps.size())) << shape;
      EXPECT_NEAR(StandardDeviation(gaps) * 500 / spread, 1, 0.05) << shape;
    }
  }
}

// A Poisson gap is longer than its mean with probability 1 / e, independently of the gaps before
// it.
TEST(ArrivalsTest, PoissonForgets) {
  const std::vector<double> gaps = Gaps(All(Arrival::kPoisson, 1, {{100, 1000, 1000}}));
  int after_long = 0, long_after_long = 0, longer = 0;
  for (size_t i = 0; i < gaps.size(); ++i) {
    longer += gaps[i] > 0.001;
    if (i == 0 || gaps[i - 1] <= 0.001) continue;
    ++after_long;
    long_after_long += gaps[i] > 0.001;
  }
  EXPECT_NEAR(longer / static_cast<double>(gaps.size()), std::exp(-1), 0.01);
  EXPECT_NEAR(long_after_long / static_cast<double>(after_long), std::exp(-1), 0.015);
}

TEST(ArrivalsTest, TheSeedDecides) {
  const std::vector<Phase> phases = {{5, 100, 100}};
  const auto one = All(Arrival::kPoisson, 1, phases, 7),
             again = All(Arrival::kPoisson, 1, phases, 7);
  const auto other = All(Arrival::kPoisson, 1, phases, 8);
  ASSERT_EQ(one.size(), again.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].seconds, again[i].seconds);
  EXPECT_NE(one[0].seconds, other[0].seconds);
}

// A ramp from 0 to 100 per second over 10 s has made 5 t^2 calls at time t.
TEST(ArrivalsTest, ARampIsLinearInItsRate) {
  const auto all = All(Arrival::kFixed, 1, {{10, 0, 100}});
  ASSERT_EQ(all.size(), 500u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i].seconds, std::sqrt(i / 5.0), 1e-9);
  // A falling ramp is its mirror image.
  const auto falling = All(Arrival::kFixed, 1, {{10, 100, 0}});
  ASSERT_EQ(falling.size(), 500u);
  for (size_t i = 1; i < falling.size(); ++i) {
    EXPECT_NEAR(falling[i].seconds, 10 - all[500 - i].seconds, 1e-6);
  }
}

TEST(ArrivalsTest, PhasesFollowEachOtherAndARateOfZeroIsAPause) {
  const auto all = All(Arrival::kFixed, 1, {{1, 10, 10}, {3, 0, 0}, {1, 20, 20}});
  ASSERT_EQ(all.size(), 30u);
  EXPECT_EQ(all[9].phase, 0);
  EXPECT_LT(all[9].seconds, 1);
  EXPECT_EQ(all[10].phase, 2);
  EXPECT_NEAR(all[10].seconds, 4, 1e-9);
  EXPECT_LT(all[29].seconds, 5);
  EXPECT_NEAR(ExpectedCalls({{1, 10, 10}, {3, 0, 0}, {1, 20, 20}}), 30, 1e-9);
}

TEST(ArrivalsTest, NoRateIsNoCall) {
  EXPECT_TRUE(All(Arrival::kFixed, 1, {{5, 0, 0}}).empty());
  EXPECT_TRUE(All(Arrival::kPoisson, 1, {{5, 0, 0}, {1, 0, 0}}).empty());
  EXPECT_TRUE(All(Arrival::kPoisson, 1, {}).empty());
}

TEST(ArrivalsTest, ATracesCallsAreDueWhenItSays) {
  Arrivals arrivals({0, 0.25, 0.25, 3});
  for (double seconds : {0.0, 0.25, 0.25, 3.0}) {
    const std::optional<Arrivals::Due> due = arrivals.Next();
    ASSERT_TRUE(due.has_value());
    EXPECT_EQ(due->seconds, seconds);
    EXPECT_EQ(due->phase, 0);
  }
  EXPECT_FALSE(arrivals.Next().has_value());
  EXPECT_FALSE(Arrivals(std::vector<double>()).Next().has_value());
}

TEST(ArrivalsTest, NamesReadBack) {
  for (Arrival arrival :
       {Arrival::kClosed, Arrival::kFixed, Arrival::kPoisson, Arrival::kGamma, Arrival::kTrace}) {
    EXPECT_EQ(FindArrival(ArrivalName(arrival)), arrival);
  }
  EXPECT_EQ(FindArrival("uniform"), std::nullopt);
}

}  // namespace
}  // namespace athanor::bench
