#include "server/plans/turn_order.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace athanor {
namespace {

using Kind = TurnOrder::Kind;
using Turn = TurnOrder::Turn;
using std::chrono::milliseconds;

constexpr int kA = 0, kB = 0;  // parties, by address

// An order with a clock that tests set forward.
class Orderly {
 public:
  explicit Orderly(int threads) : order_(threads) {}

  // Makes turns ask; returns the last one.
  Turn* Step(const void* party = &kA) { return Ask(Kind::kStep, party); }
  Turn* Run(int count = 1) {
    while (--count > 0) Ask(Kind::kRun, nullptr);
    return Ask(Kind::kRun, nullptr);
  }
  Turn* Next() { return order_.Next(now_, searching_); }
  // Lets all begin that may, and returns how many these are.
  int Begin() {
    int begun = 0;
    while (Next() != nullptr) ++begun;
    return begun;
  }
  void End(const Turn* turn, milliseconds took = {}) {
    now_ += took;
    order_.End(*turn, now_);
  }
  void Wait(milliseconds time) { now_ += time; }
  void SetSearching(bool searching) { searching_ = searching; }
  TurnOrder& order() { return order_; }
  TurnOrder::Clock::time_point now() const { return now_; }

 private:
  Turn* Ask(Kind kind, const void* party) {
    order_.Ask(&turns_.emplace_back(Turn{kind, party}));
    return &turns_.back();
  }

  TurnOrder order_;
  TurnOrder::Clock::time_point now_{std::chrono::hours(1)};
  bool searching_ = false;
  std::deque<Turn> turns_;
};

TEST(TurnOrder, RunsBeginAsTheyAsk) {
  Orderly turns(4);
  Turn* const step = turns.Step();
  EXPECT_EQ(turns.Next(), step);
  Turn* const first = turns.Run();
  Turn* const second = turns.Run();
  Turn* const third = turns.Run();
  EXPECT_EQ(turns.Next(), first);
  EXPECT_EQ(turns.Next(), second);
  EXPECT_EQ(turns.Next(), nullptr);
  turns.End(second);
  EXPECT_EQ(turns.Next(), third);
}

TEST(TurnOrder, WithoutStepsAllRunsBegin) {
  for (int threads : {1, 2}) {
    Orderly turns(threads);
    turns.Run(10);
    EXPECT_EQ(turns.Begin(), 10);
    EXPECT_TRUE(turns.order().TryRun(turns.now()));
  }
}

TEST(TurnOrder, TryRunBeginsWhatNeedNotWait) {
  Orderly turns(2);
  EXPECT_TRUE(turns.order().TryRun(turns.now()));
  EXPECT_TRUE(turns.order().TryRun(turns.now()));
  Turn* const step = turns.Step();
  EXPECT_FALSE(turns.order().TryRun(turns.now())) << "a step waits for them";
  const Turn run;
  turns.End(&run);
  EXPECT_EQ(turns.Next(), step);
  EXPECT_FALSE(turns.order().TryRun(turns.now()));
  turns.End(&run);
  EXPECT_TRUE(turns.order().TryRun(turns.now()));
  EXPECT_FALSE(turns.order().TryRun(turns.now())) << "one runs beside the step";
  turns.End(&run);
  turns.Run();
  EXPECT_FALSE(turns.order().TryRun(turns.now())) << "others came first";
}

TEST(TurnOrder, StepsRunOneAtATime) {
  Orderly turns(8);
  Turn* const first = turns.Step();
  Turn* const second = turns.Step(&kB);
  EXPECT_EQ(turns.Next(), first);
  EXPECT_EQ(turns.Next(), nullptr);
  turns.End(first);
  EXPECT_EQ(turns.Next(), second);
}

TEST(TurnOrder, HalfOfTheThreadsRunBesideAStep) {
  for (const auto& [threads, beside] : std::map<int, int>{{2, 1}, {3, 1}, {4, 2}, {16, 8}}) {
    Orderly turns(threads);
    Turn* const step = turns.Step();
    EXPECT_EQ(turns.Next(), step);
    turns.Run(threads + 1);
    EXPECT_EQ(turns.Begin(), beside) << threads;
    turns.End(step);
    EXPECT_EQ(turns.Begin(), threads + 1 - beside) << "no step is left";
  }
}

// A step that waits for runs to end has no more of them begin ahead of it.
TEST(TurnOrder, StepsWaitForRunsThatBeganOnly) {
  Orderly turns(4);
  Turn* const run = turns.Run(4);
  EXPECT_EQ(turns.Begin(), 4);
  Turn* const step = turns.Step();
  turns.Run(4);
  EXPECT_EQ(turns.Next(), nullptr);
  turns.End(run);
  EXPECT_EQ(turns.Next(), nullptr);
  turns.End(run);
  EXPECT_EQ(turns.Next(), step);
  EXPECT_EQ(turns.Next(), nullptr);
  turns.End(run);
  EXPECT_EQ(turns.Begin(), 1);
}

TEST(TurnOrder, AStepThatLeavesLetsRunsBegin) {
  Orderly turns(2);
  turns.Run(2);
  EXPECT_EQ(turns.Begin(), 2);
  Turn* const step = turns.Step();
  Turn* const run = turns.Run();
  turns.End(run);
  EXPECT_EQ(turns.Next(), step);
  Turn* const late = turns.Step(&kB);
  EXPECT_EQ(turns.Next(), nullptr);
  turns.End(step);
  turns.order().Leave(late);
  EXPECT_EQ(turns.Next(), run);
}

TEST(TurnOrder, OneThreadAlternates) {
  Orderly turns(1);
  Turn* const runs[] = {turns.Run(), turns.Run(), turns.Run()};
  Turn* const steps[] = {turns.Step(), turns.Step(), turns.Step()};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(turns.Next(), steps[i]);
    EXPECT_EQ(turns.Next(), nullptr);
    turns.End(steps[i]);
    EXPECT_EQ(turns.Next(), runs[i]);
    EXPECT_EQ(turns.Next(), nullptr);
    turns.End(runs[i]);
  }
}

