// The device that a target stands for: each process that runs kernels of the CPU makes its own; a
// GPU's is made once, by the device worker (server/tuner/worker), since its context takes long to
// make and does not survive a fork.
//
//   UseGpu(1);                                    // once, in the worker, before the first device
//   RunWhereItIsSafe("a measured plan", limits, plan.target(), /*threads=*/2,
//                    [&](Device* device) { return Measure(device); });
#ifndef ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_
#define ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/v1/target.pb.h"
#include "runtime/cuda/device.h"
#include "runtime/device/device.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Says which of the machine's GPUs targets of device "cuda" are, and opens its driver and, if there
// is one, its library of products while files can be opened. Initialises nothing. Errors are those
// of CudaDriver::Load.
absl::Status UseGpu(int ordinal);

// Returns whether that GPU is one of tests, whose kernels are code of the host.
bool GpuIsEmulated();

// Makes that GPU's device unless it is made; it lives as long as the process. Errors are those of
// CudaDevice::Create; FAILED_PRECONDITION if UseGpu() was not called.
absl::StatusOr<CudaDevice*> TheGpu();

// Makes the device, with `threads` of the CPU that are not bound to cores, or takes the GPU, and
// returns what `body` returns. Other errors are those of the device's Create; INTERNAL if a GPU was
// lost by a fault of a kernel, which is to a kernel of a GPU what a crash of its process is to one
// of the CPU; UNAVAILABLE if it was lost otherwise or does not answer, or if its memory did not
// suffice while others held a good part of it, as a server does for its plans: that says nothing of
// what ran.
absl::Status RunOnDevice(const v1::Target& target, int threads,
                         absl::FunctionRef<absl::Status(Device* device)> body);
// As RunOnDevice, for the host in a process of its own (isolated.h). REQUIRES: for a GPU, this
// process is the device worker.
absl::Status RunWhereItIsSafe(absl::string_view what, const IsolationLimits& limits,
                              const v1::Target& target, int threads,
                              absl::FunctionRef<absl::Status(Device* device)> body);

// Makes the last of these errors, and reports whether an error is one.
absl::Status ShortOfMemory(absl::string_view message);
bool IsShortOfMemory(const absl::Status& status);

// Returns whether the target's kernels run on the host and read its memory.
bool RunsOnHost(const v1::Target& target);

// Returns how many threads of the host run for a request that asks for `threads`: for a GPU, one
// that launches and waits.
int HostThreads(const v1::Target& target, int threads);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_TARGET_DEVICE_H_
