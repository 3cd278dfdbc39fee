// The device that a target stands for. Each process that runs kernels makes its own: a GPU's
// context does not survive a fork.
//
//   UseGpu(1);                                    // once, before the first device
//   ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
//                    DeviceFor(plan.target(), /*threads=*/2));
#ifndef ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_
#define ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/device.h"

namespace athanor {

// Says which of the machine's GPUs targets of device "cuda" are, and opens its driver while files
// can be opened. Initialises nothing. Errors are those of CudaDriver::Load.
absl::Status UseGpu(int ordinal);

// Returns whether that GPU is one of tests, whose kernels are code of the host.
bool GpuIsEmulated();

// `threads` are the CPU's, not bound to cores. Errors are those of the device's Create;
// FAILED_PRECONDITION if the target is a GPU's and UseGpu() was not called.
absl::StatusOr<std::unique_ptr<Device>> DeviceFor(const v1::Target& target, int threads);

// Returns whether the target's kernels run on the host and read its memory.
bool RunsOnHost(const v1::Target& target);

// Returns how many threads of the host run for a request that asks for `threads`: for a GPU, one
// that launches and waits.
int HostThreads(const v1::Target& target, int threads);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_
