// Lets the engines of a device run their steps one at a time, in the order in which they ask, so
// that all of them together use no more threads than one.
//
//   StepTurns::Turn turn(turns);   // waits for the turns before; its end lets the next begin
//
// Searches measure in gaps between runs (server/base/traffic.h), and busy engines leave none. So
// while there are searches a turn begins with a pause where turns have followed each other for too
// long. Thread-safe. Must outlive its turns.
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

  // Turns that leave no gap of `pause` for `busy` are interrupted by one, if `searches`, which must
  // outlive this, is above 0.
  explicit StepTurns(const std::atomic<int>* searches,
                     Clock::duration busy = std::chrono::milliseconds(250),
                     Clock::duration pause = std::chrono::milliseconds(5))
      : searches_(*searches), busy_(busy), pause_(pause) {}

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
  const Clock::duration busy_, pause_;
  mutable Mutex mu_;
  CondVar changed_;
  int64_t asked_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t ended_ ABSL_GUARDED_BY(mu_) = 0;
  // Whose turn it is reads and writes these.
  Clock::time_point busy_since_{}, last_end_{};
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_STEP_TURNS_H_
