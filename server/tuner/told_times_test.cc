#include "server/tuner/told_times.h"

#include <vector>

#include "gtest/gtest.h"
#include "server/child/search_kernel.h"

namespace athanor {
namespace {

// A kernel that is asked for beside a best of 10 and 30 seconds.
internal::SearchKernel Asked() {
  internal::SearchKernel asked;
  for (double seconds : {10.0, 30.0}) asked.add_best_seconds(seconds);
  return asked;
}

struct Ratio {
  double value, low, high;
};

internal::TryOutcome Raced(const std::vector<Ratio>& ratios) {
  const internal::SearchKernel asked = Asked();
  internal::TryOutcome outcome;
  for (size_t s = 0; s < ratios.size(); ++s) {
    internal::SizeTimes raced;
    raced.set_ratio(ratios[s].value);
    raced.set_ratio_low(ratios[s].low);
    raced.set_ratio_high(ratios[s].high);
    raced.set_rounds(9);
    *outcome.add_times() = RelativeTo(asked.best_seconds(static_cast<int>(s)), raced);
  }
  return outcome;
}

double Sum(const internal::TryOutcome& outcome, const internal::SearchKernel& asked) {
  std::vector<double> seconds;
  for (const internal::SizeTimes& size : outcome.times()) seconds.push_back(size.seconds());
  return WeightedSeconds(seconds, asked);
}

TEST(ToldTimesTest, AGainThatIsKnownIsTold) {
  internal::TryOutcome outcome = Raced({{0.5, 0.5, 0.5}, {0.9, 0.9, 0.9}});
  TellSurely(40, Asked(), &outcome);
  EXPECT_NEAR(outcome.times(0).seconds(), 5, 1e-6);
  EXPECT_NEAR(outcome.times(1).seconds(), 27, 1e-6);
}

TEST(ToldTimesTest, OfAGainThatIsHardlyKnownLessIsTold) {
  // 5 + 27 seconds, and up to 3 and 4 more, independently of each other: 5 in all.
  internal::TryOutcome outcome = Raced({{0.5, 0.4, 0.8}, {0.9, 0.8, 27.0 / 30 + 4.0 / 30}});
  TellSurely(40, Asked(), &outcome);
  EXPECT_NEAR(Sum(outcome, Asked()), 37, 1e-6);
  EXPECT_NEAR(outcome.times(0).seconds() / outcome.times(1).seconds(), 5.0 / 27, 1e-6);
}

TEST(ToldTimesTest, AGainThatMayBeLuckIsNone) {
  internal::TryOutcome outcome = Raced({{0.5, 0.1, 3}, {0.9, 0.8, 1}});
  TellSurely(40, Asked(), &outcome);
  EXPECT_FALSE(FasterThanBest({{outcome.times(0).seconds(), outcome.times(1).seconds()}}, Asked()));
  EXPECT_NEAR(Sum(outcome, Asked()), 40, 1e-6);
}

TEST(ToldTimesTest, AGainThatIsKnownAndSmallIsNone) {
  internal::TryOutcome outcome = Raced({{0.995, 0.994, 0.996}, {0.995, 0.994, 0.996}});
  TellSurely(40, Asked(), &outcome);
  EXPECT_NEAR(Sum(outcome, Asked()), 40, 1e-6);
  outcome = Raced({{0.985, 0.98, 0.99}, {0.985, 0.98, 0.99}});
  TellSurely(40, Asked(), &outcome);
  EXPECT_LT(Sum(outcome, Asked()), 40 * 0.99);
}

TEST(ToldTimesTest, LuckIsNotHandedOnFromBestToBest) {
  // Each of twenty equal kernels seems to gain a tenth, within its interval.
  double best = 40;
  for (int k = 0; k < 20; ++k) {
    internal::TryOutcome outcome = Raced({{0.9, 0.7, 1.2}, {0.9, 0.8, 1.1}});
    TellSurely(best, Asked(), &outcome);
    best = std::min(best, Sum(outcome, Asked()));
  }
  EXPECT_GE(best, 40 * (1 - 1e-6));
}

TEST(ToldTimesTest, OneThatIsSlowerKeepsItsTimes) {
  internal::TryOutcome outcome = Raced({{1.5, 1.4, 1.6}, {1.2, 1.1, 1.3}});
  TellSurely(40, Asked(), &outcome);
  EXPECT_DOUBLE_EQ(outcome.times(0).seconds(), 15);
  TellAtLeast(0, Asked(), &outcome);  // there is no best
  EXPECT_DOUBLE_EQ(outcome.times(1).seconds(), 36);
}

TEST(ToldTimesTest, SizesCountAsTheRequestSays) {
  internal::SearchKernel asked = Asked();
  asked.add_size_weights(3);
  asked.add_size_weights(1);
  internal::TryOutcome outcome = Raced({{0.5, 0.5, 0.5}, {1, 1, 1}});
  TellAtLeast(60, asked, &outcome);  // it takes 3 * 5 + 30
  EXPECT_NEAR(Sum(outcome, asked), 60, 1e-6);
}

}  // namespace
}  // namespace athanor
