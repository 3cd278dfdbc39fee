// Base of devices that change a part of another device: some of its memory, or its queues.
#ifndef ATHANOR_RUNTIME_DEVICE_FORWARDING_DEVICE_H_
#define ATHANOR_RUNTIME_DEVICE_FORWARDING_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/device/device.h"

namespace athanor {

// Forwards everything.
class ForwardingDevice : public Device {
 public:
  // `device` must outlive it.
  explicit ForwardingDevice(Device* device) : device_(*device) {}

  absl::string_view name() const override { return device_.name(); }
  bool host_memory() const override { return device_.host_memory(); }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override {
    return device_.Allocate(kind, bytes);
  }
  bool CommitsLater(MemoryKind kind, int64_t bytes) const override {
    return device_.CommitsLater(kind, bytes);
  }
  absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadKernel(absl::string_view object) override {
    return device_.LoadKernel(object);
  }
  absl::Status CheckCall(const LibraryCall& call) override { return device_.CheckCall(call); }
  int64_t ScratchBytes(int64_t per_item) const override { return device_.ScratchBytes(per_item); }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override {
    return device_.NewQueue(scratch_bytes);
  }

 protected:
  Device& device_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_FORWARDING_DEVICE_H_
