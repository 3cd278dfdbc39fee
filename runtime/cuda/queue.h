// A CUDA device's kernels and queues.
#ifndef ATHANOR_RUNTIME_CUDA_QUEUE_H_
#define ATHANOR_RUNTIME_CUDA_QUEUE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cuda/device.h"
#include "runtime/device/device.h"

namespace athanor {

inline CudaPointer AddressOnDevice(const void* pointer) {
  return reinterpret_cast<CudaPointer>(pointer);
}

// Loads a whole cubin. REQUIRES: the device's context is that of this thread.
absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadCudaKernel(const CudaDevice& device,
                                                             absl::string_view cubin);

// Shapes of a launch's blocks and threads in each.
struct CudaGeometry {
  unsigned blocks, threads;
};
// Spreads `grid` items, each computed by a team of `team` threads, over the multiprocessors, in
// blocks of whole teams. Kernels walk items, so any number of teams is right: no more than
// `most_teams`, which have a workspace, and than have `most_threads` threads.
CudaGeometry GeometryOf(int64_t grid, int team, int64_t most_teams, int64_t most_threads,
                        int64_t multiprocessors);

// `workspace` is null if no item needs scratch; else each team that runs has `stride` bytes of it.
absl::StatusOr<std::unique_ptr<DeviceQueue>> NewCudaQueue(const CudaDevice& device,
                                                          std::unique_ptr<DeviceMemory> workspace,
                                                          int64_t stride);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_QUEUE_H_
