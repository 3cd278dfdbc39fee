#include "server/search/machine_limits.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

internal::MachineReply Reached(double flops, double read = 1e9) {
  internal::MachineReply reply;
  reply.set_f32_flops_per_second(flops);
  reply.set_read_bytes_per_second(read);
  reply.set_cache_bytes_per_second(4e9);
  reply.set_near_bytes_per_second(9e9);
  return reply;
}

// Limits on a clock that stands still, and what the next measurement comes to.
class MachineLimitsTest : public ::testing::Test {
 protected:
  internal::MachineReply Get(MachineLimits::When when = MachineLimits::When::kDue) {
    const auto known = limits_.Get(
        [&] {
          ++measured_;
          return next_;
        },
        when);
    EXPECT_TRUE(known.ok()) << known.status();
    return known.value_or(internal::MachineReply());
  }

  MachineLimits::Clock::time_point now_{};
  MachineLimits limits_{[this] { return now_; }};
  absl::StatusOr<internal::MachineReply> next_ = Reached(100e9);
  int measured_ = 0;
};

TEST_F(MachineLimitsTest, EachLimitIsTheBestOfAll) {
  EXPECT_EQ(Get().f32_flops_per_second(), 100e9);
  now_ += seconds(2);
  next_ = Reached(200e9, 0.5e9);
  EXPECT_EQ(Get().f32_flops_per_second(), 200e9);
  EXPECT_EQ(Get().read_bytes_per_second(), 1e9);
  now_ += seconds(4);
  next_ = Reached(50e9, 2e9);
  EXPECT_EQ(Get().f32_flops_per_second(), 200e9);
  EXPECT_EQ(Get().read_bytes_per_second(), 2e9);
  EXPECT_EQ(measured_, 3);
}

TEST_F(MachineLimitsTest, IsMeasuredEverMoreSeldom) {
  // Measured after these seconds: the first after none.
  std::vector<int> after;
  const auto until = [&](int second) {
    for (; now_ < MachineLimits::Clock::time_point() + seconds(second); now_ += milliseconds(500)) {
      const int before = measured_;
      Get();
      if (measured_ > before)
        after.push_back(static_cast<int>(now_.time_since_epoch().count() / 1e9));
    }
  };
  until(60);
  EXPECT_EQ(after, (std::vector<int>{0, 2, 6, 14, 30}));
  next_ = Reached(200e9);
  after.clear();
  until(70);
  EXPECT_EQ(after, (std::vector<int>{62}));
}

TEST_F(MachineLimitsTest, WhatAnEarlierServerMeasuredServesForAMinute) {
  limits_.Recall(Reached(300e9));
  EXPECT_EQ(Get().f32_flops_per_second(), 300e9);
  now_ += seconds(59);
  EXPECT_EQ(Get().f32_flops_per_second(), 300e9);
  EXPECT_EQ(measured_, 0);
  // It is no more than a measurement: what is better is taken, and nothing is forgotten.
  now_ += seconds(1);
  next_ = Reached(200e9, 2e9);
  EXPECT_EQ(Get().f32_flops_per_second(), 300e9);
  EXPECT_EQ(Get().read_bytes_per_second(), 2e9);
  EXPECT_EQ(measured_, 1);
  limits_.Recall(Reached(900e9));
  EXPECT_EQ(Get().f32_flops_per_second(), 300e9);
}

TEST_F(MachineLimitsTest, FixedLimitsAreNotMeasured) {
  EXPECT_FALSE(limits_.known().has_value());
  limits_.Fix(Reached(300e9));
  EXPECT_EQ(limits_.known()->f32_flops_per_second(), 300e9);
  limits_.Recall(Reached(900e9));
  limits_.Beaten(2);
  now_ += seconds(1000);
  EXPECT_EQ(Get(MachineLimits::When::kNow).f32_flops_per_second(), 300e9);
  EXPECT_EQ(measured_, 0);
}

TEST_F(MachineLimitsTest, WhatDiffersByNoiseIsNoRise) {
  EXPECT_FALSE(Raised(Reached(100e9), Reached(101e9)));
  EXPECT_FALSE(Raised(Reached(100e9, 2e9), Reached(50e9, 1e9)));
  EXPECT_TRUE(Raised(Reached(100e9), Reached(103e9)));
  EXPECT_TRUE(Raised(Reached(100e9, 1e9), Reached(50e9, 2e9)));
  EXPECT_TRUE(Raised({}, Reached(1)));
}

TEST_F(MachineLimitsTest, NowDoesNotWait) {
  Get();
  next_ = Reached(200e9);
  EXPECT_EQ(Get().f32_flops_per_second(), 100e9);
  EXPECT_EQ(Get(MachineLimits::When::kNow).f32_flops_per_second(), 200e9);
}

TEST_F(MachineLimitsTest, ALimitThatWasBeatenIsMeasuredAgain) {
  Get();
  limits_.Beaten(1.01);  // noise
  Get();
  EXPECT_EQ(measured_, 1);
  limits_.Beaten(1.85);
  Get();
  EXPECT_EQ(measured_, 2);
  // Seen before, and to no avail: it is measured when it is due.
  limits_.Beaten(1.85);
  Get();
  EXPECT_EQ(measured_, 2);
  limits_.Beaten(2.5);
  next_ = Reached(200e9);
  EXPECT_EQ(Get().f32_flops_per_second(), 200e9);
  // By other limits another share.
  limits_.Beaten(1.2);
  Get();
  EXPECT_EQ(measured_, 4);
}

TEST_F(MachineLimitsTest, AFailureCostsNothingThatIsKnown) {
  next_ = absl::InternalError("lost");
  const auto measure = [&] { return next_; };
  EXPECT_EQ(limits_.Get(measure).status().code(), absl::StatusCode::kInternal);
  next_ = Reached(100e9);
  EXPECT_EQ(Get().f32_flops_per_second(), 100e9);
  next_ = absl::InternalError("lost");
  EXPECT_EQ(Get(MachineLimits::When::kNow).f32_flops_per_second(), 100e9);
}

TEST_F(MachineLimitsTest, OneMeasuresAtATime) {
  MachineLimits limits;
  std::atomic<int> inside{0}, most{0}, measured{0};
  const auto measure = [&]() -> absl::StatusOr<internal::MachineReply> {
    most = std::max<int>(most, ++inside);
    std::this_thread::sleep_for(milliseconds(2));
    --inside;
    return Reached(++measured * 1e9);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 8; ++i) {
        const auto known =
            limits.Get(measure, i % 2 == 0 ? MachineLimits::When::kNow : MachineLimits::When::kDue);
        EXPECT_TRUE(known.ok() && known->f32_flops_per_second() >= 1e9);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_GE(measured, 4 * 4);
}

// Whose own time is up does not wait for another's measurement.
TEST_F(MachineLimitsTest, AWaitHasAnEnd) {
  const auto measure = [&] {
    const auto waits = limits_.Get([&] { return next_; }, MachineLimits::When::kDue,
                                   MachineLimits::Clock::now() + milliseconds(1));
    EXPECT_EQ(waits.status().code(), absl::StatusCode::kAborted) << waits.status();
    return next_;
  };
  EXPECT_TRUE(limits_.Get(measure).ok());
}

}  // namespace
}  // namespace athanor
