// A CUDA device's memory: whole, or addresses that get memory granule by granule.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> arena,
//                    AllocateCudaMemory(device, MemoryKind::kArena, bytes));
//   RETURN_IF_ERROR(arena->Commit(0, bytes_of_this_call));
//
// Arenas get it as calls grow, since most calls are far smaller than their bucket's largest;
// weights get all of it at once, but give back what of a slab nobody reads any more. Whole is what
// is used whole (scratch), and what one granule holds: the driver packs several such blocks into
// one. What the host shares with the GPU (staging) is the host's, pinned.
#ifndef ATHANOR_RUNTIME_CUDA_MEMORY_H_
#define ATHANOR_RUNTIME_CUDA_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/cuda/device.h"
#include "runtime/device/device.h"

namespace athanor {

// Allocates as Device::Allocate does; RESOURCE_EXHAUSTED names the device and says what is free.
// Allocates everything whole where the device has no virtual memory.
absl::StatusOr<std::unique_ptr<DeviceMemory>> AllocateCudaMemory(const CudaDevice& device,
                                                                 MemoryKind kind, int64_t bytes);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_MEMORY_H_
