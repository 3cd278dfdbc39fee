#include "clients/bench/figures/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

// Implements the definition directly: interpolates over a list in which repeated values stand
// repeatedly.
double PercentileByDefinition(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  const double position = p * (values.size() - 1);
  const double low = values[std::floor(position)], high = values[std::ceil(position)];
  return low * (1 - (position - std::floor(position))) + high * (position - std::floor(position));
}

TEST(StatisticsTest, PercentilesOfKnownValues) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(Percentile(values, 1), 4);
  EXPECT_DOUBLE_EQ(Percentile({values.data(), 1}, 0.99), 1);
  EXPECT_TRUE(std::isnan(Percentile({}, 0.5)));
  const std::vector<double> infinite = {1, 2, kInfinity, kInfinity};
  EXPECT_EQ(Percentile(infinite, 1.0 / 3), 2);
  EXPECT_EQ(Percentile(infinite, 0.5), kInfinity);
  EXPECT_EQ(Percentile(infinite, 0.9), kInfinity);
}

TEST(StatisticsTest, MomentsOfKnownValues) {
  const std::vector<double> values = {2, 4, 4, 4, 5, 5, 7, 9};
  EXPECT_DOUBLE_EQ(Mean(values), 5);
  EXPECT_NEAR(StandardDeviation(values), std::sqrt(32.0 / 7), 1e-12);
  EXPECT_TRUE(std::isnan(Mean({})));
  EXPECT_TRUE(std::isnan(StandardDeviation({values.data(), 1})));
}

TEST(StatisticsTest, EveryDrawHasAsManyBlocksAsThereAre) {
  const Resamples resamples(7, 50, 3);
  ASSERT_EQ(resamples.rounds(), 50);
  bool uneven = false;
  for (int round = 0; round < 50; ++round) {
    uint32_t sum = 0;
    for (uint32_t weight : resamples.Weights(round)) {
      sum += weight;
      uneven |= weight != 1;
    }
    EXPECT_EQ(sum, 7u);
  }
  EXPECT_TRUE(uneven);
  EXPECT_EQ(Resamples(1, 50, 3).rounds(), 0);
}

// Compares the single pass over weights with draws that are written out and sorted.
TEST(StatisticsTest, PercentilesOfDrawsAreThoseOfTheDrawsWrittenOut) {
  constexpr int kBlocks = 9, kRounds = 300;
  const std::vector<double> ps = {0, 0.3, 0.5, 0.95, 0.999, 1};
  std::mt19937_64 random(11);
  std::lognormal_distribution<double> value;
  std::vector<Sample> samples;
  for (int i = 0; i < 137; ++i) samples.push_back({value(random), static_cast<int>(random() % 8)});
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.value < b.value; });
  const Resamples resamples(kBlocks, kRounds, 5);
  const std::vector<Interval> intervals = Percentiles(samples, ps, resamples);
  std::vector<double> all;
  for (const Sample& sample : samples) all.push_back(sample.value);
  for (size_t p = 0; p < ps.size(); ++p) {
    std::vector<double> figures;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> drawn;
      for (const Sample& sample : samples) {
        drawn.insert(drawn.end(), resamples.Weights(round)[sample.block], sample.value);
      }
      if (!drawn.empty()) figures.push_back(PercentileByDefinition(drawn, ps[p]));
    }
    EXPECT_NEAR(intervals[p].value, PercentileByDefinition(all, ps[p]), 1e-12);
    EXPECT_NEAR(intervals[p].low, PercentileByDefinition(figures, 0.025), 1e-12);
    EXPECT_NEAR(intervals[p].high, PercentileByDefinition(figures, 0.975), 1e-12);
  }
}

// By the normal approximation, half the interval of a mean of n independent blocks is 1.96 s /
// sqrt(n).
TEST(StatisticsTest, TheIntervalOfAMeanIsTheNormalOne) {
  constexpr int kBlocks = 400;
  std::mt19937_64 random(2);
  std::normal_distribution<double> value(50, 5);
  std::vector<double> sums, counts(kBlocks, 1);
  for (int i = 0; i < kBlocks; ++i) sums.push_back(value(random));
  const Interval interval = RatioOfSums(sums, counts, Resamples(kBlocks, 1000, 1));
  const double half = 1.96 * StandardDeviation(sums) / std::sqrt(kBlocks);
  EXPECT_NEAR(interval.value, Mean(sums), 1e-9);
  EXPECT_NEAR(interval.high - interval.value, half, 0.15 * half);
  EXPECT_NEAR(interval.value - interval.low, half, 0.15 * half);
}

// 95 % intervals contain the true value about that often, even if slow calls come in blocks.
TEST(StatisticsTest, IntervalsHoldTheTruthAsOftenAsTheySay) {
  constexpr int kBlocks = 60, kPerBlock = 20, kRuns = 300;
  std::mt19937_64 random(4);
  std::normal_distribution<double> of_block(10, 1), of_call(0, 1);
  int held = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<Sample> samples;
    for (int block = 0; block < kBlocks; ++block) {
      const double level = of_block(random);
      for (int i = 0; i < kPerBlock; ++i) samples.push_back({level + of_call(random), block});
    }
    std::sort(samples.begin(), samples.end(),
              [](const Sample& a, const Sample& b) { return a.value < b.value; });
    const Interval median = Percentiles(samples, {0.5}, Resamples(kBlocks, 200, run))[0];
    held += median.low <= 10 && 10 <= median.high;
  }
  EXPECT_GE(held, 0.90 * kRuns);
  EXPECT_LE(held, 0.99 * kRuns);
}

TEST(StatisticsTest, NothingAndOneBlockHaveNoInterval) {
  const Resamples one(1, 100, 1);
  const Interval interval = RatioOfSums({6.0}, {2.0}, one);
  EXPECT_DOUBLE_EQ(interval.value, 3);
  EXPECT_TRUE(std::isnan(interval.low));
  EXPECT_TRUE(std::isnan(RatioOfSums({0.0}, {0.0}, one).value));
  EXPECT_TRUE(std::isnan(Percentiles({}, {0.5}, Resamples(5, 10, 1))[0].value));
  const Sample sample = {4, 0};
  const Interval single = Percentiles({sample}, {0.5, 0.99}, Resamples(5, 100, 1))[1];
  EXPECT_DOUBLE_EQ(single.value, 4);
  EXPECT_DOUBLE_EQ(single.low, 4);
}

TEST(StatisticsTest, RoundsShrinkWithTheSamples) {
  EXPECT_EQ(RoundsFor(0), 1000);
  EXPECT_EQ(RoundsFor(200'000), 500);
  EXPECT_EQ(RoundsFor(100'000'000), 200);
}

}  // namespace
}  // namespace athanor::bench
