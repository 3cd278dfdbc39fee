#include "server/generate/step_turns.h"

#include <thread>

namespace athanor {

void StepTurns::Begin() {
  {
    MutexLock lock(mu_);
    const int64_t own = asked_++;
    while (ended_ < own) changed_.Wait(lock);
  }
  const Clock::time_point now = Clock::now();
  if (now - last_end_ >= pause_) {
    busy_since_ = now;
  } else if (now - busy_since_ >= busy_ && searches_.load(std::memory_order_relaxed) > 0) {
    std::this_thread::sleep_for(pause_);
    busy_since_ = Clock::now();
  }
}

void StepTurns::End() {
  last_end_ = Clock::now();
  MutexLock lock(mu_);
  ++ended_;
  changed_.NotifyAll();
}

}  // namespace athanor
