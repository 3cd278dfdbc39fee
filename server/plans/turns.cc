#include "server/plans/turns.h"

#include <algorithm>
#include <utility>

namespace athanor {

using Clock = TurnOrder::Clock;

void Turns::Grant(Clock::time_point now) {
  while (Turn* turn = order_.Next(now, searches_.any())) {
    const auto begins = std::find_if(waiters_.begin(), waiters_.end(),
                                     [&](const Waiter* waiter) { return &waiter->turn == turn; });
    (*begins)->begins = true;
    (*begins)->told.NotifyOne();
    waiters_.erase(begins);
  }
  const Clock::time_point next_look = order_.next_look();
  if (std::exchange(next_look_, next_look) == next_look) return;
  for (Waiter* waiter : waiters_) waiter->told.NotifyOne();
}

Turns::Lease Turns::TryRun(Clock::duration usual) {
  MutexLock lock(mu_);
  return order_.TryRun(Clock::now(), usual) ? Lease(this, {}) : Lease();
}

absl::StatusOr<Turns::Lease> Turns::Begin(const Turn& turn, Clock::time_point deadline) {
  MutexLock lock(mu_);
  Clock::time_point now = Clock::now();
  if (turn.kind == Kind::kRun && order_.TryRun(now, turn.usual)) return Lease(this, turn);
  Waiter own{.turn = turn};
  order_.Ask(&own.turn);
  waiters_.push_back(&own);
  Grant(now);
  while (!own.begins && now < deadline) {
    const Clock::time_point until = std::min(deadline, next_look_);
    if (until == Clock::time_point::max()) {
      own.told.Wait(lock);
    } else {
      own.told.WaitUntil(lock, until);
    }
    now = Clock::now();
    if (!own.begins) Grant(now);
  }
  if (own.begins) return Lease(this, turn);
  order_.Leave(&own.turn);
  waiters_.remove(&own);
  Grant(now);  // a step that leaves lets more runs begin
  return absl::DeadlineExceededError(
      "the deadline passed while other runs on the device went first");
}

void Turns::End(const Turn& turn) {
  MutexLock lock(mu_);
  const Clock::time_point now = Clock::now();
  order_.End(turn, now);
  Grant(now);
}

}  // namespace athanor
