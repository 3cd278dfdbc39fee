// The device that a target stands for. Each process that runs kernels makes its own: a GPU's
// context does not survive a fork.
//
//   UseGpu(1);                                    // once, before the first device
//   RunOnDevice(plan.target(), /*threads=*/2, [&](Device* device) { return Check(device); });
#ifndef ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_
#define ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/device.h"

namespace athanor {

// Says which of the machine's GPUs targets of device "cuda" are, and opens its driver while files
// can be opened. Initialises nothing. Errors are those of CudaDriver::Load.
absl::Status UseGpu(int ordinal);

// Returns whether that GPU is one of tests, whose kernels are code of the host.
bool GpuIsEmulated();

// Makes the device, with `threads` of the CPU that are not bound to cores, and returns what `body`
// returns. Other errors are those of the device's Create; FAILED_PRECONDITION if the target is a
// GPU's and UseGpu() was not called; INTERNAL if a GPU was lost, which is to a kernel of a GPU what
// a crash of its process is to one of the CPU.
absl::Status RunOnDevice(const v1::Target& target, int threads,
                         absl::FunctionRef<absl::Status(Device* device)> body);

// Returns whether the target's kernels run on the host and read its memory.
bool RunsOnHost(const v1::Target& target);

// Returns how many threads of the host run for a request that asks for `threads`: for a GPU, one
// that launches and waits.
int HostThreads(const v1::Target& target, int threads);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_
