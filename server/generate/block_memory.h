// Holds the memory of blocks of keys and values: commits a block before a step first writes it, and
// gives it back once no sequence has had it for a while.
//
//   BlockMemory memory(runner, blocks);
//   RETURN_IF_ERROR(memory.Use(block));   // ahead of a run, for each block that it writes
//   if (memory.next_look() <= now) memory.Look(in_use, now);   // between two steps
//   memory.GiveBack(/*most=*/4);
//
// A block is in use if a sequence has it or the pool keeps it for its contents. One that is not
// keeps its memory for kKeep to twice that, unless others lack memory: the pool gives the lowest
// blank block, so those that sequences come back to soon are the same ones, and committing one
// again means to clear its pages. Not thread-safe: an engine's thread owns it.
#ifndef ATHANOR_SERVER_GENERATE_BLOCK_MEMORY_H_
#define ATHANOR_SERVER_GENERATE_BLOCK_MEMORY_H_

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/generate/schedule/sequence.h"
#include "server/generate/step_runner.h"

namespace athanor {

class BlockMemory {
 public:
  static constexpr std::chrono::seconds kKeep{10};

  // `runner` must outlive it. `blocks` includes block 0.
  BlockMemory(StepRunner* runner, int32_t blocks)
      : runner_(runner), committed_(blocks), used_(blocks) {}

  // Makes a block's memory usable. RESOURCE_EXHAUSTED: there is none.
  absl::Status Use(int32_t block);

  // The time at which Look should be called; SequenceTime::max() if no memory is committed.
  SequenceTime next_look() const { return next_look_; }
  // Chooses the blocks to give back: those that are not in use, by block, and were not used since
  // the last look.
  void Look(const std::vector<bool>& in_use, SequenceTime now);
  // Gives back up to `most` of the chosen blocks that were not used since.
  void GiveBack(int64_t most);
  bool has_chosen() const { return !chosen_.empty(); }
  // Gives back up to `most` blocks that are not in use, the highest first; returns how many.
  int64_t GiveBackUnused(const std::vector<bool>& in_use, int64_t most);
  // Gives back a block's memory; returns false if it has none.
  bool GiveBackNow(int32_t block);

 private:
  StepRunner* const runner_;
  std::vector<bool> committed_, used_;  // by block; used since the last look
  std::vector<int32_t> chosen_;         // the lowest last
  int64_t count_ = 0;                   // of committed blocks
  SequenceTime next_look_ = SequenceTime::max();
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_BLOCK_MEMORY_H_
