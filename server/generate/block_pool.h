// Numbers the blocks of a version's key and value memory, and counts who refers to each.
//
//   BlockPool pool(65);                        // blocks 1 to 64
//   std::optional<int32_t> block = pool.Take();
//   pool.Share(*block);                        // a second sequence with the same beginning
//   pool.Drop(*block);
//   if (pool.Drop(*block)) states.Decommit(*block);
//
// A block may be written only by the holder of its one reference: sequences are kept apart by that.
// Block 0 is never given: rows that only fill a step up refer to it. Not thread-safe: an engine's
// thread owns it.
#ifndef ATHANOR_SERVER_GENERATE_BLOCK_POOL_H_
#define ATHANOR_SERVER_GENERATE_BLOCK_POOL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace athanor {

class BlockPool {
 public:
  // `blocks` includes block 0. REQUIRES: 1 <= blocks <= 2^31 - 1
  explicit BlockPool(int32_t blocks);

  // Gives the lowest free block, with one reference; nullopt if none is free. The lowest, so that
  // the memory touched so far is used again first.
  std::optional<int32_t> Take();
  // Adds a reference. REQUIRES: the block is taken.
  void Share(int32_t block) { ++references_[block]; }
  // Removes a reference; returns true if it was the last, which frees the block. REQUIRES: the
  // block is taken.
  bool Drop(int32_t block);

  // Number of references to a block; 0: free.
  int32_t references(int32_t block) const { return references_[block]; }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  // Number of blocks that can be given, free or not.
  int64_t blocks() const { return static_cast<int64_t>(references_.size()) - 1; }
  // Returns INTERNAL, naming the block, unless each block is either free once or referred to.
  absl::Status Check() const;

 private:
  std::vector<int32_t> references_;  // by block
  std::vector<int32_t> free_;        // a heap with the lowest block at the front
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_BLOCK_POOL_H_