TEST(TurnOrder, OneThreadRunsEitherAlone) {
  Orderly turns(1);
  for (int i = 0; i < 3; ++i) {
    Turn* const run = turns.Run();
    EXPECT_EQ(turns.Next(), run);
    turns.End(run);
  }
  for (int i = 0; i < 3; ++i) {
    Turn* const step = turns.Step();
    EXPECT_EQ(turns.Next(), step);
    turns.End(step);
  }
}

// Has a step of 40 ms with a run beside it, and more runs that wait for its end.
Turn* StepBesideRuns(Orderly& turns, int waiting) {
  Turn* const step = turns.Step();
  EXPECT_EQ(turns.Next(), step);
  Turn* const run = turns.Run();
  EXPECT_EQ(turns.Next(), run);
  if (waiting > 0) turns.Run(waiting);
  EXPECT_EQ(turns.Next(), nullptr);
  turns.End(step, milliseconds(40));
  return run;
}

TEST(TurnOrder, RunsThatWaitedHaveAllThreadsAheadOfTheNextStep) {
  Orderly turns(2);
  Turn* run = StepBesideRuns(turns, 1);
  Turn* const next = turns.Step();
  const auto end = turns.now() + milliseconds(10);
  EXPECT_EQ(turns.Begin(), 1) << "a second run, and no step";
  EXPECT_EQ(turns.order().next_look(), end);
  for (int i = 0; i < 9; ++i) {
    Turn* const another = turns.Run();
    EXPECT_EQ(turns.Next(), nullptr) << "there are two threads";
    EXPECT_FALSE(turns.order().TryRun(turns.now()));
    turns.End(std::exchange(run, another), milliseconds(1));
    EXPECT_EQ(turns.Next(), another);
  }
  // One of the two ends before the time is over, and none asks: the step goes on waiting.
  turns.End(run);
  EXPECT_EQ(turns.Next(), nullptr);
  turns.Wait(milliseconds(1));
  EXPECT_EQ(turns.now(), end);
  EXPECT_EQ(turns.Next(), next);
  EXPECT_EQ(turns.order().next_look(), TurnOrder::Clock::time_point::max());
}

// The last ones of that time end first, as always.
TEST(TurnOrder, AStepWaitsForRunsOfThatTimeAndNoMore) {
  Orderly turns(2);
  Turn* const run = StepBesideRuns(turns, 3);
  EXPECT_EQ(turns.Begin(), 1) << "two threads, though no step asks yet";
  Turn* const next = turns.Step();
  EXPECT_EQ(turns.Begin(), 0);
  turns.Wait(milliseconds(10));
  EXPECT_EQ(turns.Begin(), 0);
  EXPECT_EQ(turns.order().next_look(), TurnOrder::Clock::time_point::max())
      << "the end of a run is next";
  turns.End(run);
  EXPECT_EQ(turns.Next(), next);
  EXPECT_EQ(turns.Next(), nullptr);
}

