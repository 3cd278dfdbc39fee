#include "server/memory/server_ledger.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;

TEST(ServerLedgerTest, RefusesAboveTheLimitWithTheNumbers) {
  ServerLedger ledger(100);
  auto first = ledger.Reserve(HeldKind::kParameters, 70, "model a");
  ASSERT_TRUE(first.ok());
  auto second = ledger.Reserve(HeldKind::kArenas, 31, "model b");
  ASSERT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(second.status().message());
  EXPECT_THAT(message, HasSubstr("model b: needs 31 bytes for arenas"));
  EXPECT_THAT(message, HasSubstr("70 of the limit of 100"));
  EXPECT_THAT(message, HasSubstr("parameters 70"));
  EXPECT_TRUE(ledger.Reserve(HeldKind::kArenas, 30, "model b").ok());
}

TEST(ServerLedgerTest, GivesBackOnDestructionAndOnAssignment) {
  ServerLedger ledger(100);
  {
    ServerLedger::Reservation r = ledger.Reserve(HeldKind::kUploads, 60, "x").value();
    ServerLedger::Reservation moved = std::move(r);
    EXPECT_EQ(ledger.used(HeldKind::kUploads), 60);
    {
      ServerLedger::Reservation sink;
      sink = std::move(moved);
    }
    EXPECT_EQ(ledger.used(), 0);
  }
  EXPECT_EQ(ledger.used(), 0);
}

TEST(ServerLedgerTest, TellsOfWhatItRefuses) {
  std::vector<int64_t> refused;
  ServerLedger ledger(100, nullptr, [&](HeldKind, int64_t bytes) { refused.push_back(bytes); });
  auto held = ledger.Reserve(HeldKind::kRequests, 100, "a");
  EXPECT_FALSE(ledger.Reserve(HeldKind::kRequests, 7, "b").ok());
  EXPECT_FALSE(ledger.Reserve(MemoryKind::kArena, INT64_MAX).ok());
  EXPECT_THAT(refused, ::testing::ElementsAre(7, INT64_MAX));
}

// Memory of requests comes back with their answers, that of models with an administrator's word.
TEST(ServerLedgerTest, SaysWhenToComeAgain) {
  ServerLedger ledger(100);
  const auto refusal = [&](HeldKind kind, int64_t bytes) {
    return RetryAfter(ledger.Reserve(kind, bytes, "a").status());
  };
  auto model = ledger.Reserve(HeldKind::kParameters, 40, "m");
  {
    auto request = ledger.Reserve(HeldKind::kRequests, 60, "r");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  auto request = ledger.Reserve(HeldKind::kRequests, 60, "r");
  EXPECT_GE(refusal(HeldKind::kRequests, 60), std::chrono::milliseconds(20));
  EXPECT_GE(refusal(HeldKind::kArenas, 1), std::chrono::milliseconds(20));
  EXPECT_EQ(refusal(HeldKind::kRequests, 61).count(), 0) << "the model leaves it no room";
  EXPECT_EQ(refusal(HeldKind::kParameters, 1).count(), 0);
}

TEST(ServerLedgerTest, HugeRequestsDoNotOverflow) {
  ServerLedger ledger(100);
  auto held = ledger.Reserve(HeldKind::kRequests, 100, "a");
  EXPECT_FALSE(ledger.Reserve(HeldKind::kRequests, INT64_MAX, "b").ok());
}

TEST(ServerLedgerTest, SaysWhatModelsAndUploadsLeave) {
  int64_t freed = 0;
  ServerLedger ledger(1000, [&](int64_t bytes) { freed += bytes; });
  {
    auto parameters = ledger.Reserve(HeldKind::kParameters, 10, "a");
    auto upload = ledger.Reserve(HeldKind::kUploads, 20, "a");
    auto request = ledger.Reserve(HeldKind::kRequests, 400, "a");
    auto refused = ledger.Reserve(HeldKind::kUploads, 900, "b");
    EXPECT_FALSE(refused.ok());
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 30);
  ASSERT_TRUE(ledger.Reserve(MemoryKind::kPrepared, 40).ok());
  ASSERT_TRUE(ledger.Reserve(MemoryKind::kArena, 500).ok());
  ledger.Release(MemoryKind::kPrepared, 40);
  ledger.Release(MemoryKind::kArena, 500);
  EXPECT_EQ(freed, 70);
  ASSERT_TRUE(ledger.Reserve(MemoryKind::kWeights, 50).ok());
  EXPECT_EQ(ledger.used(HeldKind::kParameters), 50);
  ledger.Release(MemoryKind::kWeights, 50);
  EXPECT_EQ(freed, 120);
  ASSERT_TRUE(ledger.Reserve(MemoryKind::kStates, 60).ok());
  ledger.Release(MemoryKind::kStates, 60);
  EXPECT_EQ(freed, 180);
}

TEST(ServerLedgerTest, ManyThreadsNeverExceedTheLimit) {
  ServerLedger ledger(10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        auto r = ledger.Reserve(HeldKind::kRequests, 3, "t");
        EXPECT_LE(ledger.used(), 10);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(ledger.used(), 0);
}

}  // namespace
}  // namespace athanor
