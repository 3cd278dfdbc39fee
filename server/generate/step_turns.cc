#include "server/generate/step_turns.h"

#include <algorithm>
#include <thread>

namespace athanor {

void StepTurns::Begin() {
  {
    MutexLock lock(mu_);
    const int64_t own = asked_++;
    while (ended_ < own) changed_.Wait(lock);
  }
  const Clock::time_point now = Clock::now();
  const Clock::duration pause =
      std::max(shortest_pause_, std::min(kLongestPause, 2 * (last_end_ - last_begin_)));
  if (now - last_end_ >= pause) {
    busy_since_ = now;
  } else if (now - busy_since_ >= kBusy * pause && searches_.load(std::memory_order_relaxed) > 0) {
    std::this_thread::sleep_for(pause);
    busy_since_ = Clock::now();
  }
  last_begin_ = Clock::now();
}

void StepTurns::End() {
  last_end_ = Clock::now();
  MutexLock lock(mu_);
  ++ended_;
  changed_.NotifyAll();
}

}  // namespace athanor
