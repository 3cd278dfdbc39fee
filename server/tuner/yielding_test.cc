#include "server/tuner/yielding.h"

#include <sys/resource.h>

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
  YieldingWork yielding_{&reader_};
};

// Of this thread.
int Nice() { return getpriority(PRIO_PROCESS, 0); }

TEST_F(YieldingTest, WithoutRequestsThePriorityStays) {
  int nice = -100;
  yielding_.Run([&] { nice = Nice(); });
  EXPECT_EQ(nice, Nice());
}

TEST_F(YieldingTest, ARequestSinceTheLastWorkLowersIt) {
  const int before = Nice();
  yielding_.Run([] {});
  {
    Traffic::Request request(traffic_.get());
  }
  int nice = -100;
  yielding_.Run([&] { nice = Nice(); });
  EXPECT_GT(nice, before);
  // And only for that work.
  EXPECT_EQ(Nice(), before);
  yielding_.Run([&] { nice = Nice(); });
  EXPECT_EQ(nice, before);
}

TEST_F(YieldingTest, ARequestThatRunsLowersIt) {
  Traffic::Request request(traffic_.get());
  int nice = -100;
  for (int i = 0; i < 2; ++i) {
    yielding_.Run([&] { nice = Nice(); });
    EXPECT_GT(nice, Nice());
  }
}

TEST_F(YieldingTest, ARequestDuringTheWorkLowersIt) {
  const int before = Nice();
  int at_first = -100, at_last = -100;
  yielding_.Run([&] {
    at_first = Nice();
    Traffic::Request request(traffic_.get());
    // As long as it takes: a test that waits for ever has failed.
    while ((at_last = Nice()) == before) std::this_thread::sleep_for(milliseconds(1));
  });
  EXPECT_EQ(at_first, before);
  EXPECT_GT(at_last, before);
}

}  // namespace
}  // namespace athanor
