// Addresses for the weights of a large model over 96 MiB of memory. For weights that are read in
// timings, where their values do not matter.
//
//   WalkedMemory memory = WalkedMemory::Create(drawn).value();
//   const char* weight = memory.Map(bytes).value();       // holds what was drawn
//   WalkedDevice large(&device, &memory);                 // in the process that measures
//   PreparedPool pool(&device, nullptr, &large);          // maps large prepared weights
//
// Each range begins in the pages where the previous one ends, cyclically: a page recurs after 96
// MiB, more than caches hold, as weights of layers.h do. The pages are huge, like a server's, if
// the system makes them so on request (MADV_COLLAPSE, Linux 6.1). Ranges share pages, so a write
// into one is visible in others: all must have one dtype of which any element will do
// (WalkedDType).
//
// Rejected: prepared weights of two layers and of all weights that are the only ones of their kind
// (0.5 GB for a billion parameters, and as much again for every plan measured beside another).
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
#include "runtime/device/forwarding_device.h"

namespace athanor {

// Thread-safe after Create. The destructor unmaps all ranges.
class WalkedMemory {
 public:
  // Returns pages filled with `contents`, repeated. Returns RESOURCE_EXHAUSTED if there is no
  // memory or descriptor.
  static absl::StatusOr<std::unique_ptr<WalkedMemory>> Create(absl::string_view contents);
  ~WalkedMemory();
  WalkedMemory(const WalkedMemory&) = delete;
  WalkedMemory& operator=(const WalkedMemory&) = delete;

  // Returns a range, aligned to huge pages, that lives as long as this object. A process forked
  // meanwhile may make its own. Returns RESOURCE_EXHAUSTED if there is no address space.
  absl::StatusOr<char*> Map(size_t bytes);

  static constexpr size_t kBytes = size_t{96} << 20;

 private:
  struct Range {
    char* base;
    size_t bytes;
  };
  explicit WalkedMemory(char* pages) : pages_(pages) {}

  char* const pages_;
  size_t next_ = 0;  // where in the pages the next range begins
  std::vector<Range> ranges_;
};

// Allocates prepared weights in a WalkedMemory; forwards everything else to `device`.
class WalkedDevice : public ForwardingDevice {
 public:
  // `device` and `memory` must outlive it.
  WalkedDevice(Device* device, WalkedMemory* memory) : ForwardingDevice(device), memory_(*memory) {}

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(MemoryKind kind, int64_t bytes) override;

 private:
  WalkedMemory& memory_;
};

// Returns the dtype of all large weights and constants of `plans` (PreparedPool::kLargeBlock) if
// they are floats of one dtype: any element of these can be computed with, while an integer may be
// an index. Returns nullopt if they are not, or if a plan is invalid.
std::optional<std::string> WalkedDType(const std::vector<const v1::Plan*>& plans);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_MEASURE_WALKED_MEMORY_H_
