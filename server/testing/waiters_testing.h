// Calls that wait for a plan, as a test that lets them go must know of them: that a call is counted
// says only that it came.
#ifndef ATHANOR_SERVER_TESTING_WAITERS_TESTING_H_
#define ATHANOR_SERVER_TESTING_WAITERS_TESTING_H_

#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "server/plans/plan_slot.h"

namespace athanor {

// Until as many have begun to wait since the slot was made. REQUIRES: its plan is held up
// meanwhile.
inline void AwaitWaiters(PlanSlot& slot, uint64_t waiters) {
  for (uint64_t looks = 1;; ++looks) {
    // Places are numbered in the order they were taken.
    const uint64_t place = slot.WhenReady([](const absl::Status&) {});
    slot.StopWaiting(place);
    if (place >= waiters + looks) return;
    std::this_thread::yield();
  }
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_TESTING_WAITERS_TESTING_H_
