// A large model's worth of addresses over 96 MiB of memory: for weights that are read to be timed,
// whose values do not matter.
//
//   WalkedMemory memory = WalkedMemory::Create(drawn).value();
//   const char* weight = memory.Map(bytes).value();       // holds what was drawn
//   WalkedDevice large(&device, &memory);                 // in the process that measures
//   PreparedPool pool(&device, nullptr, &large);          // large prepared weights are mapped
//   there
//
// Each range begins in the pages where the one before it ends, round and round: what is walked
// through comes back after 96 MiB, more than caches hold, as weights of layers.h do. The pages are
// huge where the system makes them so on request (MADV_COLLAPSE, Linux 6.1), as a server's are.
// Ranges share pages, so what is written into one is read from others: they have to be of one
// dtype, of which any element will do (WalkedDType).
//
// Rejected: prepared weights of two layers and all that are alone of their kind (0.5 GB for a
// billion parameters, as much again for every plan that is measured beside another).
#ifndef ATHANOR_SERVER_TUNER_MEASURE_WALKED_MEMORY_H_
#define ATHANOR_SERVER_TUNER_MEASURE_WALKED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/device.h"
#include "server/tuner/run/forwarding_device.h"

namespace athanor {

// Thread-safe once made. Unmapped on destruction, with all ranges.
class WalkedMemory {
 public:
  // Pages that hold `contents` again and again. RESOURCE_EXHAUSTED: no memory or descriptor.
  static absl::StatusOr<std::unique_ptr<WalkedMemory>> Create(absl::string_view contents);
  ~WalkedMemory();
  WalkedMemory(const WalkedMemory&) = delete;
  WalkedMemory& operator=(const WalkedMemory&) = delete;

  // A range, aligned to huge pages, that lives as long as this. A process forked meanwhile may make
  // its own. RESOURCE_EXHAUSTED: no address space.
  absl::StatusOr<char*> Map(size_t bytes);

  static constexpr size_t kBytes = size_t{96} << 20;

 private:
  struct Range {
    char* base;
    size_t bytes;
  };
  explicit WalkedMemory(char* pages) : pages_(pages) {}

  char* const pages_;
  size_t next_ = 0;  // where in them the next range begins
  std::vector<Range> ranges_;
};

// Allocates prepared weights there, and is `device` else.
class WalkedDevice : public ForwardingDevice {
 public:
  // Both outlive it.
  WalkedDevice(Device* device, WalkedMemory* memory) : ForwardingDevice(device), memory_(*memory) {}

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override;

 private:
  WalkedMemory& memory_;
};

// The dtype of all weights and constants of `plans` that are large (PreparedPool::kLargeBlock), if
// they are floats of one dtype: any element of those is as good to compute with as another, where
// an integer may be an index. nullopt: they are not, or a plan cannot be read.
std::optional<std::string> WalkedDType(const std::vector<const v1::Plan*>& plans);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_WALKED_MEMORY_H_
