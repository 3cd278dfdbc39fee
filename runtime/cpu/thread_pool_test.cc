#include "runtime/cpu/thread_pool.h"

#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

std::unique_ptr<ThreadPool> MakePool(int threads) {
  auto pool = ThreadPool::Create({.threads = threads});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

// Runs a loop and expects every item once. The counters are plain, so that a race or a missing
// happens-before edge shows under ThreadSanitizer.
void ExpectEachItemOnce(ThreadPool& pool, int64_t grid) {
  std::vector<int> counts(grid, 0);
  pool.ParallelFor(grid, [&](int thread, int64_t begin, int64_t end) {
    ASSERT_LE(0, thread);
    ASSERT_LT(thread, pool.threads());
    ASSERT_LT(begin, end);
    for (int64_t i = begin; i < end; ++i) ++counts[i];
  });
  EXPECT_THAT(counts, ::testing::Each(1)) << "grid " << grid;
}

TEST(ThreadPoolTest, CoversEveryGridOnce) {
  for (int threads : {1, 2, 3, 8, 20}) {
    auto pool = MakePool(threads);
    EXPECT_EQ(pool->threads(), threads);
    for (int64_t grid = 0; grid < 70; ++grid) ExpectEachItemOnce(*pool, grid);
    ExpectEachItemOnce(*pool, 10'007);
  }
}

TEST(ThreadPoolTest, WorkersTakePart) {
  auto pool = MakePool(2);
  std::atomic<int> inside{0};
  // Each body waits for the other: only two threads can finish this.
  pool->ParallelFor(2, [&](int, int64_t, int64_t) {
    ++inside;
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(ThreadPoolTest, ThreadsOwnTheirIndex) {
  auto pool = MakePool(4);
  std::vector<int> scratch(4 * 64, 0);  // not synchronised, a cache line per thread
  for (int round = 0; round < 500; ++round) {
    pool->ParallelFor(64, [&](int thread, int64_t begin, int64_t end) {
      scratch[thread * 64] += static_cast<int>(end - begin);
    });
  }
  EXPECT_EQ(scratch[0] + scratch[64] + scratch[128] + scratch[192], 500 * 64);
}

TEST(ThreadPoolTest, ManyCallersAtOnce) {
  for (int threads : {1, 2, 4}) {
    auto pool = MakePool(threads);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 8; ++caller) {
      callers.emplace_back([&, caller] {
        for (int i = 0; i < 200; ++i) {
          ExpectEachItemOnce(*pool, 1 + (caller * 31 + i) % 97);
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
  }
}

TEST(ThreadPoolTest, NestedLoopsFinish) {
  auto pool = MakePool(3);
  std::atomic<int> items{0};
  pool->ParallelFor(6, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pool->ParallelFor(5, [&](int, int64_t b, int64_t e) { items += static_cast<int>(e - b); });
    }
  });
  EXPECT_EQ(items.load(), 30);
}

TEST(ThreadPoolTest, WakesAfterSleep) {
  auto pool = MakePool(2);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> inside{0};
    pool->ParallelFor(2, [&](int, int64_t, int64_t) {
      ++inside;
      while (inside.load() < 2) std::this_thread::yield();
    });
  }
}

TEST(ThreadPoolTest, IdlePoolUsesNoCpu) {
  auto pool = MakePool(4);
  ExpectEachItemOnce(*pool, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto cpu_microseconds = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  const auto before = cpu_microseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_microseconds() - before, 15'000);
}

TEST(ThreadPoolTest, StartsAndStopsQuickly) {
  for (int i = 0; i < 100; ++i) {
    auto pool = MakePool(1 + i % 5);
    if (i % 2 == 0) ExpectEachItemOnce(*pool, 7);
  }
}

TEST(ThreadPoolTest, RefusesBadThreadCounts) {
  for (int threads : {-1, 0, ThreadPool::kMaxThreads + 1}) {
    const absl::Status status = ThreadPool::Create({.threads = threads}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(std::to_string(threads)));
  }
}

}  // namespace
}  // namespace athanor
