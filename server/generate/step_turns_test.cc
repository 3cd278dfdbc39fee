#include "server/generate/step_turns.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(StepTurns, OneAtATime) {
  const std::atomic<int> searches{1};
  StepTurns turns(&searches);
  std::atomic<int> inside{0};
  int64_t steps = 0;  // guarded by the turn
  std::vector<std::thread> engines;
  for (int e = 0; e < 4; ++e) {
    engines.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const StepTurns::Turn turn(turns);
        EXPECT_EQ(inside.fetch_add(1), 0);
        ++steps;
        inside.fetch_sub(1);
      }
    });
  }
  for (std::thread& engine : engines) engine.join();
  EXPECT_EQ(steps, 800);
}

// Those who ask while a turn lasts go in the order in which they asked.
TEST(StepTurns, FirstComeFirstServed) {
  const std::atomic<int> searches{0};
  StepTurns turns(&searches);
  std::vector<int> order;  // guarded by the turn
  std::vector<std::thread> engines;
  {
    const StepTurns::Turn turn(turns);
    for (int e = 0; e < 3; ++e) {
      engines.emplace_back([&, e] {
        const StepTurns::Turn own(turns);
        order.push_back(e);
      });
      while (turns.asked() < e + 2) std::this_thread::yield();
    }
  }
  for (std::thread& engine : engines) engine.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

// Returns how many turns began after a gap of at least `pause`, of turns without a gap in between.
int Gaps(int searching, std::chrono::milliseconds busy, std::chrono::milliseconds pause,
         int turns_wanted) {
  const std::atomic<int> searches{searching};
  StepTurns turns(&searches, busy, pause);
  int gaps = 0;
  StepTurns::Clock::time_point end{};
  for (int i = 0; i < turns_wanted; ++i) {
    const StepTurns::Turn turn(turns);
    const StepTurns::Clock::time_point now = StepTurns::Clock::now();
    if (i > 0 && now - end >= pause) ++gaps;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end = StepTurns::Clock::now();
  }
  return gaps;
}

TEST(StepTurns, BusyTurnsLeaveGaps) {
  const std::chrono::milliseconds busy(10), pause(20);
  EXPECT_GE(Gaps(1, busy, pause, 40), 2);
  // Gaps that are longer than any test takes by itself: none is made without a search, nor before
  // turns were busy.
  const std::chrono::minutes long_pause(1);
  EXPECT_EQ(Gaps(0, busy, long_pause, 40), 0);
  EXPECT_EQ(Gaps(1, std::chrono::hours(1), long_pause, 40), 0);
}

}  // namespace
}  // namespace athanor
