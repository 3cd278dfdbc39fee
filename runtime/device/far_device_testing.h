// A device that computes on the host's threads but whose memory the host cannot touch: its pointers
// have a bit set that no address has, so that a host access faults. Its queues run nothing before
// Wait(), so that a missing Wait() shows, and its memory has to be committed. For tests.
//
//   FarDevice far(near.get());
//   auto executable = Executable::Load(plan, objects, parameters, &far, {}).value();
#ifndef ATHANOR_RUNTIME_DEVICE_FAR_DEVICE_TESTING_H_
#define ATHANOR_RUNTIME_DEVICE_FAR_DEVICE_TESTING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/mutex.h"
#include "gtest/gtest.h"
#include "runtime/device/forwarding_device.h"

namespace athanor {

// Thread-safe. Queues return INTERNAL for what a device could not do: a buffer or a copy outside
// all blocks of memory or where one is not committed, a host pointer for a device's or the reverse.
// Dying with calls that nobody waited for, a queue ends the process.
class FarDevice : public ForwardingDevice {
 public:
  // `near` computes in host memory and must outlive it.
  explicit FarDevice(Device* near) : ForwardingDevice(near) {}

  absl::string_view name() const override { return "far"; }
  bool host_memory() const override { return false; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override;

  // Returns where the bytes really are; of a host pointer, itself.
  static void* Near(const void* data);
  // Returns whether `bytes` from this device pointer on lie in one block, and are committed.
  bool Holds(const void* data, int64_t bytes) const;

 private:
  class Memory;
  class Queue;

  mutable Mutex mu_;
  std::map<uintptr_t, const Memory*> blocks_ ABSL_GUARDED_BY(mu_);  // by device address
};

// A device of the host and the far one over it, for tests that run on either: TEST_P of a
// TestWithParam<bool>, which says whether it is the far one.
template <typename Near>
class EitherDevice {
 public:
  EitherDevice(std::unique_ptr<Near> near, bool far) : near_(std::move(near)), is_far_(far) {}
  Device* get() { return is_far_ ? static_cast<Device*>(&far_) : near_.get(); }
  Device* operator->() { return get(); }

 private:
  const std::unique_ptr<Near> near_;
  const bool is_far_;
  FarDevice far_{near_.get()};
};

inline std::string EitherDeviceName(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Far" : "Host";
}

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_FAR_DEVICE_TESTING_H_
