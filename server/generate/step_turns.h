// Lets the engines of a device run their steps one at a time, in the order in which they ask, so
// that all of them together use no more threads than one.
//
//   StepTurns::Turn turn(turns);   // waits for the turns before; its end lets the next begin
//
// Searches measure in gaps between runs (server/base/traffic.h), and busy engines leave none. So
// while there are searches, a turn begins with a pause where turns have followed each other for
// kBusy times as long. A pause is long enough for a plan that takes as long as the last turn to be
// run: with 5 ms, searches beside a model whose steps take 40 ms measured nothing at all.
// Thread-safe. Must outlive its turns.
#ifndef ATHANOR_SERVER_GENERATE_STEP_TURNS_H_
#define ATHANOR_SERVER_GENERATE_STEP_TURNS_H_

#include <atomic>
#include <chrono>
#include <cstdint>

#include "deploy/bazel/libs/mutex.h"

namespace athanor {

class StepTurns {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr int kBusy = 10;
  static constexpr Clock::duration kLongestPause = std::chrono::milliseconds(100);

  // Turns pause while `searches`, which must outlive this, is above 0. A pause is twice the last
  // turn, but at least `shortest_pause` and at most kLongestPause.
  explicit StepTurns(const std::atomic<int>* searches,
                     Clock::duration shortest_pause = std::chrono::milliseconds(5))
      : searches_(*searches), shortest_pause_(shortest_pause) {}

  class Turn {
   public:
    explicit Turn(StepTurns& turns) : turns_(turns) { turns_.Begin(); }
    ~Turn() { turns_.End(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    StepTurns& turns_;
  };

  // Number of turns that were asked for.
  int64_t asked() const {
    MutexLock lock(mu_);
    return asked_;
  }

 private:
  void Begin();
  void End();

  const std::atomic<int>& searches_;
  const Clock::duration shortest_pause_;
  mutable Mutex mu_;
  CondVar changed_;
  int64_t asked_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t ended_ ABSL_GUARDED_BY(mu_) = 0;
  // Whose turn it is reads and writes these.
  Clock::time_point busy_since_{}, last_begin_{}, last_end_{};
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_STEP_TURNS_H_
