// What a tuner process denies itself before it reads anything from outside.
//
//   absl::Status s = ConfineTuner({.parent = pid, .memory_bytes = 4 << 30});
//   ...
//   // In the forked process that runs a kernel:
//   absl::Status t = ConfineKernel(cpu_seconds);
//
// Both: it dies with its parent, dumps no core, gains no privilege, and has no network, no other
// program and no hand on other processes. Kernels: besides, no process of their own, no file to
// write, no signal but to themselves. A forbidden call ends the process with SIGSYS where the
// compiler and the loader never make it, and fails with EPERM elsewhere.
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/status.h"

namespace athanor {

struct TunerLimits {
  pid_t parent = 0;                        // the process to die with
  int64_t memory_bytes = 0;                // address space
  int64_t file_bytes = int64_t{64} << 20;  // of any file, memory files included
};

// FAILED_PRECONDITION names what this system lacks: without it nothing is run.
absl::Status ConfineTuner(const TunerLimits& limits);
// In a process forked by the tuner, `parent` being the tuner: also closes every descriptor. The
// address space is left to be watched from outside (resident memory), since plans reserve more than
// they use.
absl::Status ConfineKernel(pid_t parent, int64_t cpu_seconds);

// Widens this process's limit on address space, if it has one, by `bytes`; negative narrows it.
// For mappings that hold no memory of their own.
void WidenAddressSpace(int64_t bytes);

// Gives this process `seconds` of processor time from now on; SIGXCPU ends it.
void LimitCpuFromNow(int64_t seconds);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_H_
