#include "server/calls/call_owner.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Clock = CallOwner::Clock;
using Waiting = CallOwner::Waiting;

constexpr Clock::time_point kNever = Clock::time_point::max();

class CallOwnerTest : public testing::Test {
 protected:
  Timer timer_;
  PlanSlot slot_;
  const std::shared_ptr<CallOwner> owner_ = std::make_shared<CallOwner>(&timer_);
};

TEST_F(CallOwnerTest, WhoMakesItOwnsItUntilItWaits) {
  EXPECT_FALSE(owner_->Take());
  EXPECT_EQ(owner_->StartWaiting(kNever, [] {}), Waiting::kStarted);
  EXPECT_FALSE(owner_->owned());
  EXPECT_TRUE(owner_->Take());
  EXPECT_TRUE(owner_->owned());
  EXPECT_FALSE(owner_->Take());
}

TEST_F(CallOwnerTest, ACancellationTakesACallThatWaits) {
  ASSERT_EQ(owner_->StartWaiting(kNever, [] {}), Waiting::kStarted);
  EXPECT_TRUE(owner_->Cancel());
  EXPECT_TRUE(*owner_->cancelled());
  EXPECT_FALSE(owner_->Take());
}

TEST_F(CallOwnerTest, ACancellationWhileItIsOwnedIsSeenWhenItIsToWait) {
  EXPECT_FALSE(owner_->Cancel());
  EXPECT_EQ(owner_->StartWaiting(kNever, [] {}), Waiting::kCancelled);
  EXPECT_TRUE(owner_->owned());
}

TEST_F(CallOwnerTest, TheTimerTakesItAtItsLimit) {
  std::atomic<int> expired = 0;
  const auto limit = Clock::now() + std::chrono::milliseconds(20);
  // A slow machine may be past the limit already: then the caller has it.
  if (owner_->StartWaiting(limit, [&] { ++expired; }) == Waiting::kStarted) {
    while (expired == 0) std::this_thread::yield();
  }
  EXPECT_GE(Clock::now(), limit);
  EXPECT_TRUE(owner_->owned());
  EXPECT_FALSE(owner_->Cancel());
}

TEST_F(CallOwnerTest, ALimitThatIsOverEndsItOnce) {
  std::atomic<int> ends = 0;
  if (owner_->StartWaiting(Clock::now(), [&] { ++ends; }) == Waiting::kExpired) ++ends;
  while (ends == 0) std::this_thread::yield();
  EXPECT_TRUE(owner_->owned());
  owner_->StopTimer();
  EXPECT_EQ(ends, 1);
}

TEST_F(CallOwnerTest, APlanTakesIt) {
  ASSERT_EQ(owner_->StartWaiting(kNever, [] {}), Waiting::kStarted);
  std::vector<absl::Status> got;
  owner_->AwaitPlan(slot_, [&](const absl::Status& status) { got.push_back(status); });
  EXPECT_TRUE(got.empty());
  slot_.Set(std::make_shared<ServedPlan>());
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(got[0].ok());
  EXPECT_TRUE(owner_->owned());
}

TEST_F(CallOwnerTest, APlanThatIsThereTakesItAtOnce) {
  slot_.Set(std::make_shared<ServedPlan>());
  ASSERT_EQ(owner_->StartWaiting(kNever, [] {}), Waiting::kStarted);
  int got = 0;
  owner_->AwaitPlan(slot_, [&](const absl::Status&) { ++got; });
  EXPECT_EQ(got, 1);
}

TEST_F(CallOwnerTest, WhoTakesItLeavesTheSlot) {
  ASSERT_EQ(owner_->StartWaiting(kNever, [] {}), Waiting::kStarted);
  int got = 0;
  owner_->AwaitPlan(slot_, [&](const absl::Status&) { ++got; });
  ASSERT_TRUE(owner_->Cancel());
  owner_->LeavePlan(slot_);
  slot_.Set(std::make_shared<ServedPlan>());
  EXPECT_EQ(got, 0);
}

TEST_F(CallOwnerTest, APlanLeavesACallAloneThatWasTakenBeforeItCouldWait) {
  ASSERT_EQ(owner_->StartWaiting(kNever, [] {}), Waiting::kStarted);
  ASSERT_TRUE(owner_->Take());
  int got = 0;
  owner_->AwaitPlan(slot_, [&](const absl::Status&) { ++got; });
  slot_.Set(std::make_shared<ServedPlan>());
  EXPECT_EQ(got, 0);
}

// The plan, the timer and a cancellation at once: exactly one of them ends each call.
TEST_F(CallOwnerTest, OneOfManyEndsIt) {
  for (int round = 0; round < 200; ++round) {
    auto owner = std::make_shared<CallOwner>(&timer_);
    PlanSlot slot;
    std::atomic<int> ends = 0;
    std::atomic<bool> go = false;
    const auto wait = [&] {
      while (!go) std::this_thread::yield();
    };
    std::thread cancels([&] {
      wait();
      if (owner->Cancel()) ++ends;
    });
    std::thread publishes([&] {
      wait();
      slot.Set(std::make_shared<ServedPlan>());
    });
    go = true;
    const auto limit = Clock::now() + std::chrono::microseconds(50);
    if (owner->StartWaiting(limit, [&] { ++ends; }) == Waiting::kStarted) {
      owner->AwaitPlan(slot, [&](const absl::Status&) { ++ends; });
    } else {
      ++ends;
    }
    cancels.join();
    publishes.join();
    while (ends == 0) std::this_thread::yield();  // the timer may have just taken it
    owner->StopTimer();
    EXPECT_EQ(ends, 1);
    EXPECT_FALSE(owner->Take());
  }
}

}  // namespace
}  // namespace athanor
