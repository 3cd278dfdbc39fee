#include "server/generate/outbox.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

GenerateEvent Text(const std::string& text) { return {.text = text}; }

class OutboxTest : public ::testing::Test {
 protected:
  int filled_ = 0, drained_ = 0;
  Outbox outbox_{2, [this] { ++filled_; }, [this] { ++drained_; }};
};

TEST_F(OutboxTest, TellsOnceThatThereIsSomethingToTake) {
  EXPECT_TRUE(outbox_.Take().events.empty());
  EXPECT_TRUE(outbox_.Put(Text("a")));
  EXPECT_EQ(filled_, 1);
  EXPECT_FALSE(outbox_.full());
  EXPECT_FALSE(outbox_.Put(Text("b"))) << "full";
  EXPECT_TRUE(outbox_.full());
  EXPECT_EQ(filled_, 1);
  const Outbox::Content content = outbox_.Take();
  ASSERT_EQ(content.events.size(), 2u);
  EXPECT_EQ(content.events[1].text, "b");
  EXPECT_EQ(content.end, std::nullopt);
  EXPECT_EQ(drained_, 1);
  EXPECT_FALSE(outbox_.full());
  EXPECT_TRUE(outbox_.Put(Text("c")));
  EXPECT_EQ(filled_, 2);
  outbox_.Take();
  EXPECT_EQ(drained_, 1) << "it was not full";
}

TEST_F(OutboxTest, TheFirstStatusComesWithWhatIsLeft) {
  EXPECT_TRUE(outbox_.Put(Text("a")));
  outbox_.Close(absl::OkStatus());
  outbox_.Close(absl::CancelledError("late"));
  EXPECT_EQ(filled_, 1);
  const Outbox::Content content = outbox_.Take();
  EXPECT_EQ(content.events.size(), 1u);
  EXPECT_EQ(content.end, absl::OkStatus());
}

TEST_F(OutboxTest, AStatusAloneIsToldToo) {
  outbox_.Close(absl::InternalError("x"));
  EXPECT_EQ(filled_, 1);
  EXPECT_EQ(outbox_.Take().end, absl::InternalError("x"));
}

TEST_F(OutboxTest, WhatNobodyTakesIsDropped) {
  EXPECT_TRUE(outbox_.Put(Text("a")));
  outbox_.Abandon();
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(outbox_.Put(Text("b")));
  outbox_.Close(absl::OkStatus());
  EXPECT_EQ(filled_, 1);
  EXPECT_TRUE(outbox_.Take().events.empty());
}

// Two threads that wait for the callbacks: none is lost, nor any event.
TEST(OutboxThreadsTest, EachEventIsTakenOnceInOrder) {
  constexpr int kEvents = 20'000;
  std::atomic<int> filled = 0, drained = 0;
  Outbox outbox(
      3,
      [&] {
        ++filled;
        filled.notify_one();
      },
      [&] {
        ++drained;
        drained.notify_one();
      });
  std::thread engine([&] {
    for (int i = 0; i < kEvents; ++i) {
      const int before = drained;
      if (!outbox.Put(Text(std::to_string(i)))) drained.wait(before);
    }
    outbox.Close(absl::OkStatus());
  });
  int taken = 0, told = 0;
  while (true) {
    filled.wait(told);
    told = filled;
    const Outbox::Content content = outbox.Take();
    EXPECT_LE(content.events.size(), 3u);
    for (const GenerateEvent& event : content.events)
      EXPECT_EQ(event.text, std::to_string(taken++));
    if (content.end.has_value()) break;
  }
  engine.join();
  EXPECT_EQ(taken, kEvents);
}

}  // namespace
}  // namespace athanor
