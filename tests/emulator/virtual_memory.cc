// The driver's functions for memory that is reserved first and mapped later, and for descriptors of
// tiles.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tests/emulator/device.h"

using namespace athanor;            // NOLINT: every function below is of its interface
using namespace athanor::emulator;  // NOLINT

namespace {

constexpr size_t kGranule = size_t{2} << 20;
// Lies behind each reserved range, so that reaching from one into the next is noticed.
constexpr size_t kGap = 4096;

// Calls `use` with each block of a range that whole mapped blocks make up; false if none do.
bool ForMapped(CudaPointer pointer, size_t bytes,
               absl::FunctionRef<void(CudaPointer, Block&)> use) {
  const CudaPointer end = pointer + bytes;
  std::vector<std::pair<CudaPointer, Block*>> blocks;
  for (CudaPointer at = pointer; at < end;) {
    const auto block = device.blocks.find(at);
    if (block == device.blocks.end() || !block->second.mapped) return false;
    blocks.emplace_back(at, &block->second);
    at += block->second.bytes;
    if (at > end) return false;
  }
  for (const auto& [at, block] : blocks) use(at, *block);
  return !blocks.empty();
}

// Is a call of a device that has virtual memory.
CudaResult WithVirtualMemory(absl::FunctionRef<CudaResult()> call) {
  return InContext([&]() -> CudaResult {
    return TheMachine().attribute(kCudaVirtualMemory) != 0 ? call() : kCudaNotSupported;
  });
}

void DropIfUnused(CudaAllocation number) {
  const auto found = device.allocations.find(number);
  if (!found->second.released || found->second.mappings > 0) return;
  device.used_bytes -= found->second.bytes;
  device.allocations.erase(found);
}

}  // namespace

ATHANOR_DRIVER cuMemAddressReserve(CudaPointer* pointer, size_t bytes, size_t, CudaPointer,
                                   unsigned long long) {
  return WithVirtualMemory([&]() -> CudaResult {
    if (bytes == 0 || bytes % kGranule != 0) return kCudaInvalidValue;
    if (bytes > SIZE_MAX - kGap) return kCudaOutOfMemory;
    void* const host = mmap(nullptr, bytes + kGap, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED) return kCudaOutOfMemory;
    *pointer = reinterpret_cast<CudaPointer>(host) | kDeviceBit;
    device.reserved[*pointer] = bytes;
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuMemAddressFree(CudaPointer pointer, size_t bytes) {
  return WithVirtualMemory([&]() -> CudaResult {
    const auto range = device.reserved.find(pointer);
    if (range == device.reserved.end() || range->second != bytes) return kCudaInvalidValue;
    const auto block = device.blocks.lower_bound(pointer);
    if (block != device.blocks.end() && block->first < pointer + bytes) return kCudaInvalidValue;
    device.reserved.erase(range);
    munmap(HostAddress(pointer), bytes + kGap);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuMemCreate(CudaAllocation* allocation, size_t bytes,
                           const CudaAllocationProperties*, unsigned long long) {
  return WithVirtualMemory([&]() -> CudaResult {
    if (bytes == 0 || bytes % kGranule != 0) return kCudaInvalidValue;
    if (bytes > TheMachine().bytes - device.used_bytes) return kCudaOutOfMemory;
    *allocation = ++device.last_allocation;
    device.allocations[*allocation] = {.bytes = bytes};
    device.used_bytes += bytes;
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuMemRelease(CudaAllocation allocation) {
  return WithVirtualMemory([&]() -> CudaResult {
    const auto found = device.allocations.find(allocation);
    if (found == device.allocations.end() || found->second.released) return kCudaInvalidValue;
    found->second.released = true;
    DropIfUnused(allocation);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuMemMap(CudaPointer pointer, size_t bytes, size_t offset, CudaAllocation allocation,
                        unsigned long long) {
  return WithVirtualMemory([&]() -> CudaResult {
    const auto found = device.allocations.find(allocation);
    auto range = device.reserved.upper_bound(pointer);
    if (found == device.allocations.end() || found->second.released || offset != 0 ||
        bytes != found->second.bytes || range == device.reserved.begin()) {
      return kCudaInvalidValue;
    }
    --range;
    const auto after = device.blocks.lower_bound(pointer);
    if (pointer - range->first + bytes > range->second ||
        (after != device.blocks.end() && after->first < pointer + bytes)) {
      return kCudaInvalidValue;
    }
    device.blocks[pointer] = {bytes, /*mapped=*/true, /*access=*/false, allocation};
    ++found->second.mappings;
    std::memset(HostAddress(pointer), kUnwritten, std::min(bytes, TheMachine().most_moved));
    return kCudaSuccess;
  });
}
// Waits for no stream: work that still needs the memory loses the device.
ATHANOR_DRIVER cuMemUnmap(CudaPointer pointer, size_t bytes) {
  return WithVirtualMemory([&] {
    return ForMapped(pointer, bytes,
                     [](CudaPointer at, Block& block) {
                       const CudaAllocation allocation = block.allocation;
                       madvise(HostAddress(at), block.bytes, MADV_DONTNEED);
                       device.blocks.erase(at);
                       --device.allocations.at(allocation).mappings;
                       DropIfUnused(allocation);
                     })
               ? kCudaSuccess
               : kCudaInvalidValue;
  });
}
ATHANOR_DRIVER cuMemSetAccess(CudaPointer pointer, size_t bytes, const CudaAccess* access,
                              size_t count) {
  return WithVirtualMemory([&] {
    const bool on = count > 0 && access->flags == kCudaAccessReadWrite;
    return ForMapped(pointer, bytes, [&](CudaPointer, Block& block) { block.access = on; })
               ? kCudaSuccess
               : kCudaInvalidValue;
  });
}
ATHANOR_DRIVER cuMemGetAllocationGranularity(size_t* bytes, const CudaAllocationProperties*, int) {
  return WithVirtualMemory([&] {
    *bytes = kGranule;
    return kCudaSuccess;
  });
}

// A descriptor here is the matrix's address and the elements of its row.
ATHANOR_DRIVER cuTensorMapEncodeTiled(CudaTensorMap* map, int, uint32_t, void* address,
                                      const uint64_t* sizes, const uint64_t*, const uint32_t*,
                                      const uint32_t*, int, int, int, int) {
  return InContext([&] {
    map->opaque[0] = reinterpret_cast<uint64_t>(address);
    map->opaque[1] = sizes[0];
    return kCudaSuccess;
  });
}
