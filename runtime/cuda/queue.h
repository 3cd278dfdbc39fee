// A CUDA device's kernels and queues.
#ifndef ATHANOR_RUNTIME_CUDA_QUEUE_H_
#define ATHANOR_RUNTIME_CUDA_QUEUE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cuda/device.h"
#include "runtime/device.h"

namespace athanor {

// Launches that a queue has in flight before it waits for them.
inline constexpr int kCudaQueueSlots = 1024;

inline CudaPointer AddressOnDevice(const void* pointer) {
  return reinterpret_cast<CudaPointer>(pointer);
}

// Loads a whole cubin. REQUIRES: the device's context is that of this thread.
absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadCudaKernel(const CudaDevice& device,
                                                             absl::string_view cubin);

// `workspace` is null if no item needs scratch; else each item that runs has `stride` bytes of it.
// `slots` has kCudaQueueSlots CudaErrorSlots.
absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(const CudaDevice& device,
                                                          std::unique_ptr<DeviceMemory> workspace,
                                                          std::unique_ptr<DeviceMemory> slots,
                                                          int64_t stride);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_QUEUE_H_
