// Memory for checks that is too large to be anonymous memory: pages of an unnamed file in the
// server's state directory. The system can write them to disk and reclaim them when memory is
// short, while anonymous memory would have to stay. As long as there is room and no page is old,
// nothing is written.
//
//   Scratch scratch = Scratch::Open(kScratchFd);
//   std::optional<SharedMemory> window = scratch.Take(bytes);      // before the fork
//   ScratchDevice large(&device, window->data(), window->bytes()); // in the forked process
//   PreparedPool pool(&device, nullptr, &large);
//   ...
//   scratch.Clear();                                               // after the request
//
// Used for checks, where only values count. Data used in timings lies in memory (walked_memory.h),
// since a file has small pages.
//
// Rejected: one layer's weights at a time. A plan's run would prepare all of them again, and a
// single weight, such as a table of logits, can take 0.5 GB in f64 by itself.
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
#include "runtime/device/forwarding_device.h"
#include "runtime/memory/plan_memory.h"
#include "server/tuner/run/isolated.h"

namespace athanor {

// Used by one thread.
class Scratch {
 public:
  Scratch() = default;  // without a file; Take returns nullopt
  // Takes over the descriptor of a file; the file's size limits what can be taken between two calls
  // of Clear. Fewer than `least` bytes are not taken.
  static Scratch Open(int fd, size_t least = kLeast);
  Scratch(Scratch&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        least_(other.least_),
        bytes_(other.bytes_),
        next_(other.next_) {}
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch();

  // Returns zeroed pages that forked processes share, with disk space allocated for them. Returns
  // nullopt for fewer than the least bytes, which are not worth it, without a file, or without
  // room.
  std::optional<SharedMemory> Take(size_t bytes);
  // Frees pages and disk space. REQUIRES: none of the taken memory is in use
  void Clear();

  static constexpr size_t kLeast = size_t{8} << 20;

 private:
  Scratch(int fd, size_t least, int64_t bytes) : fd_(fd), least_(least), bytes_(bytes) {}

  int fd_ = -1;
  size_t least_ = kLeast;
  int64_t bytes_ = 0, next_ = 0;
};

// Takes the memory from `limits.scratch` if there is one with room, then from what the worker
// shares with this process, or else creates it. RESOURCE_EXHAUSTED: there is none left.
absl::StatusOr<SharedMemory> TakeOrCreate(const IsolationLimits& limits, size_t bytes);
absl::StatusOr<GuardedBytes> TakeOrCreateGuarded(const IsolationLimits& limits, size_t bytes);
// Frees what was taken. REQUIRES: none of it is in use
void ClearTaken(const IsolationLimits& limits);

// Allocates prepared weights in a window while there is room, then from `device`; forwards
// everything else to that device. The start of the window is reused once no allocation lives in it.
class ScratchDevice : public ForwardingDevice {
 public:
  // `device` and `window` must outlive it, and it must outlive its allocations. `window` must be
  // zeroed.
  ScratchDevice(Device* device, char* window, size_t bytes);
  ~ScratchDevice() override;

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override;

 private:
  class Range;
  struct Window;

  const std::unique_ptr<Window> window_;
};

// Returns the bytes that a ScratchDevice allocates when `plan` is loaded once, into a pool that
// passes it large blocks (PreparedPool::kLargeBlock) and shares by these hashes. Returns 0 for an
// invalid plan.
int64_t LargePreparedBytes(const v1::Plan& plan, const ParameterHashes& hashes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_RUN_SCRATCH_H_
