// Memory of constants, prepared weights and weights on a device, shared by the plans that want the
// same bytes: one block per key, as long as a plan holds it.
//
//   PreparedPool pool(device, ledger);
//   std::optional<PreparedPool::Block> block = pool.Find(key);
//   if (!block) {
//     std::vector<PreparedPool::Block> made = pool.Allocate({bytes}).value();
//     ... fill made[0] ...
//     block = pool.Publish(key, made[0]);
//   }
//
// Blocks that are allocated together are adjacent, in order, in one slab of device memory: a plan's
// weights follow each other on huge pages, as steps walk through them. A block that is freed gives
// its pages back while the rest of its slab stays.
//
// Rejected: a mapping per block (weights of one to eight megabytes would lie on small pages, or
// waste part of a huge one); waiting for another loader that makes the same block (a failed or
// cancelled load would have to wake the others; two copies during a load cost less).
#ifndef ATHANOR_RUNTIME_MEMORY_PREPARED_POOL_H_
#define ATHANOR_RUNTIME_MEMORY_PREPARED_POOL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/device/memory_ledger.h"

namespace athanor {

// SHA-256 of what makes the bytes (plan_memory.h); empty: not shared.
using PreparedKey = std::string;

// Thread-safe. Its device and ledger must outlive it and its blocks; blocks may outlive the pool.
class PreparedPool {
 public:
  // A block, shared by its copies. The last copy gives the memory back, also to the ledger.
  class Block {
   public:
    Block() = default;  // holds nothing
    void* data() const;
    int64_t bytes() const;  // a multiple of kAlignment
    explicit operator bool() const { return memory_ != nullptr; }

   private:
    friend class PreparedPool;
    struct Memory;
    explicit Block(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}
    std::shared_ptr<Memory> memory_;
  };

  // `ledger` may be null. If `large` is given, blocks of kLargeBlock bytes or more are allocated
  // there, each by itself: that device decides where their pages lie. It must outlive the blocks
  // too.
  PreparedPool(Device* device, MemoryLedger* ledger, Device* large = nullptr);
  PreparedPool(const PreparedPool&) = delete;
  PreparedPool& operator=(const PreparedPool&) = delete;

  // Returns the block of `key`; nullopt if nobody holds it or the key is empty.
  std::optional<Block> Find(const PreparedKey& key) const;
  // A block to be allocated. Those that are freed after loading (`brief`) lie apart from those that
  // stay, so that all of their memory can be given back.
  struct Wanted {
    Wanted(int64_t b, bool is_brief = false)  // NOLINT: a number is a block that stays
        : bytes(b), brief(is_brief) {}
    int64_t bytes;
    bool brief;
  };
  // Returns a new block for each, charged as this kind; Find does not see them yet.
  // RESOURCE_EXHAUSTED from the ledger or the system: nothing is held.
  absl::StatusOr<std::vector<Block>> Allocate(absl::Span<const Wanted> wanted,
                                              MemoryKind kind = MemoryKind::kPrepared);
  // Makes `block` the one that Find returns for `key`; its contents must not change any more. If
  // another block was published meanwhile, returns that one, to be used instead. REQUIRES:
  // !key.empty()
  Block Publish(const PreparedKey& key, Block block);
  // Bytes of all blocks that are held.
  int64_t bytes() const;
  // As of its device.
  bool host_memory() const;
  // Returns who is asked for its memory; null: nobody.
  const MemoryLedger* ledger() const;

  // Returns the bytes of the blocks, each counted once, empty ones as none.
  static int64_t BytesOf(absl::Span<const Block> blocks);
  // Returns the bytes that a block of so many bytes takes.
  static int64_t Rounded(int64_t bytes);
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kLargeBlock = int64_t{8} << 20;

 private:
  struct State;
  struct Slab;

  // Adds a block for each of `bytes`, in one slab of `device`'s memory.
  absl::Status AllocateSlab(Device* device, absl::Span<const int64_t> bytes, MemoryKind kind,
                            std::vector<Block>* blocks);

  const std::shared_ptr<State> state_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_MEMORY_PREPARED_POOL_H_
