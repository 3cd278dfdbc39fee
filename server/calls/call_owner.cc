#include "server/calls/call_owner.h"

#include <utility>

namespace athanor {

CallOwner::Waiting CallOwner::StartWaiting(Clock::time_point limit,
                                           absl::AnyInvocable<void()> expire) {
  // The call, and with it the caller's reference, may be gone as soon as it waits.
  const std::shared_ptr<CallOwner> self = shared_from_this();
  if (limit != Clock::time_point::max()) {
    timer_id_ = timer_.At(limit, [self, expire = std::move(expire)]() mutable {
      if (self->Take()) expire();
    });
  }
  owned_ = false;
  // A cancellation or an expiry that came while the call was owned left it alone.
  if (cancelled_ && Take()) return Waiting::kCancelled;
  if (Clock::now() >= limit && Take()) return Waiting::kExpired;
  return Waiting::kStarted;
}

void CallOwner::AwaitPlan(PlanSlot& slot, PlanSlot::Waiter got) {
  const uint64_t id = slot.WhenReady(
      [self = shared_from_this(), got = std::move(got)](const absl::Status& status) mutable {
        if (self->Take()) got(status);
      });
  waiter_ = id;
  // Whoever took it before that could not leave the slot.
  if (owned_) slot.StopWaiting(id);
}

bool CallOwner::Cancel() {
  cancelled_ = true;
  return Take();
}

void CallOwner::StopTimer() {
  if (const Timer::Id timer = timer_id_.exchange(0); timer != 0) timer_.Cancel(timer);
}

void CallOwner::LeavePlan(PlanSlot& slot) {
  if (const uint64_t waiter = waiter_; waiter != 0) slot.StopWaiting(waiter);
}

}  // namespace athanor
