// Makes the scheduler look at CPUs again more often than its own clock does.
//
//   CpuTicks ticks({3}, std::chrono::microseconds(150));
//
// Linux's fair scheduler (EEVDF, from 6.6 on) may run a thread of SCHED_IDLE although another of
// ordinary priority waits: the one that waits has just run and is ahead of the mean of the queue,
// so that it is not "eligible" for some nanoseconds; then nothing looks before the next tick of the
// clock, 4 ms later at 250 Hz. Seen with `perf sched timehist`: a request's threads and its client
// waited 2 to 5 ms behind a search. A thread of ordinary priority that wakes up there makes it
// look. Each tick costs the CPU about 2 microseconds.
#ifndef ATHANOR_SERVER_TUNER_MEASURE_CPU_TICKS_H_
#define ATHANOR_SERVER_TUNER_MEASURE_CPU_TICKS_H_

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "absl/types/span.h"

namespace athanor {

// For as long as it lives. Its threads sleep and hold nothing, so the process may be forked as if
// they were not there.
class CpuTicks {
 public:
  // A CPU that this process may not use, and one there is no thread for, goes without.
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
