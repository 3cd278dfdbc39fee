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

TEST(MedianTest, AComparisonIsKnownWhereMediansLieApartOrAreNarrow) {
  const Median wide{1, 0.8, 1.2, 9}, apart{1.5, 1.3, 1.7, 9};
  const Median narrow{1, 0.996, 1.004, 9}, near{1.001, 0.998, 1.003, 9};
  EXPECT_TRUE(ComparisonIsKnown({}, 0.01));
  EXPECT_TRUE(ComparisonIsKnown({wide}, 0.01));
  EXPECT_TRUE(ComparisonIsKnown({apart, wide}, 0.01));
  EXPECT_FALSE(ComparisonIsKnown({wide, narrow}, 0.01));
  EXPECT_TRUE(ComparisonIsKnown({narrow, near}, 0.01));
  EXPECT_FALSE(ComparisonIsKnown({narrow, near}, 0.006));
  EXPECT_FALSE(ComparisonIsKnown({narrow, apart, wide}, 0.01));
}

}  // namespace
}  // namespace athanor
