#include "server/net/rate_limit.h"

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const RateLimit::Clock::time_point kBegin{seconds(100)};

TEST(RateLimitTest, NoneIsNoPause) {
  RateLimit none(0);
  EXPECT_EQ(none.Take(int64_t{1} << 60, kBegin), seconds(0));
}

TEST(RateLimitTest, APauseIsWhatItTakesAtThatRate) {
  RateLimit limit(1000);
  EXPECT_EQ(limit.Take(500, kBegin), milliseconds(500));
  EXPECT_EQ(limit.Take(0, kBegin + milliseconds(500)), seconds(0));
  // Unused capacity is not saved up.
  EXPECT_EQ(limit.Take(100, kBegin + seconds(9)), milliseconds(100));
}

TEST(RateLimitTest, AllShareIt) {
  RateLimit limit(1000);
  EXPECT_EQ(limit.Take(500, kBegin), milliseconds(500));
  EXPECT_EQ(limit.Take(250, kBegin + milliseconds(100)), milliseconds(650));
  EXPECT_EQ(limit.Take(0, kBegin + milliseconds(100)), milliseconds(650));
}

TEST(RateLimitTest, NoPauseIsLongerThanAnHour) {
  RateLimit limit(1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(limit.Take(int64_t{1} << 62, kBegin), std::chrono::hours(1));
  }
}

}  // namespace
}  // namespace athanor
