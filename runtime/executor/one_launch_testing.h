// Makes one launch on a device with recordings, for tests of kernels and queues.
//
//   auto launch = OneLaunch::Record(device, *queue, {.kernel = kernel.get(), .buffers =
//   2}).value(); launch->Set(buffers, bytes, sizes, items); launch->Enqueue(*queue); queue->Wait();
//   launch->error().code
#ifndef ATHANOR_RUNTIME_EXECUTOR_ONE_LAUNCH_TESTING_H_
#define ATHANOR_RUNTIME_EXECUTOR_ONE_LAUNCH_TESTING_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/device/device.h"
#include "runtime/executor/call_block.h"

namespace athanor {

// Must die before the queue.
class OneLaunch {
 public:
  // `launch` lacks only where its arguments lie.
  static absl::StatusOr<std::unique_ptr<OneLaunch>> Record(Device& device, DeviceQueue& queue,
                                                           RecordedLaunch launch) {
    std::unique_ptr<OneLaunch> one(new OneLaunch);
    const CallBlock::Launch launches[] = {{launch.buffers, launch.sizes}};
    ASSIGN_OR_RETURN(one->block_, CallBlock::Create(device, queue, launches, {}, nullptr));
    launch.arguments = one->block_->Recorded(0).arguments;
    ASSIGN_OR_RETURN(one->recording_, queue.Record({launch}));
    return one;
  }

  void Set(absl::Span<void* const> buffers, absl::Span<const int64_t> bytes,
           absl::Span<const int64_t> sizes, int64_t items) {
    const ArgumentWords arguments = block_->arguments(0);
    for (int i = 0; i < arguments.buffers; ++i) {
      arguments.address(i) = reinterpret_cast<int64_t>(buffers[i]);
      arguments.bytes(i) = bytes[i];
    }
    for (int i = 0; i < arguments.sizes; ++i) arguments.size(i) = sizes[i];
    arguments.items() = items;
  }
  absl::Status Enqueue(DeviceQueue& queue) {
    RETURN_IF_ERROR(block_->CopyIn(queue));
    RETURN_IF_ERROR(queue.Replay(*recording_));
    return block_->CopyOut(queue);
  }
  // After a wait.
  const KernelError& error() const { return block_->Error(0); }

 private:
  OneLaunch() = default;
  std::unique_ptr<CallBlock> block_;
  std::unique_ptr<DeviceRecording> recording_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_EXECUTOR_ONE_LAUNCH_TESTING_H_
