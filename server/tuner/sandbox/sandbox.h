// Restricts what a tuner process may do, before it reads anything from outside.
//
//   absl::StatusOr<std::string> walls = ConfineTuner({.parent = pid, .memory_bytes = 4 << 30});
//   ...
//   // In the forked process that runs a kernel:
//   absl::Status t = DieWith(parent);
//   if (t.ok()) t = ConfineKernel(cpu_seconds);
//
// Both processes die with their parent, dump no core, have no capabilities, make only the system
// calls of allowed_calls.h, and open no file for writing. They read only what path_wall.h permits:
// libraries, and the system's information on its processors and processes. A kernel's process only
// has libraries and its own process. A forbidden call ends the process with SIGSYS if no library
// makes it by itself; otherwise the call fails with EPERM, EACCES or ENOSYS.
//
// A device worker (server/tuner/worker) is confined as a tuner is, and its forked process, which
// runs kernels of a GPU, as a kernel's. Where the GPU is real, its driver needs more than they
// allow: these two only die with their parents, dump no core, and have no capabilities, no way to
// gain any, and no descriptors but their own.
//
// Two of these restrictions depend on the system: Landlock (Linux 5.13) and, for a server of root,
// the change of user. Without both, a process can read what its server can read.
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace athanor {

struct TunerLimits {
  pid_t parent = 0;                        // the process to die with
  int64_t memory_bytes = 0;                // address space
  int64_t file_bytes = int64_t{64} << 20;  // size of any file, memory files included
  // Disabled in tests of the remaining restrictions.
  bool wall_paths = true;
  bool another_user = true;
  // The driver of a real GPU runs in processes that are forked from here. It makes system calls and
  // opens files of its own. A kernel of a GPU makes none.
  bool gpu_driver = false;
};

// Restricts this process. Returns a description of the restrictions for the log. Returns
// FAILED_PRECONDITION, naming what this system lacks; then nothing may be run. REQUIRES: this
// process has one thread.
absl::StatusOr<std::string> ConfineTuner(const TunerLimits& limits);
// Makes this process die with the thread that forked it. Returns FAILED_PRECONDITION if `parent`,
// the process of that thread, is gone.
absl::Status DieWith(pid_t parent);
// Restricts a process forked by the tuner, and closes all its descriptors. Does not limit the
// address space, since plans reserve more than they use; resident memory is watched from outside.
// Returns FAILED_PRECONDITION as ConfineTuner does.
absl::Status ConfineKernel(int64_t cpu_seconds);
// Restricts a process forked by a device worker likewise, but for its time, which the worker limits
// job by job: it runs one after the other. It keeps `descriptors`.
absl::Status ConfineWorker(std::vector<int> descriptors);

// Raises this process's limit on address space, if it has one, by `bytes`; negative lowers it. For
// mappings without memory of their own.
void WidenAddressSpace(int64_t bytes);

// Limits this process to `seconds` of processor time from now on; SIGXCPU ends it.
void LimitCpuFromNow(int64_t seconds);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_SANDBOX_H_
