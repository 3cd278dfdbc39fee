#include "server/tuner/measure/pacer.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Clock = PacerView::Clock;

// A clock that advances only on request, and requests at set times.
class FakeView final : public PacerView {
 public:
  TrafficState Traffic() override {
    TrafficState state;
    for (const auto& [begin, end] : requests) {
      if (now_ >= begin) ++state.started;
      if (now_ >= begin && now_ < end) ++state.running;
    }
    return state;
  }
  Clock::time_point Now() override { return Clock::time_point(now_); }
  void Sleep(Clock::duration duration) override {
    now_ += duration;
    slept += duration;
  }
  int64_t Preemptions() override { return preemptions; }

  // Returns a sample function whose calls take `each`.
  std::function<absl::Status(int64_t)> Calls(Clock::duration each) {
    return [this, each](int64_t calls) {
      begun.push_back(now_);
      if (preempted_samples-- > 0) ++preemptions;
      now_ += each * calls;
      busy += each * calls;
      return absl::OkStatus();
    };
  }

  // Adds a request of `length` every `period` for ten seconds, the first at `period`.
  void Every(Clock::duration period, Clock::duration length) {
    for (Clock::duration t = period; t < std::chrono::seconds(10); t += period) {
      requests.emplace_back(t, t + length);
    }
  }
  bool Idle(Clock::duration at) const {
    return std::none_of(requests.begin(), requests.end(), [&](const auto& request) {
      return at >= request.first && at < request.second;
    });
  }

  std::vector<std::pair<Clock::duration, Clock::duration>> requests;
  std::vector<Clock::duration> begun;  // begin times of samples
  Clock::duration slept{}, busy{};
  int64_t preemptions = 0;
  int preempted_samples = 0;

 private:
  Clock::duration now_{};
};

constexpr PacerOptions kAllCoresServe{.cores = 2, .threads = 2};
constexpr PacerOptions kOneCoreLeft{.cores = 2, .threads = 1};

TEST(PacerTest, WithoutTrafficEverySampleCounts) {
  FakeView view;
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 10;
  for (int i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(pacer.Sample(&calls, view.Calls(microseconds(30))).value(), 30e-6);
  }
  EXPECT_EQ(calls, 10);
  EXPECT_EQ(pacer.discarded(), 0);
  EXPECT_EQ(view.slept, Clock::duration::zero());
}

TEST(PacerTest, WaitsForTheEndOfARequest) {
  FakeView view;
  view.requests = {{milliseconds(0), milliseconds(7)}};
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 10;
  EXPECT_DOUBLE_EQ(pacer.Sample(&calls, view.Calls(microseconds(30))).value(), 30e-6);
  ASSERT_EQ(view.begun.size(), 1u);
  EXPECT_GE(view.begun[0], milliseconds(7));
  EXPECT_LT(view.begun[0], milliseconds(8));
}

TEST(PacerTest, NothingIsWaitedForOrMeasuredWhenTheTimeIsUp) {
  FakeView view;
  view.requests = {{milliseconds(0), milliseconds(7)}};
  PacerOptions options = kAllCoresServe;
  options.end = Clock::time_point(milliseconds(3));
  Pacer pacer(options, &view);
  int64_t calls = 10;
  const absl::Status waited = pacer.Sample(&calls, view.Calls(microseconds(30))).status();
  EXPECT_EQ(waited.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(waited.message()), HasSubstr("the search's time is up"));
  EXPECT_LT(view.slept, milliseconds(4));
  view.Sleep(milliseconds(10));  // no request runs any more
  EXPECT_FALSE(pacer.Sample(&calls, view.Calls(microseconds(30))).ok());
  EXPECT_TRUE(view.begun.empty());
}

TEST(PacerTest, AnOverlappedSampleIsDiscardedAndTakenAgainShorter) {
  FakeView view;
  // The request begins and ends within the first sample: only the count of started requests shows
  // it.
  view.requests = {{microseconds(100), microseconds(150)}};
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 10;
  EXPECT_DOUBLE_EQ(pacer.Sample(&calls, view.Calls(microseconds(30))).value(), 30e-6);
  EXPECT_EQ(pacer.discarded(), 1);
  EXPECT_EQ(view.begun.size(), 2u);
  EXPECT_EQ(calls, 5);
  // A fifth of the time at most: for 300 us lost, four times as much is slept.
  EXPECT_GE(view.slept, microseconds(1200));
}

TEST(PacerTest, ARequestThatGoesOnPastTheSampleDiscardsItToo) {
  FakeView view;
  view.requests = {{microseconds(100), milliseconds(3)}};
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 10;
  ASSERT_TRUE(pacer.Sample(&calls, view.Calls(microseconds(30))).ok());
  EXPECT_EQ(pacer.discarded(), 1);
  EXPECT_GE(view.begun[1], milliseconds(3));
}