// Runs that would end after that time have no more than half of the threads.
TEST(TurnOrder, RunsThatWouldEndLateDoNotBegin) {
  Orderly late(2);
  Turn* const first = StepBesideRuns(late, 1);
  Turn* const second = late.Next();
  ASSERT_NE(second, nullptr);
  Turn* const step = late.Step();
  late.End(second, milliseconds(9));
  Turn* const long_run = late.Run();
  long_run->usual = milliseconds(2);
  EXPECT_FALSE(late.order().TryRun(late.now(), milliseconds(2)));
  EXPECT_EQ(late.Next(), step) << "the run would end 1 ms after the time of runs";
  EXPECT_EQ(late.Next(), nullptr) << "half of the threads are taken";
  late.End(first);
  EXPECT_EQ(late.Next(), long_run) << "beside the step";
}

TEST(TurnOrder, RunsThatEndInTimeBegin) {
  Orderly turns(2);
  StepBesideRuns(turns, 1);
  Turn* const second = turns.Next();
  turns.Step();
  turns.End(second, milliseconds(8));
  Turn* const third = turns.Run();
  third->usual = milliseconds(2);
  EXPECT_EQ(turns.Next(), third);
}

TEST(TurnOrder, AStepBeginsAtOnceIfRunsWantNoMore) {
  for (const bool none_waited : {true, false}) {
    Orderly turns(2);
    Turn* const run = StepBesideRuns(turns, none_waited ? 0 : 1);
    Turn* const next = turns.Step();
    if (!none_waited) {
      Turn* const waited = turns.Next();
      ASSERT_NE(waited, nullptr);
      ASSERT_NE(waited, next);
      turns.End(waited);
      turns.End(run, milliseconds(1));
    }
    EXPECT_EQ(turns.Next(), next) << none_waited;
  }
}

TEST(TurnOrder, OneThreadGivesRunsNoTimeOfTheirOwn) {
  Orderly turns(1);
  Turn* const step = turns.Step();
  EXPECT_EQ(turns.Next(), step);
  Turn* const run = turns.Run(2);
  turns.End(step, milliseconds(40));
  Turn* const next = turns.Step();
  EXPECT_EQ(turns.Begin(), 1);
  turns.End(run, milliseconds(1));
  EXPECT_EQ(turns.Next(), next);
}

// Parties whose steps always wait, with steps of 1 and 7 ms, have as much time as each other.
TEST(TurnOrder, PartiesShareTheTime) {
  Orderly turns(2);
  const std::map<const void*, milliseconds> took = {{&kA, milliseconds(1)}, {&kB, milliseconds(7)}};
  std::map<const void*, milliseconds> had;
  turns.Step(&kA);
  turns.Step(&kB);
  for (int i = 0; i < 1000; ++i) {
    Turn* const step = turns.Next();
    ASSERT_NE(step, nullptr);
    had[step->party] += took.at(step->party);
    turns.Step(step->party);
    turns.End(step, took.at(step->party));
    EXPECT_LE(std::chrono::abs(had[&kA] - had[&kB]), milliseconds(7)) << i;
  }
}

// A party that comes back has no claim on the time in which it had nothing to do.
TEST(TurnOrder, PartiesSaveUpNoTime) {
  Orderly turns(2);
  for (int i = 0; i < 100; ++i) {
    Turn* const step = turns.Step(&kA);
    ASSERT_EQ(turns.Next(), step);
    turns.End(step, milliseconds(10));
  }
  turns.Step(&kA);
  turns.Step(&kB);
  std::map<const void*, int> steps;
  for (int i = 0; i < 10; ++i) {
    Turn* const step = turns.Next();
    ++steps[step->party];
    turns.Step(step->party);
    turns.End(step, milliseconds(10));
  }
  EXPECT_EQ(steps[&kA], 5);
  EXPECT_EQ(steps[&kB], 5);
}

// Takes steps of `took` without gaps, and returns how many began before a rest, or `most`.
int StepsUntilARest(Orderly& turns, milliseconds took, int most) {
  for (int i = 0; i < most; ++i) {
    Turn* const step = turns.Step();
    if (turns.Next() == nullptr) return i;
    turns.End(step, took);
  }
  return most;
}

TEST(TurnOrder, BusyStepsRestForSearches) {
  Orderly turns(2);
  EXPECT_EQ(StepsUntilARest(turns, milliseconds(10), 1000), 1000);
  turns.SetSearching(true);
  EXPECT_EQ(StepsUntilARest(turns, milliseconds(10), 1000), 0) << "busy for long: at once";
  // The step that waits rests for twice the longest step, and runs do too.
  turns.Run();
  EXPECT_FALSE(turns.order().TryRun(turns.now()));
  EXPECT_EQ(turns.order().next_look(), turns.now() + milliseconds(20));
  turns.Wait(milliseconds(19));
  EXPECT_EQ(turns.Begin(), 0);
  turns.Wait(milliseconds(1));
  EXPECT_EQ(turns.Begin(), 2);
}

