// Decides which thread owns a call, that is, may act on it. A call that waits has no owner: whoever
// takes it first (its plan, a runner, its deadline, a cancellation) owns it from then on, and the
// others leave it alone.
//
//   auto owner = std::make_shared<CallOwner>(&timer);   // owned by this thread
//   if (owner->StartWaiting(deadline, [=] { ... }) == CallOwner::Waiting::kStarted) {
//     queue.Push(...);                                  // whose runner calls owner->Take()
//   }
//
// Held by shared_ptr: it outlives the call in the queues the call was put into. Thread-safe.
#ifndef ATHANOR_SERVER_CALLS_CALL_OWNER_H_
#define ATHANOR_SERVER_CALLS_CALL_OWNER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "server/base/timer.h"
#include "server/plans/plan_slot.h"

namespace athanor {

class CallOwner : public std::enable_shared_from_this<CallOwner> {
 public:
  using Clock = std::chrono::steady_clock;

  // The thread that makes it owns the call. `timer` outlives it.
  explicit CallOwner(Timer* timer) : timer_(*timer) {}

  // Takes a call that waits. False: it has an owner.
  bool Take() { return !owned_.exchange(true); }
  bool owned() const { return owned_; }

  enum class Waiting { kStarted, kCancelled, kExpired };
  // Gives the call up until `limit`, when the timer takes it and calls `expire`. kStarted: it
  // waits, and may have ended already. Otherwise it does not wait and the caller owns it: it was
  // cancelled while it was owned, or `limit` is over.
  Waiting StartWaiting(Clock::time_point limit, absl::AnyInvocable<void()> expire);
  // Has `slot` take the call once it has a plan, or an error, and call `got` then. For the thread
  // whose StartWaiting returned kStarted.
  void AwaitPlan(PlanSlot& slot, PlanSlot::Waiter got);

  // Notes that the client has cancelled the call. True: it waited, and the caller owns it.
  bool Cancel();
  // Set by Cancel, for a run to look at.
  const std::atomic<bool>* cancelled() const { return &cancelled_; }

  // For the owner of a call that waited: the timer, or the slot, leaves it alone.
  void StopTimer();
  void LeavePlan(PlanSlot& slot);

 private:
  Timer& timer_;
  std::atomic<bool> owned_{true};
  std::atomic<bool> cancelled_{false};
  std::atomic<Timer::Id> timer_id_{0};
  std::atomic<uint64_t> waiter_{0};  // PlanSlot::WhenReady returned it
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_CALL_OWNER_H_
