// The driver's functions for memory, copies and fills.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/emulator/device.h"

using namespace athanor;            // NOLINT: every function below is of its interface
using namespace athanor::emulator;  // NOLINT

namespace {

// Lies between any two blocks, so that reaching from one into the next is noticed.
constexpr size_t kGap = 256;

// Keeps freed memory for a while, so that what still uses its address does not meet a new block
// there.
void Forget(void* host, size_t bytes) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  device.freed.emplace_back(host, bytes);
  device.freed_bytes += bytes;
  while (device.freed_bytes > kMostBytes) {
    device.freed_bytes -= device.freed.front().second;
    std::free(device.freed.front().first);
    device.freed.pop_front();
  }
}

CudaResult EnqueueCopy(const CopyEnd& to, const CopyEnd& from, size_t bytes, CudaStream handle) {
  return InContext([&]() -> CudaResult {
    Stream* const stream = FindStream(handle);
    if (stream == nullptr) return kCudaInvalidHandle;
    if (const CudaResult result = CheckCopy(to, from, bytes); result != kCudaSuccess) return result;
    Enqueue(*stream, [=] { Copy(to, from, bytes); });
    return kCudaSuccess;
  });
}

}  // namespace

ATHANOR_DRIVER cuMemGetInfo_v2(size_t* free, size_t* total) {
  return InContext([&] {
    *total = TheMachine().bytes;
    *free = *total - device.used_bytes;
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuMemAlloc_v2(CudaPointer* pointer, size_t bytes) {
  return InContext([&]() -> CudaResult {
    if (bytes == 0) return kCudaInvalidValue;
    if (bytes > TheMachine().bytes - device.used_bytes) return kCudaOutOfMemory;
    void* const host = std::aligned_alloc(kGap, (bytes + 2 * kGap - 1) / kGap * kGap);
    if (host == nullptr) return kCudaOutOfMemory;
    std::memset(host, kUnwritten, std::min(bytes, TheMachine().most_moved));
    *pointer = reinterpret_cast<CudaPointer>(host) | kDeviceBit;
    device.blocks[*pointer] = {bytes};
    device.used_bytes += bytes;
    return kCudaSuccess;
  });
}
// Waits for no stream: work that still needs the memory loses the device.
ATHANOR_DRIVER cuMemFree_v2(CudaPointer pointer) {
  return InContext([&]() -> CudaResult {
    if (pointer == 0) return kCudaSuccess;
    const auto block = device.blocks.find(pointer);
    if (block == device.blocks.end() || block->second.mapped) return kCudaInvalidValue;
    device.used_bytes -= block->second.bytes;
    Forget(HostAddress(pointer), block->second.bytes);
    device.blocks.erase(block);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  return InContext([&]() -> CudaResult {
    if (bytes == 0) return kCudaInvalidValue;
    *pointer = std::malloc(bytes);
    return *pointer != nullptr ? kCudaSuccess : kCudaOutOfMemory;
  });
}
ATHANOR_DRIVER cuMemFreeHost(void* pointer) {
  return InContext([&] {
    std::free(pointer);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuMemcpyHtoDAsync_v2(CudaPointer to, const void* from, size_t bytes,
                                    CudaStream stream) {
  return EnqueueCopy({.device = to}, {.host = const_cast<void*>(from)}, bytes, stream);
}
ATHANOR_DRIVER cuMemcpyDtoHAsync_v2(void* to, CudaPointer from, size_t bytes, CudaStream stream) {
  return EnqueueCopy({.host = to}, {.device = from}, bytes, stream);
}
ATHANOR_DRIVER cuMemcpyDtoDAsync_v2(CudaPointer to, CudaPointer from, size_t bytes,
                                    CudaStream stream) {
  return EnqueueCopy({.device = to}, {.device = from}, bytes, stream);
}
ATHANOR_DRIVER cuMemsetD8Async(CudaPointer to, unsigned char value, size_t bytes,
                               CudaStream handle) {
  return InContext([&]() -> CudaResult {
    Stream* const stream = FindStream(handle);
    if (stream == nullptr) return kCudaInvalidHandle;
    if (bytes != 0 && Reach(to, bytes) == nullptr) return kCudaInvalidValue;
    Enqueue(*stream, [=] {
      device.now_ms += 0.002 + double(bytes) / 2e9;
      if (bytes == 0) return;
      void* const host = Reach(to, bytes);
      if (host == nullptr) {
        return Lose(kCudaIllegalAddress, "memory was freed before its fill was waited for");
      }
      std::memset(host, value, std::min(bytes, TheMachine().most_moved));
    });
    return kCudaSuccess;
  });
}
