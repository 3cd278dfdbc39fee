#include "server/generate/step_turns.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

TEST(StepTurns, OneAtATime) {
  StepTurns turns;
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
  StepTurns turns;
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
int Gaps(std::chrono::milliseconds busy, std::chrono::milliseconds pause, int turns_wanted) {
  StepTurns turns(busy, pause);
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
  EXPECT_GE(Gaps(std::chrono::milliseconds(10), std::chrono::milliseconds(20), 40), 2);
  // A gap that is longer than any test: none is made for a time as long.
  EXPECT_EQ(Gaps(std::chrono::hours(1), std::chrono::minutes(1), 40), 0);
}

}  // namespace
}  // namespace athanor
