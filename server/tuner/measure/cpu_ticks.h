// Makes the scheduler re-examine CPUs more often than its own clock does.
//
//   CpuTicks ticks({3}, std::chrono::microseconds(150));
//
// Linux's fair scheduler (EEVDF, from 6.6 on) may run a SCHED_IDLE thread although a thread of
// ordinary priority waits. The waiting thread has just run and is ahead of the mean of the queue,
// so it is not "eligible" for some nanoseconds; then nothing is examined before the next clock
// tick, 4 ms later at 250 Hz. Seen with `perf sched timehist`: a request's threads and its client
// waited 2 to 5 ms behind a search. A thread of ordinary priority that wakes up on that CPU makes
// the scheduler examine the queue. Each tick costs the CPU about 2 microseconds.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_CPU_TICKS_H_
#define ATHANOR_SERVER_TUNER_MEASURE_CPU_TICKS_H_

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "absl/types/span.h"

namespace athanor {

// Ticks for as long as it lives. Its threads sleep and hold no locks, so the process may be forked
// as if they did not exist.
class CpuTicks {
 public:
  // Skips CPUs that this process may not use, or for which no thread can be made.
  CpuTicks(absl::Span<const int> cpus, std::chrono::microseconds period);
  ~CpuTicks();
  CpuTicks(const CpuTicks&) = delete;
  CpuTicks& operator=(const CpuTicks&) = delete;

 private:
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_CPU_TICKS_H_
