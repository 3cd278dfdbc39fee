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
        std::this_thread::yield();
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

// Returns how many turns began after a gap of at least `pause`, of turns of 1 ms without a gap in
// between, in a time of kBusy pauses and one more.
int Gaps(int searching, std::chrono::milliseconds pause) {
  const std::atomic<int> searches{searching};
  StepTurns turns(&searches, pause);
  int gaps = 0;
  const StepTurns::Clock::time_point begin = StepTurns::Clock::now();
  StepTurns::Clock::time_point end = begin;
  while (end - begin < (StepTurns::kBusy + 1) * pause + std::chrono::milliseconds(10)) {
    const StepTurns::Turn turn(turns);
    if (StepTurns::Clock::now() - end >= pause) ++gaps;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end = StepTurns::Clock::now();
  }
  return gaps;
}

TEST(StepTurns, BusyTurnsPauseForSearches) {
  EXPECT_GE(Gaps(1, std::chrono::milliseconds(20)), 1);
  // A pause that is longer than a busy machine makes one.
  EXPECT_EQ(Gaps(0, std::chrono::milliseconds(200)), 0);
}

// A plan that is measured takes as long as a turn.
TEST(StepTurns, PausesAreAsLongAsTurns) {
  const std::atomic<int> searches{1};
  StepTurns turns(&searches, std::chrono::milliseconds(1));
  StepTurns::Clock::time_point end;
  StepTurns::Clock::duration longest{};
  for (int i = 0; i < 30; ++i) {
    const StepTurns::Turn turn(turns);
    if (i > 0) longest = std::max(longest, StepTurns::Clock::now() - end);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    end = StepTurns::Clock::now();
  }
  EXPECT_GE(longest, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace athanor
