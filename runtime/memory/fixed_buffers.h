// The constants and prepared weights of one Executable: which of them other plans hold already,
// which steps of `prepare` still have to run, and memory for the results of these.
//
//   FixedBuffers fixed(pool);
//   absl::Status s = fixed.Reserve(plan, program, hashes, queue);  // takes memory, runs no step
//   for (int step : fixed.steps()) ...;                            // into fixed.data(place)
//   fixed.Keep();                                                  // others find them from now on
#ifndef ATHANOR_RUNTIME_MEMORY_FIXED_BUFFERS_H_
#define ATHANOR_RUNTIME_MEMORY_FIXED_BUFFERS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/memory/plan_memory.h"
#include "runtime/memory/prepared_pool.h"
#include "runtime/program/program.h"

namespace athanor {

// Filled by one thread; after Keep(), read by any number.
class FixedBuffers {
 public:
  // `pool` must outlive it. Without `shares` it neither looks for blocks in the pool nor publishes
  // any.
  FixedBuffers(PreparedPool* pool, bool shares) : pool_(*pool), shares_(shares) {}

  // Allocates memory for what nobody holds yet, and queues copies of the constants; `plan` must
  // stay until the queue's next Wait() returns. RESOURCE_EXHAUSTED says what the plan needs, how
  // much of it others hold, and what the ledger says.
  absl::Status Reserve(const v1::Plan& plan, const Program& program, const ParameterHashes& hashes,
                       DeviceQueue& queue);
  // Steps of program.prepare to run, in order.
  const std::vector<int>& steps() const { return steps_; }
  // Returns null for a buffer that only steps of `prepare` use, if it was released or not needed.
  void* data(int64_t place) const { return blocks_[place] ? blocks_[place].data() : nullptr; }
  // Ends loading, after copies and steps have finished: publishes what runs use for other plans,
  // takes theirs if they were faster, and releases what only the steps needed.
  void Keep();
  // Some of which other plans hold too.
  const std::vector<PreparedPool::Block>& blocks() const { return blocks_; }

 private:
  void FindSame(const Program& program);
  void ChooseSteps(const Program& program);
  absl::Status Allocate(const Program& program);

  PreparedPool& pool_;
  const bool shares_;
  // By index in program.fixed.
  std::vector<PreparedKey> keys_;
  std::vector<int> first_;    // first equal buffer to be made; itself if there is none
  std::vector<bool> needed_;  // by a run, or by a step that still has to run
  std::vector<bool> kept_;    // by runs
  std::vector<bool> made_;    // by this load, into a block of its own
  std::vector<PreparedPool::Block> blocks_;
  std::vector<int> steps_;
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_MEMORY_FIXED_BUFFERS_H_
