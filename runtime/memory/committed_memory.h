// A block of device memory that is charged and committed granule by granule, as it is used.
//
//   CommittedMemory memory(ledger, MemoryKind::kArena);
//   RETURN_IF_ERROR(memory.Allocate(device, bytes));
//   RETURN_IF_ERROR(memory.Use([&](auto range) { range(offset, bytes); }));
//   // ...kernels use [offset, offset + bytes)
//   memory.Release();
//
// Where a device has no granules, everything is charged and usable from Allocate() on. Used by one
// thread at a time, and by none while work is in flight that uses the memory.
#ifndef ATHANOR_RUNTIME_MEMORY_COMMITTED_MEMORY_H_
#define ATHANOR_RUNTIME_MEMORY_COMMITTED_MEMORY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/device/device.h"
#include "runtime/device/memory_ledger.h"

namespace athanor {

class CommittedMemory {
 public:
  using Range = absl::FunctionRef<void(int64_t offset, int64_t bytes)>;

  // `ledger` may be null and must outlive this.
  CommittedMemory(MemoryLedger* ledger, MemoryKind kind) : charge_(ledger, kind), kind_(kind) {}

  // Reserves `bytes`, at least 1. RESOURCE_EXHAUSTED if there are not so many, or the ledger
  // refuses what is not committed later. Call once. `device` must outlive this.
  absl::Status Allocate(Device& device, int64_t bytes);

  // Charges and commits what `ranges` names and is not committed yet; new granules are zero. If it
  // is refused, everything stays as it was. `ranges` is called several times, must name the same
  // ranges each time, by ascending offsets, inside the memory. Allocates nothing.
  absl::Status Use(absl::FunctionRef<void(Range)> ranges);

  // Gives memory back to the system: all of it, or granules [first, end). They have to be used
  // again before kernels may touch them.
  void Release() { Release(0, granules()); }
  void Release(int64_t first, int64_t end);

  // Returns the bytes of a granule; 0: everything is there as long as this lives.
  int64_t granule() const { return granules_.empty() ? 0 : memory_->granularity(); }
  int64_t granules() const { return static_cast<int64_t>(granules_.size()); }
  char* data() const { return static_cast<char*>(memory_->data()); }
  int64_t bytes() const { return memory_->bytes(); }
  int64_t charged_bytes() const { return charge_.bytes(); }

 private:
  // A granule without memory; one that may be used; one that the system did not take back: it takes
  // memory, but has to be committed before use.
  enum class Granule : uint8_t { kNone, kCommitted, kStale };

  // Calls `use` with each run [first, end) of granules that `ranges` touch and that are not
  // committed, ascending.
  void ForUncommitted(absl::FunctionRef<void(Range)> ranges,
                      absl::FunctionRef<void(int64_t first, int64_t end)> use) const;
  // Gives granules [first, end) back, and notes which the system did not take.
  void Decommit(int64_t first, int64_t end);

  MemoryCharge charge_;
  const MemoryKind kind_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<Granule> granules_;  // empty: all of it is committed
  int64_t held_ = 0;               // of them, those that take memory
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_MEMORY_COMMITTED_MEMORY_H_
