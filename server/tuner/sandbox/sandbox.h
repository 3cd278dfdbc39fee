// What a tuner process denies itself before it reads anything from outside.
//
//   absl::StatusOr<std::string> walls = ConfineTuner({.parent = pid, .memory_bytes = 4 << 30});
//   ...
//   // In the forked process that runs a kernel:
//   absl::Status t = DieWith(parent);
//   if (t.ok()) t = ConfineKernel(cpu_seconds);
//
// Both: it dies with its parent, dumps no core, has no capability, makes none but the system calls
// of allowed_calls.h, opens no file to write, and to read only what path_wall.h lets it: libraries,
// and what the system says of its processors and processes. Kernels: nothing but libraries and
// their own process. A forbidden call ends the process with SIGSYS where no library makes it
// unasked, and fails with EPERM, EACCES or ENOSYS elsewhere.
//
// Of these walls two stand only where the system has them: Landlock (Linux 5.13), and, for a server
// of root, another user. Without both a process reads what its server may read.
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

struct TunerLimits {
  pid_t parent = 0;                        // the process to die with
  int64_t memory_bytes = 0;                // address space
  int64_t file_bytes = int64_t{64} << 20;  // of any file, memory files included
  // Off in tests of what stands without them.
  bool wall_paths = true;
  bool another_user = true;
};

// Says which walls stand, for the log. FAILED_PRECONDITION names what this system lacks: without it
// nothing is run. REQUIRES: this process has one thread.
absl::StatusOr<std::string> ConfineTuner(const TunerLimits& limits);
// From now on this process dies with the thread that forked it. FAILED_PRECONDITION: its process,
// `parent`, is gone.
absl::Status DieWith(pid_t parent);
// In a process forked by the tuner: also closes every descriptor. The address space is left to be
// watched from outside (resident memory), since plans reserve more than they use.
// FAILED_PRECONDITION as of ConfineTuner.
absl::Status ConfineKernel(int64_t cpu_seconds);

// Widens this process's limit on address space, if it has one, by `bytes`; negative narrows it.
// For mappings that hold no memory of their own.
void WidenAddressSpace(int64_t bytes);

// Gives this process `seconds` of processor time from now on; SIGXCPU ends it.
void LimitCpuFromNow(int64_t seconds);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_H_
