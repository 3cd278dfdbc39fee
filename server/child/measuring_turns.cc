#include "server/child/measuring_turns.h"

#include <chrono>

namespace athanor {
namespace {

constexpr std::chrono::milliseconds kAskAgain{20};

}  // namespace

MeasuringTurns::Turn MeasuringTurns::Take(Kind kind, absl::FunctionRef<bool()> stop) {
  const bool measures = kind == Kind::kMeasures;
  MutexLock lock(mu_);
  const auto place = waiting_.insert(waiting_.end(), ++last_);
  while (place != waiting_.begin() || measuring_ || (measures && running_ > 0)) {
    if (stop()) {
      waiting_.erase(place);
      changed_.NotifyAll();
      return Turn(nullptr, GiveBack{kind});
    }
    changed_.WaitFor(lock, kAskAgain);
  }
  waiting_.erase(place);
  ++running_;
  measuring_ = measures;
  changed_.NotifyAll();
  return Turn(this, GiveBack{kind});
}

void MeasuringTurns::Release(Kind kind) {
  MutexLock lock(mu_);
  --running_;
  if (kind == Kind::kMeasures) measuring_ = false;
  changed_.NotifyAll();
}

}  // namespace athanor
