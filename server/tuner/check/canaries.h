// A device whose launches find gaps between their arguments, filled with a pattern: what a kernel
// writes there is an error, and what it reads there is no value that it could be right with.
//
//   CanaryDevice guarded(gpu);
//   auto plan = Executable::Load(plan, objects, parameters, &guarded, {.poison = true});
//
// The arena places tensors one behind the other, and a GPU has no inaccessible page between them.
// So each launch works on copies of its arguments that lie apart; they are copied back, and the
// gaps are read by copies that the kernel has no part in. Arguments that overlap are one copy. A
// library call, whose addresses are recorded, works where its buffers lie.
#ifndef ATHANOR_SERVER_TUNER_CHECK_CANARIES_H_
#define ATHANOR_SERVER_TUNER_CHECK_CANARIES_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/device/forwarding_device.h"

namespace athanor {

// For checks on a device with recordings: each launch is waited for. A replay returns DATA_LOSS if
// a kernel wrote beside an argument. Arguments of more than kMostBytes in all, or for which no
// memory is left, stay where they are.
class CanaryDevice : public ForwardingDevice {
 public:
  static constexpr int64_t kMostBytes = int64_t{256} << 20;

  using ForwardingDevice::ForwardingDevice;

  absl::StatusOr<std::unique_ptr<DeviceQueue>> NewQueue(int64_t scratch_bytes) override;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_CANARIES_H_