TEST(TurnOrder, RestsComeAfterTenTimesTheirLength) {
  for (const auto& [step, rest] : std::map<int, int>{{1, 5}, {2, 5}, {10, 20}, {40, 80}}) {
    Orderly turns(2);
    turns.SetSearching(true);
    EXPECT_EQ(StepsUntilARest(turns, milliseconds(step), 1000), TurnOrder::kBusy * rest / step);
    EXPECT_EQ(turns.order().next_look(), turns.now() + milliseconds(rest)) << step;
  }
}

TEST(TurnOrder, RestsAreNoLongerThanTheLongest) {
  Orderly turns(2);
  turns.SetSearching(true);
  EXPECT_EQ(StepsUntilARest(turns, milliseconds(400), 1000), 3);
  EXPECT_EQ(turns.order().next_look(), turns.now() + TurnOrder::kLongestRest);
}

TEST(TurnOrder, GapsOfTheirOwnMakeRestsNeedless) {
  Orderly turns(2);
  turns.SetSearching(true);
  for (int i = 0; i < 100; ++i) {
    Turn* const step = turns.Step();
    ASSERT_EQ(turns.Next(), step) << i;
    turns.End(step, milliseconds(10));
    turns.Wait(milliseconds(20));
  }
}

// Runs that began before a rest end first: a gap has nothing running.
TEST(TurnOrder, RestsBeginWhenNothingRuns) {
  Orderly turns(4);
  turns.SetSearching(true);
  Turn* const run = turns.Run();
  ASSERT_EQ(turns.Next(), run);
  EXPECT_EQ(StepsUntilARest(turns, milliseconds(10), 1000), 20);
  EXPECT_EQ(turns.order().next_look(), TurnOrder::Clock::time_point::max());
  turns.Run();
  turns.Wait(milliseconds(500));
  EXPECT_EQ(turns.Begin(), 0);
  turns.End(run);
  EXPECT_EQ(turns.order().next_look(), turns.now() + milliseconds(20));
  EXPECT_EQ(turns.Begin(), 0);
  turns.SetSearching(false);
  EXPECT_EQ(turns.Begin(), 2) << "nobody measures any more";
}

TEST(TurnOrder, RunsAloneNeverRest) {
  Orderly turns(1);
  turns.SetSearching(true);
  for (int i = 0; i < 1000; ++i) {
    Turn* const run = turns.Run();
    ASSERT_EQ(turns.Next(), run);
    turns.End(run, milliseconds(10));
  }
}

// Random turns: limits hold at each time, and each turn that asks begins.
TEST(TurnOrder, RandomTurns) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int threads = 1 + static_cast<int>(random() % 5);
    Orderly turns(threads);
    int parties[3] = {};
    std::vector<const Turn*> begun;
    std::vector<Turn*> waiting;
    const auto count = [&](Kind kind) {
      return std::count_if(begun.begin(), begun.end(), [&](auto* t) { return t->kind == kind; });
    };
    for (int i = 0; i < 300 || !waiting.empty() || !begun.empty(); ++i) {
      ASSERT_LT(i, 10'000) << "a turn never begins";
      turns.SetSearching(random() % 4 == 0);
      const auto what = random() % 5;
      if (what < 2 && i < 300) {
        waiting.push_back(random() % 2 == 0 ? turns.Run() : turns.Step(&parties[random() % 3]));
      } else if (what == 2 && i < 300 && !waiting.empty()) {
        const size_t leaves = random() % waiting.size();
        turns.order().Leave(waiting[leaves]);
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(leaves));
      } else if (!begun.empty()) {
        std::swap(begun[random() % begun.size()], begun.back());
        turns.End(begun.back(), milliseconds(random() % 50));
        begun.pop_back();
      }
      turns.Wait(milliseconds(random() % 3));
      while (const Turn* next = turns.Next()) {
        ASSERT_EQ(std::erase(waiting, next), 1);
        begun.push_back(next);
        ASSERT_LE(count(Kind::kStep), 1);
        if (next->kind == Kind::kStep || count(Kind::kStep) == 1) {
          ASSERT_LE(begun.size(), threads == 1 ? 1 : 1 + threads / 2);
        }
      }
    }
  }
}

}  // namespace
}  // namespace athanor
