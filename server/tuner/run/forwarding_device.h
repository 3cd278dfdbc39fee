// Base of devices that allocate some memory elsewhere and forward the rest to another device.
#ifndef ATHANOR_SERVER_TUNER_RUN_FORWARDING_DEVICE_H_
#define ATHANOR_SERVER_TUNER_RUN_FORWARDING_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/device.h"

namespace athanor {

// Forwards everything but Allocate, which the derived class implements.
class ForwardingDevice : public Device {
 public:
  // `device` must outlive it.
  explicit ForwardingDevice(Device* device) : device_(*device) {}

  absl::string_view name() const override { return device_.name(); }
  DeviceCapability capability() const override { return device_.capability(); }
  absl::StatusOr<std::unique_ptr<DeviceKernel>> LoadKernel(absl::string_view object) override {
    return device_.LoadKernel(object);
  }
  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override {
    return device_.NewQueue(scratch_bytes);
  }

 protected:
  Device& device_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_FORWARDING_DEVICE_H_
