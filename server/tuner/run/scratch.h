// Memory of checks that is too large to be a process's own: pages of a file without a name in the
// server's state directory. The system writes them to the disk and takes them back when memory is
// wanted, where anonymous memory would have to stay; nothing is written for as long as there is
// room and no page is old.
//
//   Scratch scratch = Scratch::Open(kScratchFd);
//   std::optional<SharedMemory> window = scratch.Take(bytes);      // before the fork
//   ScratchDevice large(&device, window->data(), window->bytes()); // in the forked process
//   PreparedPool pool(&device, nullptr, &large);
//   ...
//   scratch.Clear();                                               // after the request
//
// For what is checked, whose values count; what is timed lies in memory (walked_memory.h), since
// pages of a file are small.
//
// Rejected: one layer's weights at a time (a plan's run would prepare all of them again, and a
// weight alone of its kind, such as a table of logits, takes 0.5 GB in f64 all the same).
#ifndef ATHANOR_SERVER_TUNER_RUN_SCRATCH_H_
#define ATHANOR_SERVER_TUNER_RUN_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/device.h"
#include "runtime/plan_memory.h"
#include "server/tuner/run/forwarding_device.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Used by one thread.
class Scratch {
 public:
  Scratch() = default;  // there is no file: nothing can be taken
  // Takes over the descriptor of a file whose size is the most that can be taken between two Clear.
  static Scratch Open(int fd);
  Scratch(Scratch&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_), next_(other.next_) {}
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch();

  // Zeroed pages that forked processes see as well; room on the disk is set aside for them.
  // nullopt: fewer than kLeast bytes, which are not worth it, no file, or no room.
  std::optional<SharedMemory> Take(size_t bytes);
  // Gives pages and room back. REQUIRES: nothing that was taken lives.
  void Clear();

  static constexpr size_t kLeast = size_t{8} << 20;

 private:
  Scratch(int fd, int64_t bytes) : fd_(fd), bytes_(bytes) {}

  int fd_ = -1;
  int64_t bytes_ = 0, next_ = 0;
};

// In `scratch`, if it is not null and has the room, or in memory.
absl::StatusOr<SharedMemory> TakeOrCreate(Scratch* scratch, size_t bytes);
absl::StatusOr<GuardedBytes> TakeOrCreateGuarded(Scratch* scratch, size_t bytes);

// Allocates prepared weights in a window as long as there is room, else from `device`, and is that
// device otherwise. The window's beginning is used again once nothing lives in it.
class ScratchDevice : public ForwardingDevice {
 public:
  // Both outlive it, and it outlives what it allocates. `window` is zeroed.
  ScratchDevice(Device* device, char* window, size_t bytes);
  ~ScratchDevice() override;

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override;

 private:
  class Range;
  struct Window;

  const std::unique_ptr<Window> window_;
};

// What a ScratchDevice is asked for when `plan` is loaded once, into a pool that gives it what is
// large (PreparedPool::kLargeBlock) and shares by these hashes. 0 of a plan that cannot be read.
int64_t LargePreparedBytes(const v1::Plan& plan, const ParameterHashes& hashes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_SCRATCH_H_
