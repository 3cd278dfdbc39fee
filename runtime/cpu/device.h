// The CPU as a device: kernels are shared objects in this process, memory is the process's own, and
// one thread pool shares out the launches.
//
//   absl::StatusOr<std::unique_ptr<CpuDevice>> device =
//       CpuDevice::Create({.threads = 2});
#ifndef ATHANOR_RUNTIME_CPU_DEVICE_H_
#define ATHANOR_RUNTIME_CPU_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/device/device.h"
#include "runtime/device/kernel_abi.h"

namespace athanor {

// Thread-safe. Launches, copies and fills return when they are done, so Wait() is empty.
class CpuDevice : public Device {
 public:
  // Errors are those of ThreadPool::Create.
  static absl::StatusOr<std::unique_ptr<CpuDevice>> Create(const ThreadPoolOptions& options);

  absl::string_view name() const override { return "cpu"; }
  bool host_memory() const override { return true; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override;
  // The system commits pages as they are touched.
  bool CommitsLater(MemoryKind, int64_t) const override { return true; }
  absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadKernel(absl::string_view object) override;
  int64_t ScratchBytes(int64_t per_item) const override;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override;

  // Wraps a kernel that is linked into this program, for tests and tools.
  static std::unique_ptr<DeviceKernel> WrapKernel(CpuKernel entry);

  // A launch with less work (flops plus moved bytes) stays on the calling thread: it is over before
  // a second thread would pay.
  static constexpr int64_t kSharedWork = 64 << 10;

 protected:
  explicit CpuDevice(std::unique_ptr<ThreadPool> pool) : pool_(std::move(pool)) {}

 private:
  const std::unique_ptr<ThreadPool> pool_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CPU_DEVICE_H_
