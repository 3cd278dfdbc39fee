// The system calls that a tuner process and the processes of its kernels may make.
//
//   absl::Status status = FilterTunerCalls();
//
// Lists of what compilers, loaders, allocators and threads need, with the arguments they need them
// with; everything else is refused (call_filter.h), also what is not invented yet. Files are opened
// to be read alone, signals go to the calling process, and priorities, CPUs and limits are set of
// the calling thread or process. What no library does by itself ends the process instead.
#ifndef ATHANOR_SERVER_TUNER_SANDBOX_ALLOWED_CALLS_H_
#define ATHANOR_SERVER_TUNER_SANDBOX_ALLOWED_CALLS_H_

#include "absl/status/status.h"

namespace athanor {

// Of this process and those it forks, which may raise no signal. Opening one of this process's own
// descriptors by its path in /proc to write, as a linker does that is given a pipe, duplicates it;
// SIGSYS is handled for it.
absl::Status FilterTunerCalls();
// Besides, of the process of a kernel: no process, no signal, no limit, no priority, no socket.
absl::Status FilterKernelCalls();

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_SANDBOX_ALLOWED_CALLS_H_
