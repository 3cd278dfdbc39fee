#include "server/batch/refusal_pace.h"

#include <chrono>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using Clock = RefusalPace::Clock;
using std::chrono::milliseconds;

constexpr int64_t kMostHeld = 200;
const Clock::time_point kNow = Clock::time_point(std::chrono::hours(1));

TEST(RefusalPaceTest, AnswersAFewAtOnceAndTheRestAtTheRate) {
  RefusalPace pace(100, kMostHeld);  // 10 refusals per 100 ms
  for (int i = 0; i <= 10; ++i) EXPECT_EQ(pace.Hold("a", kNow), std::nullopt) << i;
  for (int i = 1; i <= 50; ++i) EXPECT_EQ(pace.Hold("a", kNow), kNow + i * milliseconds(10));
  EXPECT_EQ(pace.Hold("a", kNow), kNow + milliseconds(500)) << "held no longer";
  EXPECT_EQ(pace.held(), 51);
  EXPECT_EQ(pace.Hold("b", kNow), std::nullopt) << "of another client";
}

TEST(RefusalPaceTest, AClientThatKeepsTheRateIsNeverHeld) {
  RefusalPace pace(100, kMostHeld);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(pace.Hold("a", kNow + i * milliseconds(10)), std::nullopt) << i;
  }
}

TEST(RefusalPaceTest, AClientThatPausedIsAsNew) {
  RefusalPace pace(100, kMostHeld);
  for (int i = 0; i < 100; ++i) pace.Hold("a", kNow);
  EXPECT_NE(pace.Hold("a", kNow + milliseconds(400)), std::nullopt);
  EXPECT_EQ(pace.Hold("a", kNow + milliseconds(1100)), std::nullopt);
}

TEST(RefusalPaceTest, HoldsABoundedNumberInAll) {
  RefusalPace pace(1, kMostHeld);
  for (int i = 0; i < 2000; ++i) pace.Hold(absl::StrCat("client ", i % 100), kNow);
  EXPECT_EQ(pace.held(), kMostHeld);
  EXPECT_EQ(pace.Hold("client 0", kNow), std::nullopt);
  pace.Answered();
  EXPECT_EQ(pace.Hold("client 0", kNow), kNow + milliseconds(500));
}

TEST(RefusalPaceTest, RemembersABoundedNumberOfClients) {
  RefusalPace pace(1, kMostHeld);
  for (int i = 0; i < RefusalPace::kMostClients; ++i) pace.Hold(absl::StrCat(i), kNow);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pace.Hold("late", kNow), std::nullopt) << "no room";
  const Clock::time_point later = kNow + std::chrono::seconds(2);
  EXPECT_EQ(pace.Hold("late", later), std::nullopt);
  EXPECT_NE(pace.Hold("late", later), std::nullopt) << "room again";
}

TEST(RefusalPaceTest, KnownClientsAreHeldThoughThereIsNoRoomForOthers) {
  RefusalPace pace(1, kMostHeld);
  for (int i = 0; i < RefusalPace::kMostClients; ++i) pace.Hold(absl::StrCat(i), kNow);
  EXPECT_NE(pace.Hold("0", kNow), std::nullopt);
}

TEST(RefusalPaceTest, HoldsNothingWithoutARate) {
  RefusalPace pace(0, kMostHeld);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(pace.Hold("a", kNow), std::nullopt);
}

}  // namespace
}  // namespace athanor
