// Memory that runs keep for later runs, parted into blocks of slots: keys and values of tokens.
//
//   auto states = StateMemory::Create(&device, ledger, {{"k0", "keys", 768}, {"v0", "values",
//   768}},
//                                     /*slots=*/4096, /*block=*/16).value();
//   RETURN_IF_ERROR(states->Commit(3));  // slots [48, 64) of each state, before a run writes them
//   states->Decommit(3);                 // after the last run that reads them
//
// All plans of a version use one such memory: another plan may take over between two runs. A state
// lies at one address from creation on, so that recordings may name it; its memory is charged and
// there as long as a block needs it. A new block has any bytes. Used by one thread at a time, and
// not while a run is in flight that uses the block.
//
// A device gives memory by granules, of 2 MiB where a CPU has huge pages. With states one behind
// the other, the first block of SmolLM2's 60 states takes 120 MiB of them for its 0.7. Side by side
// (kByBlock) its parts lie together, and those of the next block behind them:
//
//   k0 block 0 | v0 block 0 | ... | v29 block 0 | k0 block 1 | v0 block 1 | ...
//
// Kernels know nothing of that: from the first byte of a state on they count blocks of its own
// size. Tables therefore name block b by b * stride().
#ifndef ATHANOR_RUNTIME_MEMORY_STATE_MEMORY_H_
#define ATHANOR_RUNTIME_MEMORY_STATE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/device/memory_ledger.h"
#include "runtime/memory/committed_memory.h"

namespace athanor {

class StateMemory {
 public:
  struct Spec {
    std::string name;
    std::string layout;      // how its slots lie in a block; plans that use it name the same
    int64_t slot_bytes = 0;  // at least 1
  };
  enum class Order {
    kByState,  // each state's blocks lie together, and stride() is 1
    // Side by side where all states have slots of one size, and blocks end at cache lines; else as
    // kByState.
    kByBlock,
  };

  // Reserves addresses for all slots, and memory where the device has no granules. `device` and
  // `ledger`, which may be null, must outlive it. INVALID_ARGUMENT: no state, a name given twice, a
  // size below 1, slots that are no multiple of `block`. RESOURCE_EXHAUSTED: there are not so many
  // bytes.
  static absl::StatusOr<std::unique_ptr<StateMemory>> Create(Device* device, MemoryLedger* ledger,
                                                             std::vector<Spec> specs, int64_t slots,
                                                             int64_t block,
                                                             Order order = Order::kByState);

  // Makes a block's slots usable, in all states or none. RESOURCE_EXHAUSTED if the ledger or the
  // device refuses. Does nothing if they are. REQUIRES: 0 <= block < blocks()
  absl::Status Commit(int64_t block);
  // Gives back what no other block shares of a block's memory. Does nothing if the block is not
  // committed. REQUIRES: 0 <= block < blocks()
  void Decommit(int64_t block);

  const std::vector<Spec>& specs() const { return specs_; }
  char* data(int state) const { return memory_.data() + places_[state]; }
  // Returns how many slots kernels may name from a state's first byte on.
  int64_t slots() const { return blocks() * stride_ * slots_of_block_; }
  // Returns by what tables multiply a block's number: kernels find block b at b * stride().
  int64_t stride() const { return stride_; }
  int64_t blocks() const { return static_cast<int64_t>(committed_.size()); }
  int64_t charged_bytes() const { return memory_.charged_bytes(); }

 private:
  StateMemory(MemoryLedger* ledger, std::vector<Spec> specs, int64_t block)
      : specs_(std::move(specs)), slots_of_block_(block), memory_(ledger, MemoryKind::kStates) {}
  // Calls `range` with the place of the block's slots in each state, ascending.
  void RangesOf(int64_t block, CommittedMemory::Range range) const;
  // Calls `use` with each granule of the block, as often as a state has it.
  void ForGranules(int64_t block, absl::FunctionRef<void(int64_t granule)> use) const;

  const std::vector<Spec> specs_;
  const int64_t slots_of_block_;
  int64_t stride_ = 1;
  std::vector<int64_t> places_;  // by state: its first byte
  std::vector<bool> committed_;  // by block
  std::vector<uint32_t> users_;  // by granule: how many committed blocks of a state have a part
  CommittedMemory memory_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_MEMORY_STATE_MEMORY_H_
