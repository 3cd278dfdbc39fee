#include "server/generate/schedule/step_times.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

double Milliseconds(StepTimes::Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}
StepTimes::Duration FromMilliseconds(double time) {
  return std::chrono::duration_cast<StepTimes::Duration>(
      std::chrono::duration<double, std::milli>(time));
}

TEST(StepTimesTest, WithoutTurnsAnyNumberOfRowsFits) {
  const StepTimes times;
  EXPECT_EQ(times.Of(100), StepTimes::Duration::zero());
  EXPECT_EQ(times.RowsWithin(milliseconds(1), 512), 512);
  EXPECT_EQ(times.RowsWithin(StepTimes::Duration::zero(), 0), 0);
}

TEST(StepTimesTest, OneTurnGivesALineFromZero) {
  StepTimes times;
  times.Learn(24, milliseconds(48));
  EXPECT_NEAR(Milliseconds(times.Of(24)), 48, 1e-3);
  EXPECT_NEAR(Milliseconds(times.Of(1)), 2, 1e-3);
  EXPECT_NEAR(Milliseconds(times.Of(100)), 200, 1e-3);
  EXPECT_EQ(times.RowsWithin(milliseconds(51), 512), 25);
  EXPECT_EQ(times.RowsWithin(milliseconds(51), 20), 20);
  EXPECT_EQ(times.RowsWithin(milliseconds(1), 512), 0);
}

TEST(StepTimesTest, GoesOnBeyondTheLastPointAsBetweenTheLastTwo) {
  StepTimes times;
  times.Learn(1, milliseconds(18));
  times.Learn(16, milliseconds(48));
  EXPECT_NEAR(Milliseconds(times.Of(1)), 18, 1e-3);
  EXPECT_NEAR(Milliseconds(times.Of(16)), 48, 1e-3);
  EXPECT_NEAR(Milliseconds(times.Of(11)), 38, 1e-3);
  EXPECT_NEAR(Milliseconds(times.Of(26)), 68, 1e-3);
}

TEST(StepTimesTest, MoreRowsNeverTakeLess) {
  StepTimes times;
  times.Learn(8, milliseconds(40));
  times.Learn(16, milliseconds(20));
  EXPECT_GE(times.Of(16), times.Of(8));
  EXPECT_GE(times.Of(64), times.Of(16));
}

TEST(StepTimesTest, ATurnThatWaitedChangesLittle) {
  StepTimes times;
  for (int i = 0; i < 20; ++i) times.Learn(8, milliseconds(20));
  times.Learn(8, seconds(100));
  EXPECT_NEAR(Milliseconds(times.Of(8)), 20 + 60.0 / 8, 1e-3);
}

TEST(StepTimesTest, FollowsAMachineThatSlowsDown) {
  StepTimes times;
  for (int i = 0; i < 100; ++i) times.Learn(8, milliseconds(20));
  for (int i = 0; i < 100; ++i) times.Learn(8, milliseconds(400));
  EXPECT_NEAR(Milliseconds(times.Of(8)), 400, 1);
}

TEST(StepTimesTest, WhatWasSlowOnceIsForgottenThoughItsRowsDoNotComeAgain) {
  StepTimes times;
  times.Learn(20, milliseconds(1500));  // as a first turn may be
  for (int i = 0; i < 200; ++i) times.Learn(1, milliseconds(10));
  for (int i = 0; i < 100; ++i) {
    times.Learn(80, milliseconds(25));
    times.Learn(64, milliseconds(22));
  }
  EXPECT_NEAR(Milliseconds(times.Of(64)), 22, 2);
  EXPECT_LE(times.Of(20), times.Of(64));
  EXPECT_GT(times.RowsWithin(milliseconds(50), 512), 128);
}

// Steps get room for more rows though a large step was slow at first.
TEST(StepTimesTest, RowsGrowBackAfterASlowLargeTurn) {
  StepTimes times;
  times.Learn(512, seconds(10));
  for (int i = 0; i < 2000; ++i) {
    const int64_t rows = std::max<int64_t>(17, times.RowsWithin(milliseconds(50), 512));
    times.Learn(rows, FromMilliseconds(10 + 0.1 * static_cast<double>(rows)));
  }
  EXPECT_NEAR(static_cast<double>(times.RowsWithin(milliseconds(50), 512)), 400, 20);
}

TEST(StepTimesTest, TakesAnyNumberOfRowsAndAnyTime) {
  StepTimes times;
  times.Learn(int64_t{1} << 62, milliseconds(5));
  times.Learn(1, milliseconds(-5));
  times.Learn(3, milliseconds(0));
  EXPECT_GE(times.Of(1), StepTimes::Duration::zero());
  EXPECT_GT(times.RowsWithin(milliseconds(1), 100), 0);
}

// The times of a machine whose steps cost 18 ms and 1.2 ms a row, disturbed by a fifth.
TEST(StepTimesTest, LearnsALineFromRandomTurns) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> noise(0.8, 1.2);
  StepTimes times;
  for (int i = 0; i < 5000; ++i) {
    const auto rows =
        static_cast<int64_t>(std::pow(2, std::uniform_real_distribution(0., 9.)(random)));
    times.Learn(rows, FromMilliseconds((18 + 1.2 * static_cast<double>(rows)) * noise(random)));
  }
  for (int64_t rows = 1; rows <= 512; ++rows) {
    const double right = 18 + 1.2 * static_cast<double>(rows);
    ASSERT_NEAR(Milliseconds(times.Of(rows)), right, right * 0.15) << rows;
    ASSERT_GE(times.Of(rows), times.Of(rows - 1)) << rows;
    ASSERT_GE(times.RowsWithin(times.Of(rows), 512), rows);
  }
  for (int target = 1; target < 700; ++target) {
    const int64_t rows = times.RowsWithin(milliseconds(target), 512);
    ASSERT_LE(times.Of(rows), milliseconds(target));
    if (rows < 512) {
      ASSERT_GT(times.Of(rows + 1), milliseconds(target));
    }
  }
}

}  // namespace
}  // namespace athanor
