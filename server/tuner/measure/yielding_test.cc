#include "server/tuner/measure/yielding.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/cpu/cpus.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

class YieldingTest : public ::testing::Test {
 protected:
  std::unique_ptr<Traffic> traffic_ = Traffic::Create().value();
  TrafficReader reader_ = TrafficReader::Open(traffic_->fd()).value();
  YieldingWork yielding_{&reader_, UsableCpus(), /*recent=*/milliseconds(0)};
};

TEST_F(YieldingTest, WithoutRequestsThePriorityStays) {
  int policy = -1;
  yielding_.Run(1, [&] { policy = sched_getscheduler(0); });
  EXPECT_EQ(policy, SCHED_OTHER);
}

TEST_F(YieldingTest, ARequestSinceTheLastWorkLowersIt) {
  yielding_.Run(1, [] {});
  {
    Traffic::Request request(traffic_.get());
  }
  int policy = -1;
  yielding_.Run(1, [&] { policy = sched_getscheduler(0); });
  EXPECT_EQ(policy, SCHED_IDLE);
  // The priority applies to that work only.
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  yielding_.Run(1, [&] { policy = sched_getscheduler(0); });
  EXPECT_EQ(policy, SCHED_OTHER);
}

TEST_F(YieldingTest, ThePriorityStaysLowBetweenRequestsThatComeNowAndThen) {
  YieldingWork patient(&reader_, UsableCpus(), std::chrono::hours(1));
  {
    Traffic::Request request(traffic_.get());
  }
  for (int i = 0; i < 3; ++i) {
    int policy = -1;
    patient.Run(1, [&] { policy = sched_getscheduler(0); });
    EXPECT_EQ(policy, SCHED_IDLE);
  }
}

TEST_F(YieldingTest, ARequestThatRunsLowersIt) {
  Traffic::Request request(traffic_.get());
  int policy = -1;
  for (int i = 0; i < 2; ++i) {
    yielding_.Run(1, [&] { policy = sched_getscheduler(0); });
    EXPECT_EQ(policy, SCHED_IDLE);
  }
}

TEST_F(YieldingTest, ARequestDuringTheWorkLowersIt) {
  int at_first = -1, at_last = -1;
  yielding_.Run(1, [&] {
    at_first = sched_getscheduler(0);
    Traffic::Request request(traffic_.get());
    // Waits; if this never ends, the test fails by its time limit.
    while ((at_last = sched_getscheduler(0)) == SCHED_OTHER) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_EQ(at_first, SCHED_OTHER);
  EXPECT_EQ(at_last, SCHED_IDLE);
}

TEST_F(YieldingTest, WorkKeepsToAsManyCpusAsItHasThreadsAndOnlyBesideRequests) {
  const std::vector<int> all = UsableCpus();
  std::vector<int> reversed(all.rbegin(), all.rend());
  YieldingWork yielding(&reader_, reversed, milliseconds(0));
  std::vector<int> cpus;
  yielding.Run(1, [&] { cpus = UsableCpus(); });
  EXPECT_EQ(cpus, all);
  Traffic::Request request(traffic_.get());
  for (int threads = 1; threads <= static_cast<int>(all.size()) + 1; ++threads) {
    yielding.Run(threads, [&] { cpus = UsableCpus(); });
    const int few = std::min<int>(threads, all.size());
    EXPECT_EQ(cpus, std::vector<int>(all.end() - few, all.end())) << threads;
  }
  EXPECT_EQ(UsableCpus(), all);
}

TEST_F(YieldingTest, StarvedWorkMakesTheNextNiceInstead) {
  Traffic::Request request(traffic_.get());
  // Competes with a thread that never releases the CPU that the work keeps to.
  std::atomic<bool> stop = false;
  std::thread other([&] {
    UseCpus({UsableCpus().front()});
    while (!stop) {
    }
  });
  const auto start = std::chrono::steady_clock::now();
  yielding_.Run(1, [&] {
    // Ends early if this process may raise the work's priority; otherwise three seconds suffice.
    while (sched_getscheduler(0) == SCHED_IDLE &&
           std::chrono::steady_clock::now() - start < milliseconds(3000)) {
    }
  });
  stop = true;
  other.join();
  int policy = -1, nice = 0;
  std::vector<int> cpus;
  yielding_.Run(1, [&] {
    policy = sched_getscheduler(0);
    nice = getpriority(PRIO_PROCESS, 0);
    cpus = UsableCpus();
  });
  EXPECT_EQ(cpus, UsableCpus());
  EXPECT_EQ(policy, SCHED_OTHER);
  EXPECT_GT(nice, getpriority(PRIO_PROCESS, 0));
}

}  // namespace
}  // namespace athanor
