#include "server/access/use.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/base/retry_after.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const IdentityUse::Clock::time_point kStart = IdentityUse::Clock::now();

TEST(IdentityUseTest, NoQuotaIsNoLimit) {
  IdentityUse use;
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(use.BeginCall("a", {}, kStart).ok());
  EXPECT_EQ(use.calls(), 10'000);
  EXPECT_EQ(use.TakeUpload(1 << 30, {}, kStart), seconds(0));
}

TEST(IdentityUseTest, CallsAtOnce) {
  IdentityUse use;
  const Quotas quotas{.concurrent_calls = 2};
  EXPECT_TRUE(use.BeginCall("a", quotas, kStart).ok());
  EXPECT_TRUE(use.BeginCall("a", quotas, kStart).ok());
  const absl::Status third = use.BeginCall("a", quotas, kStart);
  EXPECT_TRUE(absl::IsResourceExhausted(third));
  EXPECT_GT(RetryAfter(third), milliseconds(0));
  EXPECT_EQ(use.calls(), 2) << "a refused call does not count";
  use.EndCall();
  EXPECT_TRUE(use.BeginCall("a", quotas, kStart).ok());
}

TEST(IdentityUseTest, CallsASecond) {
  IdentityUse use;
  const Quotas quotas{.calls_per_second = 10};
  int admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += use.BeginCall("a", quotas, kStart).ok() ? 1 : 0;
  EXPECT_EQ(admitted, 10) << "a second's calls may come at once";
  const absl::Status refused = use.BeginCall("a", quotas, kStart);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(RetryAfter(refused), milliseconds(100));
  // Whoever comes when told is admitted.
  EXPECT_TRUE(use.BeginCall("a", quotas, kStart + RetryAfter(refused)).ok());
  // Over ten seconds, ten a second.
  admitted = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    admitted += use.BeginCall("a", quotas, kStart + seconds(1) + milliseconds(ms)).ok() ? 1 : 0;
  }
  EXPECT_GE(admitted, 99);
  EXPECT_LE(admitted, 111);
}

TEST(IdentityUseTest, UploadsPause) {
  IdentityUse use;
  const Quotas quotas{.upload_rate = 1'000};
  EXPECT_EQ(use.TakeUpload(500, quotas, kStart), milliseconds(500));
  EXPECT_EQ(use.TakeUpload(500, quotas, kStart), seconds(1)) << "uploads share the rate";
  EXPECT_EQ(use.TakeUpload(0, quotas, kStart + seconds(5)), seconds(0));
  EXPECT_EQ(use.TakeUpload(int64_t{1} << 60, quotas, kStart), std::chrono::hours(1));
}

TEST(IdentityUseTest, ManyThreads) {
  IdentityUse use;
  const Quotas quotas{.concurrent_calls = 3};
  std::atomic<int64_t> most = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2'000; ++i) {
        if (!use.BeginCall("a", quotas, kStart).ok()) continue;
        const int64_t calls = use.calls();
        if (calls > most) most = calls;
        use.EndCall();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(use.calls(), 0);
  EXPECT_LE(most, 3);
  EXPECT_GT(most, 0);
}

}  // namespace
}  // namespace athanor
