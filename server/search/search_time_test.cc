#include "server/search/search_time.h"

#include <chrono>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using Clock = SearchTime::Clock;

constexpr Clock::time_point kStart{seconds(1000)};

SearchTime TimeOf(Clock::duration budget) {
  SearchTime time;
  time.Begin(budget, kStart);
  return time;
}

// When the search comes to its plan.
Clock::duration FinishOf(Clock::duration budget, Clock::duration of_a_plan = {}) {
  const SearchTime time = TimeOf(budget);
  Clock::duration after{};
  while (!time.MustFinish(kStart + after, of_a_plan)) after += milliseconds(1);
  return after;
}

TEST(SearchTimeTest, RunsFromItsFirstStepOn) {
  SearchTime time;
  EXPECT_FALSE(time.begun());
  EXPECT_FALSE(time.Over(kStart + minutes(10)));
  EXPECT_FALSE(time.MustFinish(kStart + minutes(10), {}));
  EXPECT_EQ(time.Used(kStart), Clock::duration::zero());
  time.Begin(seconds(5), kStart);
  EXPECT_TRUE(time.begun());
  EXPECT_EQ(time.end(), kStart + seconds(5));
  EXPECT_EQ(time.Used(kStart + seconds(2)), seconds(2));
  EXPECT_FALSE(time.Over(kStart + milliseconds(4999)));
  EXPECT_TRUE(time.Over(kStart + seconds(5)));
}

TEST(SearchTimeTest, WithoutALimitItHasNoEnd) {
  const SearchTime time = TimeOf({});
  EXPECT_FALSE(time.Over(kStart + std::chrono::hours(10'000)));
  EXPECT_FALSE(time.MustFinish(kStart + std::chrono::hours(10'000), seconds(5)));
}

TEST(SearchTimeTest, KeepsTimeForItsPlan) {
  EXPECT_EQ(FinishOf(milliseconds(10)), milliseconds(5));
  EXPECT_EQ(FinishOf(seconds(4)), seconds(2)) << "half at most";
  EXPECT_EQ(FinishOf(seconds(5)), milliseconds(2500));
  EXPECT_EQ(FinishOf(seconds(8)), milliseconds(5500)) << "2.5 s at least";
  EXPECT_EQ(FinishOf(seconds(20)), seconds(15)) << "a quarter";
  EXPECT_EQ(FinishOf(minutes(2)), seconds(110)) << "10 s at most";
  // Unless plans are known to take more.
  EXPECT_EQ(FinishOf(minutes(2), seconds(20)), seconds(95));
  EXPECT_EQ(FinishOf(seconds(20), seconds(20)), seconds(10));
}

TEST(SearchTimeTest, APlansTimeIsThatOfMeasuringAndVerifyingIt) {
  v1::SearchProgress progress;
  EXPECT_EQ(TimeOfAPlan(progress), Clock::duration::zero());
  for (const char* on : {"compile", "plans", "verify"}) {
    v1::SearchTime* time = progress.add_times();
    time->set_on(on);
    time->set_seconds(3);
  }
  EXPECT_EQ(TimeOfAPlan(progress), Clock::duration::zero()) << "of none";
  progress.set_plans_measured(2);
  EXPECT_EQ(TimeOfAPlan(progress), seconds(3));
}

}  // namespace
}  // namespace athanor
