// The system calls that a tuner process and its kernels' processes may make.
//
//   absl::Status status = FilterTunerCalls();
//
// The lists hold what compilers, loaders, allocators and threads need, with the arguments they use.
// Everything else is refused (call_filter.h), including future calls. Files may only be opened for
// reading, signals only sent to the calling process, and priorities, CPUs and limits only set for
// the calling thread or process. Calls that no library makes by itself end the process.
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_ALLOWED_CALLS_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_ALLOWED_CALLS_H_

#include "absl/status/status.h"

namespace athanor {

// Filters the calls of this process and those it forks; these may raise no signal. If a process
// opens one of its own descriptors for writing by its path in /proc, as a linker does that is given
// a pipe, a handler of SIGSYS duplicates the descriptor instead.
absl::Status FilterTunerCalls();
// Also denies a kernel's process to start processes, send signals, set limits or priorities, and
// use sockets.
absl::Status FilterKernelCalls();

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_ALLOWED_CALLS_H_
