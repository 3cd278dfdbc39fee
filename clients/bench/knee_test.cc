#include "clients/bench/knee.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::ElementsAre;

// Returns the rates that are measured on a server that meets the levels up to `limit`.
std::vector<double> Rates(Knee* knee, double limit) {
  std::vector<double> rates;
  while (std::optional<double> rate = knee->Next()) {
    rates.push_back(*rate);
    if (rates.size() > 100) break;
    knee->Tell(*rate <= limit);
  }
  return rates;
}

TEST(KneeTest, RatesDoubleThenHalveWhatIsBetween) {
  Knee knee(1, 1e6);
  EXPECT_THAT(Rates(&knee, 5.2), ElementsAre(1, 2, 4, 8, 6, 5, 5.5, 5.25));
  EXPECT_EQ(knee.rate(), 5);
  EXPECT_EQ(knee.missed(), 5.25);
}

TEST(KneeTest, AFirstRateThatMissesIsHalved) {
  Knee knee(8, 1e6);
  EXPECT_THAT(Rates(&knee, 1.01), ElementsAre(8, 4, 2, 1, 1.5, 1.25, 1.125, 1.0625, 1.03125));
  EXPECT_EQ(knee.rate(), 1);
}

TEST(KneeTest, IsWithinFivePerCentWhereverTheLimitIs) {
  for (const double first : {0.01, 1.0, 300.0}) {
    for (double limit = 0.02; limit < 1e4; limit *= 1.37) {
      if (limit <= first * Knee::kLeast) continue;
      Knee knee(first, 1e6);
      const std::vector<double> rates = Rates(&knee, limit);
      EXPECT_LE(knee.rate(), limit);
      EXPECT_GE(knee.rate() * Knee::kApart, limit) << first;
      EXPECT_LE(rates.size(), 30u);
    }
  }
}

TEST(KneeTest, AServerThatNeverMeetsThemHasNone) {
  Knee knee(1, 1e6);
  EXPECT_EQ(Rates(&knee, 0).size(), 11u);
  EXPECT_EQ(knee.rate(), 0);
}

TEST(KneeTest, AServerThatMeetsThemAtTheMostHasThat) {
  Knee knee(1, 5);
  EXPECT_THAT(Rates(&knee, 1e9), ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(knee.rate(), 5);
  EXPECT_TRUE(std::isinf(knee.missed()));
  Knee only(5, 5);
  EXPECT_THAT(Rates(&only, 1e9), ElementsAre(5));
}

}  // namespace
}  // namespace athanor::bench
