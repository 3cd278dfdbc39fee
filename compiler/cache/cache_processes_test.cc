// Tests of several processes on one cache file, and of processes that are killed while they write.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_testing.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr std::chrono::seconds kLong{60};
constexpr int kKeys = 24;

class CacheProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    path_ = folder_ + "/cache.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_, path_;
};

std::unique_ptr<Cache> OpenQuiet(const std::string& path, int* reports) {
  return Cache::Open({.path = path}, [reports](absl::string_view) { ++*reports; });
}

PlanRow PlanOf(int i, int thread) {
  PlanRow row = TestPlan(absl::StrCat("p-", i, "-", thread), i);
  row.incumbent = thread == 0;
  return row;
}

// Puts rows of several tiers and finds them again. Returns false if one was not as it was put.
bool WriteAndRead(Cache& cache, int thread, int rounds) {
  for (int round = 0; round != rounds; ++round) {
    for (int n = 0; n < kKeys; ++n) {
      const int i = (n + 5 * thread) % kKeys;
      cache.kernels().Put(TestKernelKey(i), TestObject(i));
      cache.plans().Put(TestPlanKey(i), PlanOf(i, thread));
      cache.timings().Put(TestTimingKey(i), {{1.0 + i}, {0.5}, {2}, 3, true});
      cache.checks().Put(TestKernelKey(i).Hash());
      if (cache.kernels().Find(TestKernelKey(i)) != TestObject(i)) return false;
      const std::optional<PlanRow> plan = cache.plans().Find(TestPlanKey(i));
      if (!plan || plan->stored.kernel_keys(0) != TestKernelKey(i).Hash()) return false;
      const std::optional<TimingRow> timing = cache.timings().Find(TestTimingKey(i));
      if (!timing || timing->seconds != std::vector<double>{1.0 + i}) return false;
      if (!cache.checks().Has(TestKernelKey(i).Hash())) return false;
    }
    if (!cache.Flush(kLong).ok()) return false;
  }
  return true;
}

// Runs in a child process. Returns 0 if all rows were as they were put, and in the file at the end.
int RunThreads(const std::string& path, int rounds) {
  int reports = 0;
  std::atomic<bool> right = true;
  {
    auto cache = OpenQuiet(path, &reports);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&cache, &right, t, rounds] {
        if (!WriteAndRead(*cache, t, rounds)) right = false;
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (!cache->Flush(kLong).ok() || cache->Stat().writes_dropped() != 0) return 3;
  }
  return right ? reports : 2;
}

TEST_F(CacheProcessesTest, TwoProcessesOfEightThreadsShareAFile) {
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t pid = fork();
    if (pid == 0) _exit(RunThreads(path_, 6));
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  int reports = 0;
  auto cache = OpenQuiet(path_, &reports);
  for (int i = 0; i < kKeys; ++i) {
    EXPECT_EQ(cache->kernels().Find(TestKernelKey(i)), TestObject(i));
    EXPECT_EQ(cache->plans().All(TestPlanKey(i)).size(), 8u);
    EXPECT_EQ(cache->plans().Find(TestPlanKey(i))->stored.plan().plan_id(),
              absl::StrCat("p-", i, "-0"));
  }
  const v1::CacheVerification found = cache->maintenance().Verify(false).value();
  EXPECT_EQ(found.bad_size(), 0) << found.DebugString();
  EXPECT_EQ(found.rows(), kKeys * (1 + 8 + 1 + 1));
  EXPECT_EQ(found.database(), "ok");
  EXPECT_EQ(reports, 0);
}

TEST_F(CacheProcessesTest, ThreadsShareACache) { EXPECT_EQ(RunThreads(path_, 2), 0); }

// A write of another process is noticed without reading the row.
TEST_F(CacheProcessesTest, AnotherProcessesRowsChangeTheDataVersion) {
  int reports = 0;
  auto cache = OpenQuiet(path_, &reports);
  const int64_t before = cache->data_version();
  EXPECT_EQ(cache->data_version(), before);
  {
    auto other = OpenQuiet(path_, &reports);
    other->kernels().Put(TestKernelKey(1), TestObject(1));
  }
  EXPECT_NE(cache->data_version(), before);
  EXPECT_EQ(cache->kernels().Find(TestKernelKey(1)), TestObject(1));
}

TEST_F(CacheProcessesTest, KilledAtTwoHundredPointsWhileWriting) {
  int reports = 0;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const pid_t pid = fork();
    if (pid == 0) {
      auto cache = OpenQuiet(path_, &reports);
      _exit(WriteAndRead(*cache, round % 8, -1) ? 0 : 7);
    }
    usleep(1000 + 211 * round);
    kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    auto cache = OpenQuiet(path_, &reports);
    const absl::StatusOr<v1::CacheVerification> found = cache->maintenance().Verify(false);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->bad_size(), 0) << found->DebugString();
    EXPECT_EQ(found->database(), "ok");
    // Rows that were in the file before the kill are still there.
    if (round > 0) {
      EXPECT_EQ(cache->kernels().Find(TestKernelKey(1000 + round - 1)), TestObject(round - 1));
    }
    cache->kernels().Put(TestKernelKey(1000 + round), TestObject(round));
    ASSERT_TRUE(cache->Flush(kLong).ok());
  }
  EXPECT_EQ(reports, 0);
}

}  // namespace
}  // namespace athanor
