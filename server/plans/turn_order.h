// Decides whose turn on a device is next: steps of language models beside runs of requests.
//
//   TurnOrder order(/*threads=*/2);
//   TurnOrder::Turn turn{TurnOrder::Kind::kStep, engine};
//   order.Ask(&turn);
//   while (TurnOrder::Turn* next = order.Next(now, searching)) ...   // it begins
//   order.End(turn, now);
//
// Steps run one at a time. Beside a step, or while one waits, at most half as many runs begin as
// there are threads, at least one; otherwise as many as ask. A pool of 2 threads then has a core
// for each side. On one thread they alternate.
//
// Half of the threads is less than half of the machine: answers, clients and wake-ups of runs are
// outside of it, and whenever no run computes, the pool lends its threads to the step. Runs with
// half of the machine and a queue take twice their time alone at best. So where runs wait at the
// end of a step, all threads are theirs for kRunsPart of its time before the next step: README.md
// has the figures. A run begins in that time as one of them if it is usually over by its end;
// longer ones have their half, so that the next step is late by no more than a run differs from its
// like.
//
// Runs begin in the order in which they ask. Parties with steps have equal shares of their time:
// start-time fair queueing (P. Goyal, H. Vin, H. Cheng, SIGCOMM 1996) over measured durations.
//
// Searches measure in gaps between turns (server/base/traffic.h), and busy engines leave none. So
// while there are searches, nothing begins for a while once steps have filled kBusy times as long.
// A rest is long enough for a plan that takes as long as the longest step to be run: with 5 ms,
// searches beside a model whose steps take 40 ms measured nothing at all. A device without steps
// never rests: its runs are short enough to leave gaps.
//
// Pure: time is given. Not thread-safe.
#ifndef ATHANOR_SERVER_PLANS_TURN_ORDER_H_
#define ATHANOR_SERVER_PLANS_TURN_ORDER_H_

#include <chrono>
#include <cstdint>
#include <list>

#include "absl/container/flat_hash_map.h"

namespace athanor {

class TurnOrder {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Kind : uint8_t { kStep, kRun };
  struct Turn {
    Kind kind = Kind::kRun;
    const void* party = nullptr;  // whose step it is; parties with steps share the time
    Clock::duration usual{};      // how long such runs have taken lately; 0: nobody knows
  };

  static constexpr int kRunsPart = 4;  // a part in so many
  static constexpr int kBusy = 10;
  static constexpr Clock::duration kShortestRest = std::chrono::milliseconds(5);
  static constexpr Clock::duration kLongestRest = std::chrono::milliseconds(100);

  // `threads` are the device's, at least 1.
  explicit TurnOrder(int threads);

  // Lets a turn wait. It stays where it is until Next has returned it or it leaves.
  void Ask(Turn* turn);
  void Leave(Turn* turn);
  // Returns a turn that begins now, and waits no more; null if none may. `searching`: there are
  // searches, which need gaps.
  Turn* Next(Clock::time_point now, bool searching);
  // Begins a run, of Turn's usual time, if none need wait; returns false otherwise.
  bool TryRun(Clock::time_point now, Clock::duration usual = {});
  // Ends a turn that has begun.
  void End(const Turn& turn, Clock::time_point now);

  // The time at which Next is worth another call though no turn ends: the end of a rest, or of the
  // time for runs that a step waits for. max() if there is none, or turns that began before the
  // rest go on.
  Clock::time_point next_look() const;

 private:
  bool RunFits(Clock::time_point now, Clock::duration usual) const;
  // Returns the waiting step of the party that has had the least time; null if none may begin.
  Turn* StepThatFits(Clock::time_point now) const;
  // Reports whether all threads are for runs, and there are some that use them.
  bool RunsHaveAll(Clock::time_point now) const {
    if (now >= runs_end_) return false;
    return runs_waiting_.empty() ? runs_ > 0 : now + runs_waiting_.front()->usual <= runs_end_;
  }
  Clock::duration StartOf(const void* party) const;
  // Reports whether steps have been busy for so long that a rest begins.
  bool RestIsDue(Clock::time_point now) const;
  Clock::duration rest() const;  // its length
  void BeginTurn(const Turn& turn, Clock::time_point now);

  const int threads_;
  std::list<Turn*> steps_waiting_, runs_waiting_;  // in the order in which they asked
  int steps_ = 0, runs_ = 0;                       // that have begun
  Kind last_ = Kind::kRun;                         // the one that began last
  // Virtual time, in durations of steps: of the last step's start, and per party of its end.
  Clock::duration now_{};
  absl::flat_hash_map<const void*, Clock::duration> ends_;
  Clock::time_point step_began_{};
  // Until then all threads are for runs; min(): they are not.
  Clock::time_point runs_end_ = Clock::time_point::min();

  Clock::time_point busy_since_{}, idle_since_{};
  Clock::duration longest_step_{};  // since busy_since_
  bool rests_ = false;
  Clock::time_point rest_end_ = Clock::time_point::max();
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_TURN_ORDER_H_
