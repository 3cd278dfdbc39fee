// The interface that a backend implements so that the executor can run plans on it. A backend is a
// folder with the same file names as cpu/: device.h, module.h, ...
//
//   absl::StatusOr<std::unique_ptr<CpuDevice>> device =
//       CpuDevice::Create({.threads = 2});
//   auto kernel = (*device)->LoadKernel(object).value();
//   auto queue = (*device)->NewQueue(/*scratch_bytes=*/0).value();
//   KernelError error;
//   absl::Status status = queue->Launch(
//       *kernel, {.buffers = table, .bytes = bytes, .sizes = sizes, .grid = 8, .error = &error});
//   if (status.ok()) status = queue->Wait();   // then `error` is set, or still 0
//
// A device whose kernels do not read host pointers has recordings instead of launches:
//
//   auto recording = queue->Record({{.kernel = kernel.get(), .arguments = words, ...}}).value();
//   absl::Status status = queue->Replay(*recording);   // as often as wanted
#ifndef ATHANOR_RUNTIME_DEVICE_DEVICE_H_
#define ATHANOR_RUNTIME_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/device/kernel_abi.h"
#include "runtime/device/library_call.h"
#include "runtime/device/memory_ledger.h"

namespace athanor {

// A block of device memory, given back on destruction. Commit and Decommit are called by one thread
// at a time, and by no thread while work is in flight that uses their range.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  void* data() const { return data_; }  // 64-byte aligned
  int64_t bytes() const { return bytes_; }
  // Returns the bytes of a granule, the least that is committed; 0: all is there as long as this
  // lives, and Commit and Decommit do nothing.
  virtual int64_t granularity() const { return 0; }
  // Makes all granules of [offset, offset + bytes) usable; those that were not are zero. Returns
  // RESOURCE_EXHAUSTED, with what is free, and leaves everything as it was. REQUIRES: the range
  // lies in this memory
  virtual absl::Status Commit(int64_t offset, int64_t bytes) { return absl::OkStatus(); }
  // Gives all granules back to the system: what is used again has to be committed again. Returns
  // the bytes that the system did not take back, which stay charged.
  int64_t Decommit() { return Decommit(0, bytes()); }
  // Does the same for the whole granules in [offset, offset + bytes), or pages where these are
  // smaller. REQUIRES: the range lies in this memory
  virtual int64_t Decommit(int64_t offset, int64_t bytes) { return 0; }

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

// Arguments of one launch on a device of host memory. What they point to must live, and stay as it
// is, until the queue's next Wait() returns.
struct LaunchArguments {
  absl::Span<void* const> buffers;  // in the order of the kernel's buffer table
  absl::Span<const int64_t> bytes;  // of each buffer: the kernel touches nothing behind them
  absl::Span<const int64_t> sizes;  // the kernel's size arguments
  int64_t grid = 0;                 // work items [0, grid); at least 1
  int team = 1;                     // threads that compute an item together, as the kernel says
  int64_t work = 0;                 // flops plus moved bytes; small launches stay on one thread
  bool one_thread = false;          // debugging: work items in order, by one team
  // Required, with code 0 before the launch: receives the error of the lowest failed item.
  KernelError* error = nullptr;
};

// A launch of a recording. Its arguments lie in the device's memory, and are read each time it
// runs. Or a call of the library, whose buffers lie at the same addresses each time.
struct RecordedLaunch {
  const DeviceKernel* kernel = nullptr;
  const void* arguments = nullptr;    // as ArgumentWords
  int buffers = 0, sizes = 0;         // of them
  int64_t most_items = 1;             // work items of any time, which has from 0 to so many
  int team = 1;                       // as LaunchArguments
  bool one_thread = false;            // as LaunchArguments
  const LibraryCall* call = nullptr;  // instead of a kernel; CheckCall() was OK
  LibraryBuffers call_buffers;        // committed by the time it runs
  absl::string_view label;            // of a call's step, which errors name
};

// Launches in order, made ready to be run many times by the queue that made it. Must die before the
// queue and its kernels, and not while it runs.
class DeviceRecording {
 public:
  virtual ~DeviceRecording() = default;
  // Returns how long its launches took the last time, by the device's clock; nullopt if it keeps no
  // times. REQUIRES: it was replayed, and waited for
  virtual absl::StatusOr<std::optional<double>> Seconds() const { return std::nullopt; }
};

// Memory in which kernels have scratch.
struct Workspace {
  void* data = nullptr;
  int64_t bytes_per_team = 0;
};

// Says which side of a copy is host memory.
enum class CopyKind : uint8_t { kToDevice, kToHost, kOnDevice };

// Runs launches, copies and fills in order: each sees what those before it wrote. Used by one
// thread at a time; any number of queues run side by side. Must die before its device.
//
// The calls only queue, or may; an error of what they queued may be returned by any later call. It
// says that what was queued since the last Wait() may not have run. UNAVAILABLE: the device is
// lost, and every later call says so too.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Allocates nothing, like Copy, Fill and Replay. `error` is written by the time Wait() returns.
  // REQUIRES: the device has host_memory()
  virtual absl::Status Launch(const DeviceKernel& kernel, const LaunchArguments& launch);
  // Takes as long as many launches. REQUIRES, as Replay and workspace: it has no host_memory()
  virtual absl::StatusOr<std::unique_ptr<DeviceRecording>> Record(
      absl::Span<const RecordedLaunch> launches);
  // Has what is recorded from now on keep times, if the device has a clock.
  virtual void TimeRecordings() {}
  // The arguments are read before Wait() returns. An error of an item is in its launch's slot.
  virtual absl::Status Replay(const DeviceRecording& recording);
  // Returns the memory that the arguments of each launch in this queue name.
  virtual Workspace workspace() const { return {}; }
  // Host memory needs no alignment and must live until Wait() returns; what of it changes before
  // may arrive as it was at any time until then. The two ranges must not overlap; those of no bytes
  // may be anything. REQUIRES: bytes >= 0
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) = 0;
  // Sets bytes of device memory. REQUIRES: bytes >= 0
  virtual absl::Status Fill(void* to, uint8_t byte, int64_t bytes) = 0;
  // Returns when everything so far has finished, also if that failed.
  virtual absl::Status Wait() = 0;
};

