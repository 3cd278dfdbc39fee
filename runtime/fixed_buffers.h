// The constants and prepared weights of one Executable: which of them other plans hold already,
// which steps of `prepare` are left to run, and memory for what these make.
//
//   FixedBuffers fixed(pool);
//   absl::Status s = fixed.Reserve(plan, program, hashes);      // takes memory, runs nothing
//   for (int step : fixed.steps()) ...;                         // into fixed.data(place)
//   fixed.Keep();                                               // others find them from now on
#ifndef ATHANOR_RUNTIME_FIXED_BUFFERS_H_
#define ATHANOR_RUNTIME_FIXED_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/plan_memory.h"
#include "runtime/prepared_pool.h"
#include "runtime/program.h"

namespace athanor {

// Filled by one thread; after Keep() read by any number.
class FixedBuffers {
 public:
  // `pool` outlives it. Without `shares` it neither looks for blocks there nor leaves any.
  FixedBuffers(PreparedPool* pool, bool shares) : pool_(*pool), shares_(shares) {}

  // Memory for what is not there yet, and the constants in it. RESOURCE_EXHAUSTED says what the
  // plan needs, how much of it others hold, and what the ledger says.
  absl::Status Reserve(const v1::Plan& plan, const Program& program, const ParameterHashes& hashes);
  // Of program.prepare, in order.
  const std::vector<int>& steps() const { return steps_; }
  // Null: only steps of `prepare` use it, and it is gone or was not needed.
  void* data(int64_t place) const { return blocks_[place] ? blocks_[place].data() : nullptr; }
  // After the steps have run: leaves what runs use for other plans to find, takes theirs where
  // they were faster, and lets go of what only the steps needed.
  void Keep();
  // Of blocks, each once; those that other plans hold too are counted.
  int64_t bytes() const;
  const std::vector<PreparedPool::Block>& blocks() const { return blocks_; }

 private:
  void FindSame(const Program& program);
  void ChooseSteps(const Program& program);
  absl::Status Allocate(const Program& program);

  PreparedPool& pool_;
  const bool shares_;
  // By position in program.fixed.
  std::vector<PreparedKey> keys_;
  std::vector<int> first_;    // the first made that is equal; itself where there is none
  std::vector<bool> needed_;  // by a run, or by a step that is left
  std::vector<bool> kept_;    // by runs
  std::vector<bool> made_;    // here, into a block of this load's own
  std::vector<PreparedPool::Block> blocks_;
  std::vector<int> steps_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_FIXED_BUFFERS_H_
