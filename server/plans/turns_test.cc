#include "server/plans/turns.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Kind = Turns::Kind;
using Clock = TurnOrder::Clock;

constexpr Clock::time_point kNoDeadline = Clock::time_point::max();

void AwaitWaiting(const Turns& turns, int64_t count) {
  while (turns.waiting() < count) std::this_thread::yield();
}

// Engines and runners take turns for as long as each has any; steps never meet, and beside them
// run no more than may.
void TakeTurnsAtOnce(int threads, const Searches& searches) {
  Turns turns(threads, &searches);
  std::atomic<int> steps{0}, runs{0}, wrong{0};
  const auto take = [&](const Turns::Turn& turn, std::atomic<int>& own) {
    for (int i = 0; i < 100; ++i) {
      // Some runs ask without waiting first, as gRPC's threads do.
      Turns::Lease lease;
      if (turn.kind == Kind::kRun && i % 2 == 0) lease = turns.TryRun();
      if (!lease) lease = turns.Begin(turn, kNoDeadline).value();
      ++own;
      std::this_thread::yield();
      const int most_runs = threads == 1 ? 0 : threads / 2;
      if (turn.kind == Kind::kStep && (steps != 1 || runs > most_runs)) ++wrong;
      --own;
    }
  };
  int parties[3] = {};
  std::vector<std::thread> callers;
  for (const int& party : parties) {
    callers.emplace_back([&, turn = Turns::Turn{Kind::kStep, &party}] { take(turn, steps); });
  }
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back([&] { take({Kind::kRun, nullptr}, runs); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(turns.waiting(), 0);
  EXPECT_TRUE(turns.TryRun());
}

TEST(Turns, ManyThreads) {
  const Searches none;
  for (int threads : {1, 2, 5}) TakeTurnsAtOnce(threads, none);
}

TEST(Turns, ManyThreadsBesideASearch) {
  Searches searches;
  const Searches::Work work(&searches);
  for (int threads : {1, 2}) TakeTurnsAtOnce(threads, searches);
}

TEST(Turns, EnginesThatWaitGoInOrder) {
  const Searches none;
  Turns turns(2, &none);
  int parties[4] = {};
  const Turns::Turn first{Kind::kStep, &parties[3]};
  Turns::Lease lease = turns.Begin(first, kNoDeadline).value();
  std::vector<int> order;  // guarded by the turn
  std::vector<std::thread> engines;
  for (int e = 0; e < 3; ++e) {
    engines.emplace_back([&, e] {
      const Turns::Turn own{Kind::kStep, &parties[e]};
      const auto turn = turns.Begin(own, kNoDeadline);
      EXPECT_TRUE(turn.ok());
      order.push_back(e);
    });
    AwaitWaiting(turns, e + 1);
  }
  lease = {};
  for (std::thread& engine : engines) engine.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(Turns, ADeadlineEndsTheWait) {
  const Searches none;
  Turns turns(1, &none);
  const Turns::Turn step{Kind::kStep, &turns}, run{Kind::kRun, nullptr};
  auto begun = turns.Begin(step, Clock::now());
  ASSERT_TRUE(begun.ok()) << "nobody is in its way";
  EXPECT_FALSE(turns.TryRun());
  const absl::Status late = turns.Begin(run, Clock::now() + std::chrono::milliseconds(1)).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  EXPECT_EQ(turns.waiting(), 0);
  *begun = {};
  EXPECT_TRUE(turns.Begin(run, Clock::now()).ok());
}

TEST(Turns, LeasesEndOnce) {
  const Searches none;
  Turns turns(1, &none);
  const Turns::Turn step{Kind::kStep, &turns};
  Turns::Lease lease = turns.Begin(step, kNoDeadline).value();
  Turns::Lease moved = std::move(lease);
  EXPECT_TRUE(moved);
  lease = {};
  EXPECT_FALSE(turns.TryRun()) << "the step has begun";
  moved = {};
  moved = turns.TryRun();
  EXPECT_TRUE(moved);
  EXPECT_FALSE(turns.Begin(step, Clock::now()).ok()) << "the run has begun";
  moved = turns.TryRun();  // begins before the other ends
  EXPECT_TRUE(moved);
  moved = {};
  EXPECT_TRUE(turns.Begin(step, Clock::now()).ok());
}

// A step lets runs go first for a while and begins then, though no turn ends.
TEST(Turns, AStepBeginsWhenTheTimeOfRunsIsOver) {
  const Searches none;
  Turns turns(4, &none);
  const Turns::Turn step{Kind::kStep, &turns}, run{Kind::kRun, nullptr};
  std::vector<Turns::Lease> runs;
  auto first = turns.Begin(step, kNoDeadline);
  for (int i = 0; i < 2; ++i) runs.push_back(turns.TryRun());
  ASSERT_TRUE(runs.back());
  std::thread third([&] { EXPECT_TRUE(turns.Begin(run, kNoDeadline).ok()); });
  AwaitWaiting(turns, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  *first = {};
  third.join();
  EXPECT_TRUE(turns.Begin(step, kNoDeadline).ok());
}

// A step that gives up lets the runs begin that it held back.
TEST(Turns, AStepThatIsLateLetsRunsBegin) {
  const Searches none;
  Turns turns(4, &none);
  const Turns::Turn step{Kind::kStep, &turns}, run{Kind::kRun, nullptr};
  std::vector<Turns::Lease> runs;
  for (int i = 0; i < 4; ++i) runs.push_back(turns.Begin(run, kNoDeadline).value());
  std::atomic<bool> gave_up{false};
  std::thread engine([&] {
    EXPECT_FALSE(turns.Begin(step, Clock::now() + std::chrono::milliseconds(50)).ok());
    gave_up = true;
  });
  while (turns.waiting() == 0 && !gave_up) std::this_thread::yield();
  runs.pop_back();
  runs.push_back(turns.Begin(run, kNoDeadline).value());
  engine.join();
  runs.clear();
  EXPECT_TRUE(turns.Begin(step, Clock::now()).ok());
}

}  // namespace
}  // namespace athanor
