// Numbers the blocks of a version's key and value memory, counts who refers to each, and finds
// those that hold what a prompt begins with.
//
//   BlockPool pool(65);                        // blocks 1 to 64
//   std::optional<int32_t> block = pool.Take();
//   pool.Name(*block, key);                    // it is whole and stored
//   if (auto found = pool.Find(key)) pool.Share(*found);   // a second sequence begins so
//   pool.Drop(*block);
//
// A block that nobody refers to is free: kept if it has a key, until its room is needed, else
// blank. A block may be written only by the holder of its one reference, and not once it has a key:
// sequences are kept apart by that. Block 0 is never given: rows that only fill a step up refer to
// it. Not thread-safe: an engine's book owns it.
#ifndef ATHANOR_SERVER_GENERATE_SCHEDULE_BLOCK_POOL_H_
#define ATHANOR_SERVER_GENERATE_SCHEDULE_BLOCK_POOL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/generate/schedule/block_key.h"

namespace athanor {

class BlockPool {
 public:
  // `blocks` includes block 0. REQUIRES: 1 <= blocks <= 2^31 - 1
  explicit BlockPool(int32_t blocks);

  // Returns the block that has the key, kept or referred to.
  std::optional<int32_t> Find(const BlockKey& key) const;
  // Gives the lowest blank block, with one reference: the memory touched so far is used again
  // first. Without one, gives the kept block that was dropped longest ago, whose key goes. nullopt
  // if none is free.
  std::optional<int32_t> Take();
  // Adds a reference. REQUIRES: the block is referred to, or kept.
  void Share(int32_t block);
  // Removes a reference; returns true if it was the last: the block is kept if it has a key, else
  // blank. REQUIRES: the block is referred to.
  bool Drop(int32_t block);
  // Gives the block a key, unless another block has it. REQUIRES: the block is referred to, has no
  // key, and no sequence will write it any more.
  void Name(int32_t block, const BlockKey& key);
  // Takes the block's key away, if it has one: its contents may be wrong. REQUIRES: the block is
  // referred to.
  void Unname(int32_t block);
  // Makes up to `most` kept blocks blank, those dropped longest ago; returns them.
  std::vector<int32_t> Shed(int64_t most);
  // Takes all keys away: kept blocks become blank.
  void Forget();

  // Number of keys that were taken away so far.
  int64_t gone() const { return gone_before_ + static_cast<int64_t>(gone_.size()); }
  // Returns the blocks that had those from number `since` on, the oldest first: what was found of
  // other blocks is still there. nullopt: they are forgotten, at least the last 1,024 but for
  // Forget. Valid until the next call. REQUIRES: 0 <= since <= gone()
  std::optional<absl::Span<const int32_t>> GoneSince(int64_t since) const;
  // Number of calls of Find.
  int64_t lookups() const { return lookups_; }

  // Number of references to a block; 0: free.
  int32_t references(int32_t block) const { return blocks_[block].references; }
  bool IsKept(int32_t block) const { return blocks_[block].keyed && references(block) == 0; }
  int64_t kept() const { return kept_; }
  // Number of blocks that Take can give: blank and kept ones.
  int64_t free() const { return static_cast<int64_t>(blank_.size()) + kept_; }
  // Number of blocks, free or not, without block 0.
  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()) - 1; }
  // Returns INTERNAL, naming the block, unless each block is either blank once, kept once, or
  // referred to.
  absl::Status Check() const;

 private:
  struct Block {
    int32_t references = 0;
    bool keyed = false;
    int32_t older = 0, newer = 0;  // neighbours among the kept ones; 0: the list's end
    BlockKey key;                  // if `keyed`
  };
  // Add and remove a block of the list of kept ones.
  void Keep(int32_t block);
  void Unkeep(int32_t block);
  void MakeBlank(int32_t block);
  void TakeKey(int32_t block);

  std::vector<Block> blocks_;   // block 0 is the ends of the list: `newer` is the oldest one
  std::vector<int32_t> blank_;  // a heap with the lowest block at the front
  absl::flat_hash_map<BlockKey, int32_t> by_key_;
  int64_t kept_ = 0;
  std::vector<int32_t> gone_;  // blocks whose keys were taken away last
  int64_t gone_before_ = 0;    // number of those before
  mutable int64_t lookups_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_SCHEDULE_BLOCK_POOL_H_
