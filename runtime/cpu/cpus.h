// Which CPUs of the machine a thread may run on, by the system's numbers.
#ifndef ATHANOR_RUNTIME_CPU_CPUS_H_
#define ATHANOR_RUNTIME_CPU_CPUS_H_

#include <sys/types.h>

#include <vector>

#include "absl/types/span.h"

namespace athanor {

// Ascending. `thread` as gettid() has it; 0: the calling one; getpid(): the process's first, whose
// CPUs are those of the process where only other threads were moved. Empty: there is no such
// thread.
std::vector<int> UsableCpus(pid_t thread = 0);

// From now on, for threads and processes that begin in it as well. False: refused, as before.
// A matter of speed where it is used for placement, so a refusal may be passed over.
bool UseCpus(absl::Span<const int> cpus, pid_t thread = 0);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CPU_CPUS_H_
