// A device whose queues fail at a chosen call, to show that each call's status reaches the caller.
// For tests.
//
//   FaultyDevice device(inner);
//   device.FailAt(3);          // the fourth call of its queues from now on, counted over all kinds
//   device.FailAt(3, FaultyDevice::When::kAfter);   // although it does what it was called for
//   ... run ...
//   device.failed()            // "Launch", "Record", "Replay", "Copy", "Fill" or "Wait"; empty: no
//   call came that far
#ifndef ATHANOR_RUNTIME_DEVICE_FAULTY_DEVICE_TESTING_H_
#define ATHANOR_RUNTIME_DEVICE_FAULTY_DEVICE_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/device/forwarding_device.h"

namespace athanor {

// For one thread; must outlive its queues.
class FaultyDevice : public ForwardingDevice {
 public:
  explicit FaultyDevice(Device* device) : ForwardingDevice(device) {}

  // Says whether the call that fails is made all the same, as where the error is of an earlier one.
  enum class When : uint8_t { kBefore, kAfter };

  // Negative: no call fails.
  void FailAt(int call, When when = When::kBefore) {
    left_ = call;
    when_ = when;
    failed_.clear();
  }
  const std::string& failed() const { return failed_; }

  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceQueue> queue, device_.NewQueue(scratch_bytes));
    return std::make_unique<Queue>(this, std::move(queue));
  }

 private:
  class Queue : public DeviceQueue {
   public:
    Queue(FaultyDevice* device, std::unique_ptr<DeviceQueue> queue)
        : device_(*device), queue_(std::move(queue)) {}

    absl::Status Launch(const DeviceKernel& kernel, const LaunchArguments& launch) override {
      return device_.Call("Launch", [&] { return queue_->Launch(kernel, launch); });
    }
    absl::StatusOr<std::unique_ptr<DeviceRecording>> Record(
        absl::Span<const RecordedLaunch> launches) override {
      return device_.Call("Record", [&] { return queue_->Record(launches); });
    }
    absl::Status Replay(const DeviceRecording& recording) override {
      return device_.Call("Replay", [&] { return queue_->Replay(recording); });
    }
    Workspace workspace() const override { return queue_->workspace(); }
    absl::Status Copy(void* to, const void* from, int64_t bytes, CopyKind kind) override {
      return device_.Call("Copy", [&] { return queue_->Copy(to, from, bytes, kind); });
    }
    absl::Status Fill(void* to, uint8_t byte, int64_t bytes) override {
      return device_.Call("Fill", [&] { return queue_->Fill(to, byte, bytes); });
    }
    absl::Status Wait() override {
      // Has finished in any case.
      RETURN_IF_ERROR(queue_->Wait());
      return device_.Count("Wait");
    }

   private:
    FaultyDevice& device_;
    const std::unique_ptr<DeviceQueue> queue_;
  };

  // Makes a call of an inner queue, unless that shall fail before it.
  template <typename Make>
  auto Call(const char* call, Make make) -> decltype(make()) {
    const absl::Status status = Count(call);
    if (!status.ok() && when_ == When::kBefore) return status;
    auto made = make();
    if (!status.ok()) return status;
    return made;
  }

  absl::Status Count(const char* call) {
    if (left_ < 0 || left_-- > 0) return absl::OkStatus();
    failed_ = call;
    return absl::UnavailableError(absl::StrCat("lost at ", call));
  }

  int left_ = -1;  // calls before the one that fails
  When when_ = When::kBefore;
  std::string failed_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_DEVICE_FAULTY_DEVICE_TESTING_H_
