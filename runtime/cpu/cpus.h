// Gets and sets the CPUs on which a thread may run, by the system's numbers.
#ifndef ATHANOR_RUNTIME_CPU_CPUS_H_
#define ATHANOR_RUNTIME_CPU_CPUS_H_

#include <sys/types.h>

#include <vector>

#include "absl/types/span.h"

namespace athanor {

// Returns CPU numbers in ascending order; empty if there is no such thread. `thread` is a gettid();
// 0: the calling thread; getpid(): the process's first thread, whose CPUs are the process's unless
// that thread was moved.
std::vector<int> UsableCpus(pid_t thread = 0);

// Sets the CPUs of a thread, and of threads and processes that it starts later. Returns false if
// refused; then nothing changes. Placement only affects speed, so callers may ignore a refusal.
bool UseCpus(absl::Span<const int> cpus, pid_t thread = 0);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CPU_CPUS_H_
