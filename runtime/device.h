// The interface that a backend implements so that the executor can run plans on it. A backend is a
// folder with the same file names as cpu/: device.h, module.h, ...
//
//   absl::StatusOr<std::unique_ptr<CpuDevice>> device =
//       CpuDevice::Create({.threads = 2});
//   auto kernel = (*device)->LoadKernel(object).value();
//   auto queue = (*device)->NewQueue(/*scratch_bytes=*/0).value();
//   KernelError error;
//   queue->Launch(*kernel, {.buffers = table, .sizes = sizes, .grid = 8,
//                           .error = &error});
//   queue->Wait();
#ifndef ATHANOR_RUNTIME_DEVICE_H_
#define ATHANOR_RUNTIME_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/kernel_abi.h"
#include "runtime/memory_ledger.h"

namespace athanor {

// A block of device memory, given back on destruction.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  void* data() const { return data_; }  // 64-byte aligned
  int64_t bytes() const { return bytes_; }
  // Smallest amount of memory that is committed at once, in bytes.
  virtual int64_t granularity() const { return 1; }
  // Gives unused pages back to the system; contents are undefined afterwards.
  virtual void Decommit() {}
  // Does the same for the whole pages in [offset, offset + bytes).
  virtual void Decommit(int64_t offset, int64_t bytes) {}

 protected:
  DeviceMemory(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}

 private:
  void* const data_;
  const int64_t bytes_;
};

// A loaded kernel. Immutable: any number of queues may launch it at once. Must die before its
// device.
class DeviceKernel {
 public:
  virtual ~DeviceKernel() = default;
};

// Arguments of one launch. What they point to must live until the queue's next Wait() returns.
struct LaunchArguments {
  void* const* buffers = nullptr;
  const int64_t* sizes = nullptr;
  int64_t grid = 0;         // work items [0, grid); at least 1
  int64_t work = 0;         // flops plus moved bytes; small launches stay on one thread
  bool one_thread = false;  // debugging: work items in order on one thread
  // Required, with code 0 before the launch: receives the error of the lowest failed item.
  KernelError* error = nullptr;
};

// Runs launches in order: each sees what those before it wrote. Used by one thread at a time; any
// number of queues run side by side. Must die before its device.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Allocates nothing. `error` is written by the time Wait() returns.
  virtual void Launch(const DeviceKernel& kernel, const LaunchArguments& launch) = 0;
  // Returns when all launches so far have finished.
  virtual void Wait() = 0;
};

struct DeviceCapability {
  bool host_memory = false;  // kernels read and write host pointers directly
  int threads = 1;           // threads that share a launch; each has its own scratch
};

// Thread-safe. Must outlive everything that came from it.
class Device {
 public:
  virtual ~Device() = default;
  virtual absl::string_view name() const = 0;  // "cpu"
  virtual DeviceCapability capability() const = 0;
  // Reserves address space for `bytes`, committed on use and zero at first; at least 1 byte.
  // RESOURCE_EXHAUSTED if there is none.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind,
                                                                 int64_t bytes) = 0;
  // Loads a copy of a finished kernel object. INVALID_ARGUMENT or FAILED_PRECONDITION if it does
  // not load here.
  virtual absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadKernel(absl::string_view object) = 0;
  // `scratch_bytes` per thread: the most that any launch in this queue needs.
  virtual absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) = 0;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_H_
