#include "server/tuner/measure/median.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(MedianTest, FewSamplesSpanTheInterval) {
  const Median one = MedianOf({2});
  EXPECT_EQ(one.value, 2);
  EXPECT_EQ(one.low, 2);
  EXPECT_EQ(one.high, 2);
  const Median six = MedianOf({2, 1, 3, 1.5, 2.5, 1.2});
  EXPECT_EQ(six.value, 2);
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 3);
  EXPECT_EQ(six.samples, 6);
}

// Draws many sets of samples: at least 95 % of the intervals hold the true median.
TEST(MedianTest, TheIntervalHoldsTheMedian) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> times(0, 0.3);
  for (const int count : {6, 15, 31, 301}) {
    int holds = 0;
    constexpr int kSets = 2000;
    for (int set = 0; set < kSets; ++set) {
      std::vector<double> samples(count);
      for (double& sample : samples) sample = times(random);
      const Median median = MedianOf(samples);
      holds += median.low <= 1 && 1 <= median.high;
    }
    EXPECT_GE(holds, kSets * 94 / 100) << count;
    EXPECT_LT(holds, kSets) << count;
  }
}

TEST(MedianTest, RatiosArePairedRoundByRound) {
  const Median ratio = PairedRatio({1, 20, 3}, {2, 10, 3, 7});
  EXPECT_EQ(ratio.samples, 3);
  EXPECT_EQ(ratio.value, 1);
  EXPECT_EQ(ratio.low, 0.5);
  EXPECT_EQ(ratio.high, 2);
}

TEST(MedianTest, ASumsIntervalIsNarrowerThanThatOfItsParts) {
  const Median sum = SumOf({{10, 7, 13, 8}, Scaled({2, 1.5, 3, 20}, 2)});
  EXPECT_DOUBLE_EQ(sum.value, 14);
  EXPECT_DOUBLE_EQ(sum.low, 14 - std::hypot(3, 1));
  EXPECT_DOUBLE_EQ(sum.high, 14 + std::hypot(3, 2));
  EXPECT_EQ(sum.samples, 8);
  EXPECT_EQ(SumOf({}).value, 0);
  // Extremes of few samples add up.
  const Median few = SumOf({{10, 7, 13, 5}, {4, 3, 6, 20}});
  EXPECT_DOUBLE_EQ(few.low, 10);
  EXPECT_DOUBLE_EQ(few.high, 19);
}

TEST(MedianTest, ARatioIsKnownOnOneSideOfTheLimit) {
  EXPECT_TRUE(RatioIsKnown({0.9, 0.8, 0.98, 6}, 0.99));
  EXPECT_TRUE(RatioIsKnown({1, 0.995, 1.4, 6}, 0.99));
  EXPECT_FALSE(RatioIsKnown({1, 0.98, 1.4, 6}, 0.99));
  // Fewer rounds tell only of what is much slower.
  EXPECT_FALSE(RatioIsKnown({0.5, 0.4, 0.6, 5}, 0.99));
  EXPECT_FALSE(RatioIsKnown({1.05, 1.03, 1.2, 3}, 0.99));
  EXPECT_TRUE(RatioIsKnown({1.2, 1.15, 1.3, 3}, 0.99));
}

// A comparison as measure.cc makes it: looks after 3, 6 and 12 rounds, then it must do.
Median Compared(double ratio, double noise, std::mt19937* random) {
  std::lognormal_distribution<double> times(0, noise);
  std::vector<double> a, b;
  for (const size_t look : {3, 6, 12}) {
    while (a.size() < look) {
      a.push_back(ratio * times(*random));
      b.push_back(times(*random));
    }
    const Median seen = PairedRatio(a, b);
    if (RatioIsKnown(seen, 0.99)) return seen;
  }
  return PairedRatio(a, b);
}

// Simulates plans of equal and of different speed on machines of different noise. A plan is taken
// if its ratio is at most 0.99 and surely at most 1 (candidate_plans.cc).
TEST(MedianTest, EqualPlansAreHardlyTakenAndFasterOnesAre) {
  std::mt19937 random(1);
  constexpr int kPlans = 4000;
  const auto share_taken = [&](double ratio, double noise, double* rounds) {
    int taken = 0, all = 0;
    for (int plan = 0; plan < kPlans; ++plan) {
      const Median seen = Compared(ratio, noise, &random);
      taken += seen.value <= 0.99 && seen.high <= 1;
      all += seen.samples;
    }
    *rounds = static_cast<double>(all) / kPlans;
    return static_cast<double>(taken) / kPlans;
  };
  double rounds = 0;
  for (const double noise : {0.001, 0.003, 0.01, 0.03, 0.1}) {
    EXPECT_LT(share_taken(1, noise, &rounds), 0.02) << noise;
    EXPECT_LT(share_taken(1.02, noise, &rounds), 0.01) << noise;
  }
  share_taken(1, 0.003, &rounds);
  EXPECT_LT(rounds, 7);
  EXPECT_GT(share_taken(0.95, 0.01, &rounds), 0.99);
  EXPECT_GT(share_taken(0.97, 0.01, &rounds), 0.95);
}

}  // namespace
}  // namespace athanor
