// Waits for calls that wait for a plan, for tests that release such calls. The count of running
// calls only tells that a call has arrived.
#ifndef ATHANOR_SERVER_TESTING_WAITERS_TESTING_H_
#define ATHANOR_SERVER_TESTING_WAITERS_TESTING_H_

#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "server/plans/plan_slot.h"

namespace athanor {

// Waits until `waiters` calls have begun to wait since the slot was made. REQUIRES: its plan is
// held up meanwhile.
inline void AwaitWaiters(PlanSlot& slot, uint64_t waiters) {
  for (uint64_t looks = 1;; ++looks) {
    // WhenReady numbers waiters in order.
    const uint64_t place = slot.WhenReady([](const absl::Status&) {});
    slot.StopWaiting(place);
    if (place >= waiters + looks) return;
    std::this_thread::yield();
  }
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_WAITERS_TESTING_H_