// Thread-safe. Must outlive everything that came from it.
class Device {
 public:
  virtual ~Device() = default;
  virtual absl::string_view name() const = 0;  // as in Target.device: "cpu"
  // Returns whether kernels read and write host pointers directly.
  virtual bool host_memory() const = 0;
  // Reserves `bytes`, at least 1, to be committed before use. RESOURCE_EXHAUSTED if there are not
  // so many.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind,
                                                                 int64_t bytes) = 0;
  // Returns whether that takes addresses only, and Commit the memory. REQUIRES: as Allocate
  virtual bool CommitsLater(MemoryKind kind, int64_t bytes) const = 0;
  // Loads a copy of a finished kernel object. INVALID_ARGUMENT or FAILED_PRECONDITION if it does
  // not load here.
  virtual absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadKernel(absl::string_view object) = 0;
  // Checks that the library of this device computes a call as it is: its version, its algorithm.
  // FAILED_PRECONDITION: there is no library, or another version; INVALID_ARGUMENT: it computes no
  // such product in this way.
  virtual absl::Status CheckCall(const LibraryCall& call);
  // Returns the bytes that a queue holds for kernels whose work items need `per_item` bytes of
  // scratch, as each item that runs at the same time, of teams of one, has its own; the largest
  // int64_t if there are more. REQUIRES: per_item >= 0
  virtual int64_t ScratchBytes(int64_t per_item) const = 0;
  // `scratch_bytes` per item: the most that any launch in this queue needs.
  virtual absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) = 0;
};

inline absl::Status Device::CheckCall(const LibraryCall& call) {
  return absl::FailedPreconditionError(
      absl::StrCat("device '", name(), "' calls no library; ", call.library, " is that of a GPU"));
}
inline absl::Status DeviceQueue::Launch(const DeviceKernel&, const LaunchArguments&) {
  return absl::InternalError("a launch on a device that has recordings");
}
inline absl::StatusOr<std::unique_ptr<DeviceRecording>> DeviceQueue::Record(
    absl::Span<const RecordedLaunch>) {
  return absl::InternalError("a recording on a device that has launches");
}
inline absl::Status DeviceQueue::Replay(const DeviceRecording&) {
  return absl::InternalError("a recording on a device that has launches");
}

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_DEVICE_H_
