#include "server/tuner/measure/cpu_ticks.h"

#include <sys/prctl.h>

#include <system_error>

#include "runtime/cpu/cpus.h"

namespace athanor {
namespace {

void Tick(int cpu, std::chrono::microseconds period, const std::atomic<bool>& stop) {
  if (!UseCpus({cpu})) return;
  prctl(PR_SET_TIMERSLACK, 1);  // nanoseconds; the default is 50 microseconds
  while (!stop) std::this_thread::sleep_for(period);
}

}  // namespace

CpuTicks::CpuTicks(absl::Span<const int> cpus, std::chrono::microseconds period) {
  try {
    for (int cpu : cpus) threads_.emplace_back([=, this] { Tick(cpu, period, stop_); });
  } catch (const std::system_error&) {
    // Without ticks requests wait longer, but none fails.
  }
}

CpuTicks::~CpuTicks() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace athanor
