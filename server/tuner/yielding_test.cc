#include "server/tuner/yielding.h"

#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

class YieldingTest : public ::testing::Test {
 protected:
  std::unique_ptr<Traffic> traffic_ = Traffic::Create().value();
  TrafficReader reader_ = TrafficReader::Open(traffic_->fd()).value();
  YieldingWork yielding_{&reader_, /*recent=*/milliseconds(0)};
};

TEST_F(YieldingTest, WithoutRequestsThePriorityStays) {
  int policy = -1;
  yielding_.Run([&] { policy = sched_getscheduler(0); });
  EXPECT_EQ(policy, SCHED_OTHER);
}

TEST_F(YieldingTest, ARequestSinceTheLastWorkLowersIt) {
  yielding_.Run([] {});
  {
    Traffic::Request request(traffic_.get());
  }
  int policy = -1;
  yielding_.Run([&] { policy = sched_getscheduler(0); });
  EXPECT_EQ(policy, SCHED_IDLE);
  // And only for that work.
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  yielding_.Run([&] { policy = sched_getscheduler(0); });
  EXPECT_EQ(policy, SCHED_OTHER);
}

TEST_F(YieldingTest, ThePriorityStaysLowBetweenRequestsThatComeNowAndThen) {
  YieldingWork patient(&reader_, std::chrono::hours(1));
  {
    Traffic::Request request(traffic_.get());
  }
  for (int i = 0; i < 3; ++i) {
    int policy = -1;
    patient.Run([&] { policy = sched_getscheduler(0); });
    EXPECT_EQ(policy, SCHED_IDLE);
  }
}

TEST_F(YieldingTest, ARequestThatRunsLowersIt) {
  Traffic::Request request(traffic_.get());
  int policy = -1;
  for (int i = 0; i < 2; ++i) {
    yielding_.Run([&] { policy = sched_getscheduler(0); });
    EXPECT_EQ(policy, SCHED_IDLE);
  }
}

TEST_F(YieldingTest, ARequestDuringTheWorkLowersIt) {
  int at_first = -1, at_last = -1;
  yielding_.Run([&] {
    at_first = sched_getscheduler(0);
    Traffic::Request request(traffic_.get());
    // As long as it takes: a test that waits for ever has failed.
    while ((at_last = sched_getscheduler(0)) == SCHED_OTHER) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  EXPECT_EQ(at_first, SCHED_OTHER);
  EXPECT_EQ(at_last, SCHED_IDLE);
}

TEST_F(YieldingTest, StarvedWorkMakesTheNextNiceInstead) {
  Traffic::Request request(traffic_.get());
  // All of it on one core, beside a thread that never lets go of it.
  cpu_set_t allowed, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int core = 0;
  while (!CPU_ISSET(core, &allowed)) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  std::atomic<bool> stop = false;
  std::thread other([&] {
    sched_setaffinity(0, sizeof(one), &one);
    while (!stop) {
    }
  });
  const auto start = std::chrono::steady_clock::now();
  yielding_.Run([&] {
    sched_setaffinity(0, sizeof(one), &one);
    // It may be let out, where this process has the right to; else three seconds suffice.
    while (sched_getscheduler(0) == SCHED_IDLE &&
           std::chrono::steady_clock::now() - start < milliseconds(3000)) {
    }
  });
  stop = true;
  other.join();
  int policy = -1, nice = 0;
  yielding_.Run([&] {
    policy = sched_getscheduler(0);
    nice = getpriority(PRIO_PROCESS, 0);
  });
  EXPECT_EQ(policy, SCHED_OTHER);
  EXPECT_GT(nice, getpriority(PRIO_PROCESS, 0));
}

}  // namespace
}  // namespace athanor