TEST(PacerTest, SamplesShrinkUntilTheyFitTheGaps) {
  FakeView view;
  // Gaps of 200 us; 300 us of calls requested.
  view.Every(microseconds(500), microseconds(300));
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 10;
  for (int i = 0; i < 20; ++i) {
    auto seconds = pacer.Sample(&calls, view.Calls(microseconds(30)));
    ASSERT_TRUE(seconds.ok()) << seconds.status();
    EXPECT_DOUBLE_EQ(*seconds, 30e-6);
  }
  EXPECT_LE(calls, 6);
  EXPECT_GE(calls, 1);
  for (Clock::duration at : view.begun) EXPECT_TRUE(view.Idle(at)) << at.count();
}

TEST(PacerTest, WithoutGapsItSaysWhyAfterABoundedTime) {
  FakeView view;
  view.requests = {{milliseconds(0), std::chrono::hours(1)}};
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 10;
  auto seconds = pacer.Sample(&calls, view.Calls(microseconds(30)));
  EXPECT_EQ(seconds.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(seconds.status().message()), HasSubstr("no gaps to measure in for 2000"));
  EXPECT_TRUE(view.begun.empty());
  EXPECT_LE(view.slept, milliseconds(2001));
}

TEST(PacerTest, CallsLongerThanEveryGapTakeAShareAndGiveUp) {
  FakeView view;
  view.Every(milliseconds(10), milliseconds(4));
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 1;
  auto seconds = pacer.Sample(&calls, view.Calls(milliseconds(20)));
  EXPECT_EQ(seconds.status().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(seconds.status().message()), HasSubstr("samples were overlapped"));
  EXPECT_GT(pacer.discarded(), 5);
  const double all = std::chrono::duration<double>(view.slept + view.busy).count();
  EXPECT_LE(std::chrono::duration<double>(view.busy).count() / all, 0.22);
  EXPECT_EQ(calls, 1);
}

TEST(PacerTest, WaitsAddUpOverOneMeasurement) {
  FakeView view;
  for (int i = 0; i < 100; ++i) {
    view.requests.emplace_back(milliseconds(100 * i), milliseconds(100 * i + 99));
  }
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 1;
  int taken = 0;
  while (pacer.Sample(&calls, view.Calls(microseconds(900))).ok()) ++taken;
  EXPECT_GE(taken, 10);
  EXPECT_LE(taken, 30);
}

TEST(PacerTest, BesideAFreeCoreItNeedNotWait) {
  FakeView view;
  view.requests = {{milliseconds(0), std::chrono::hours(1)}};
  Pacer pacer(kOneCoreLeft, &view);
  int64_t calls = 10;
  ASSERT_TRUE(pacer.Sample(&calls, view.Calls(microseconds(30))).ok());
  EXPECT_EQ(view.slept, Clock::duration::zero());
}

TEST(PacerTest, TwoRequestsTakeTheFreeCore) {
  FakeView view;
  view.requests = {{milliseconds(0), std::chrono::hours(1)}, {milliseconds(0), milliseconds(9)}};
  Pacer pacer(kOneCoreLeft, &view);
  int64_t calls = 10;
  ASSERT_TRUE(pacer.Sample(&calls, view.Calls(microseconds(30))).ok());
  EXPECT_GE(view.begun[0], milliseconds(9));
}

TEST(PacerTest, ASampleThatLostItsCoreIsTakenAgainButNotForEver) {
  FakeView view;
  view.preempted_samples = 1;
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 10;
  ASSERT_TRUE(pacer.Sample(&calls, view.Calls(microseconds(30))).ok());
  EXPECT_EQ(view.begun.size(), 2u);
  view.preempted_samples = 1'000'000;
  view.begun.clear();
  ASSERT_TRUE(pacer.Sample(&calls, view.Calls(microseconds(30))).ok());
  EXPECT_EQ(view.begun.size(), 3u);
  EXPECT_EQ(pacer.discarded(), 0);
  EXPECT_EQ(calls, 10);
  view.begun.clear();
  ASSERT_TRUE(pacer.Sample(&calls, view.Calls(milliseconds(3))).ok());
  EXPECT_EQ(view.begun.size(), 1u) << "a time slice is little beside 30 ms";
}

TEST(PacerTest, AnErrorOfTheCallEndsIt) {
  FakeView view;
  Pacer pacer(kAllCoresServe, &view);
  int64_t calls = 1;
  auto seconds = pacer.Sample(&calls, [](int64_t) { return absl::InternalError("a kernel's"); });
  EXPECT_EQ(seconds.status(), absl::InternalError("a kernel's"));
}

TEST(PacerTest, YieldingEndsWithTheRequestOrWithTheShare) {
  FakeView view;
  view.requests = {{milliseconds(0), milliseconds(3)}, {milliseconds(10), std::chrono::hours(1)}};
  Pacer pacer(kAllCoresServe, &view);
  pacer.Yield(1e-3);
  EXPECT_GE(view.slept, milliseconds(3));
  EXPECT_LT(view.slept, milliseconds(4));
  view.Sleep(milliseconds(20));
  view.slept = {};
  pacer.Yield(1e-3);
  EXPECT_GE(view.slept, milliseconds(4));
  EXPECT_LT(view.slept, milliseconds(5));
}

}  // namespace
}  // namespace athanor
