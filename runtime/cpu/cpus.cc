#include "runtime/cpu/cpus.h"

#include <sched.h>

namespace athanor {

std::vector<int> UsableCpus(pid_t thread) {
  std::vector<int> cpus;
  cpu_set_t allowed;
  if (sched_getaffinity(thread, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

bool UseCpus(absl::Span<const int> cpus, pid_t thread) {
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  for (int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
    CPU_SET(cpu, &chosen);
  }
  return sched_setaffinity(thread, sizeof(chosen), &chosen) == 0;
}

}  // namespace athanor
