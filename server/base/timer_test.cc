#include "server/base/timer.h"

#include <atomic>
#include <chrono>
#include <future>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;

// Keeps the timer's thread busy until let go, however long this thread takes meanwhile.
class Held {
 public:
  explicit Held(Timer& timer) {
    timer.At(Timer::Clock::now(), [this] { let_go_.get_future().wait(); });
  }
  void LetGo() { let_go_.set_value(); }

 private:
  std::promise<void> let_go_;
};

TEST(TimerTest, RunsInOrderOfTime) {
  Timer timer;
  Held held(timer);
  std::vector<int> order;
  std::promise<void> done;
  const auto now = Timer::Clock::now();
  timer.At(now + milliseconds(20), [&] {
    order.push_back(2);
    done.set_value();
  });
  timer.At(now + milliseconds(5), [&] { order.push_back(1); });
  held.LetGo();
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(TimerTest, CancelledNeverRuns) {
  Timer timer;
  Held held(timer);
  std::atomic<bool> ran = false;
  const Timer::Id id = timer.At(Timer::Clock::now() + milliseconds(10), [&] { ran = true; });
  EXPECT_TRUE(timer.Cancel(id));
  EXPECT_FALSE(timer.Cancel(id));
  std::promise<void> later;
  timer.At(Timer::Clock::now() + milliseconds(20), [&] { later.set_value(); });
  held.LetGo();
  later.get_future().wait();
  EXPECT_FALSE(ran);
}

TEST(TimerTest, DestructionDropsWhatIsPending) {
  std::atomic<bool> ran = false;
  {
    Timer timer;
    timer.At(Timer::Clock::now() + std::chrono::hours(1), [&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace athanor
