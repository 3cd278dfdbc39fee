#include "server/base/log_limits.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const LogLimits::Clock::time_point kBegin(seconds(100));

TEST(LogLimitsTest, EachKeyHasItsLines) {
  LogLimits limits({.most = 2});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(limits.Pass("a", kBegin), 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(limits.Pass("a", kBegin), std::nullopt);
  EXPECT_EQ(limits.Pass("b", kBegin), 0) << "another's are no fewer";
  EXPECT_EQ(limits.Pass("a", kBegin + seconds(1)), 5);
  EXPECT_EQ(limits.Pass("a", kBegin + seconds(1)), 0);
}

TEST(LogLimitsTest, AllTogetherHaveAMost) {
  LogLimits limits({.most = 2, .most_together = 3});
  int passed = 0;
  for (int i = 0; i < 10; ++i) passed += limits.Pass(absl::StrCat(i), kBegin).has_value();
  EXPECT_EQ(passed, 3);
}

TEST(LogLimitsTest, CountsAreTold) {
  LogLimits limits({.most = 1});
  for (int i = 0; i < 4; ++i) limits.Pass("a", kBegin);
  limits.Pass("b", kBegin);
  EXPECT_THAT(limits.TakeHeldBack(kBegin + milliseconds(999)), IsEmpty()) << "the second goes on";
  EXPECT_THAT(limits.TakeHeldBack(kBegin + seconds(1)), UnorderedElementsAre(Pair("a", 3)));
  EXPECT_THAT(limits.TakeHeldBack(kBegin + seconds(2)), IsEmpty());
  EXPECT_EQ(limits.Pass("a", kBegin + seconds(2)), 0);
}

TEST(LogLimitsTest, CountsAreToldWhileOthersGoOn) {
  LogLimits limits({.most = 1});
  for (int i = 0; i < 4; ++i) limits.Pass("a", kBegin);
  limits.Pass("b", kBegin + seconds(1));
  limits.Pass("b", kBegin + seconds(1));
  EXPECT_THAT(limits.TakeHeldBack(kBegin + seconds(1)), UnorderedElementsAre(Pair("a", 3)));
  EXPECT_THAT(limits.TakeHeldBack(kBegin + seconds(2)), UnorderedElementsAre(Pair("b", 1)));
}

TEST(LogLimitsTest, CountsAreOfTheLoudestAndOfAllOthersTogether) {
  LogLimits limits({.most = 0, .most_keys = 100, .most_told = 2});
  for (int i = 0; i < 100; ++i) limits.Pass(absl::StrCat(i), kBegin);
  limits.Pass("7", kBegin);
  limits.Pass("50", kBegin);
  limits.Pass("50", kBegin);
  limits.Pass("beyond the keys", kBegin);
  EXPECT_THAT(limits.TakeHeldBack(kBegin + seconds(1)),
              ElementsAre(Pair("50", 3), Pair("7", 2), Pair("", 99)));
  EXPECT_THAT(limits.TakeHeldBack(kBegin + seconds(2)), IsEmpty());
}

TEST(LogLimitsTest, ManyKeysTakeBoundedMemory) {
  LogLimits limits({.most = 1, .most_together = 1'000'000, .most_keys = 4});
  for (int i = 0; i < 100; ++i) limits.Pass(absl::StrCat(i), kBegin);
  int64_t lines = 0;
  const auto held_back = limits.TakeHeldBack(kBegin + seconds(1));
  for (const auto& [key, count] : held_back) lines += count;
  EXPECT_LE(held_back.size(), 5u);
  EXPECT_EQ(lines, 95) << "4 keys and those that share one have had a line each";
}

TEST(LogLimitsTest, LosesNoneUnderThreads) {
  LogLimits limits({.most = 3, .most_together = 10});
  std::atomic<int64_t> passed = 0, told = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1'000; ++i) {
        const auto held = limits.Pass(absl::StrCat(i % 7), kBegin + milliseconds(10 * i));
        if (held.has_value()) {
          ++passed;
          told += *held;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [key, count] : limits.TakeHeldBack(kBegin + seconds(60))) told += count;
  EXPECT_EQ(passed + told, 4'000);
}

}  // namespace
}  // namespace athanor
