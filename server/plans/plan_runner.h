// A loaded plan as the server sees it: what it takes, how much memory it holds, and how to run it.
//
//   std::unique_ptr<RunContext> context = runner->NewContext().value();
//   absl::Status s = runner->Run(*context, dims, inputs, outputs, {});
//
// The one implementation that serves is over the runtime's executor (executor_runner.h); tests of
// the server put the reference evaluator in its place. Runners are thread-safe; a context is used
// by one run at a time.
#ifndef ATHANOR_SERVER_PLANS_PLAN_RUNNER_H_
#define ATHANOR_SERVER_PLANS_PLAN_RUNNER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/memory/state_memory.h"

namespace athanor {

// Memory that a run needs for itself, its arena, and the turn of its next run if that has begun.
class RunContext {
 public:
  virtual ~RunContext() = default;
  // Ends a turn that PlanRunner::TryTurn began and no run has used. Does nothing if there is none.
  virtual void EndTurn() {}
};

// Memory that one of the graph's outputs is written to.
struct RunOutput {
  int output = 0;  // position in graph.outputs
  void* data = nullptr;
  int64_t bytes = 0;
};

// Limits of a run, checked between steps.
struct RunLimits {
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  const std::atomic<bool>* cancelled = nullptr;
};

class PlanRunner {
 public:
  virtual ~PlanRunner() = default;

  // FAILED_PRECONDITION: the plan has states.
  virtual absl::StatusOr<std::unique_ptr<RunContext>> NewContext() = 0;
  // Returns memory for the plan's states, which every plan of its version can use.
  // FAILED_PRECONDITION: it has none. Otherwise as StateMemory::Create.
  virtual absl::StatusOr<std::unique_ptr<StateMemory>> NewStates(int64_t slots, int64_t block,
                                                                 StateMemory::Order order);
  // Returns a context of a plan with states; `states` outlive it. FAILED_PRECONDITION: these are
  // others, or lie there in another way.
  virtual absl::StatusOr<std::unique_ptr<RunContext>> NewContextOver(const StateMemory& states);
  // `dims` are in the order of graph.dims and inside the plan's bucket; `inputs` hold the right
  // number of bytes each, in the order of graph.InputIds(), at any alignment. Outputs are what the
  // caller wants, of the size that `dims` gives them.
  // INVALID_ARGUMENT: an index computed from the inputs is out of range. DEADLINE_EXCEEDED and
  // CANCELLED: the limits.
  virtual absl::Status Run(RunContext& context, absl::Span<const int64_t> dims,
                           absl::Span<const std::string_view> inputs,
                           absl::Span<const RunOutput> outputs, const RunLimits& limits) = 0;
  // Held by `prepare`, and by the contexts made so far.
  virtual int64_t prepared_bytes() const = 0;
  // Held weights by where they lie, prepared or copied to the device: plans that share some name
  // the same.
  using Prepared = absl::flat_hash_map<const void*, int64_t>;
  virtual void AddPrepared(Prepared* held) const { (*held)[this] = prepared_bytes(); }
  virtual int64_t arena_bytes() const = 0;
  // Begins the turn of the context's next run, which then does not wait; ends with that run, or by
  // EndTurn. Returns false, and begins nothing, if others on the device go first.
  virtual bool TryTurn(RunContext&) { return true; }
  // Returns how long a run of these sizes will take: a cautious guess, nearer once others have run.
  // For the choice of the thread to run on, and for order and waits in the queue.
  virtual int64_t EstimateMicroseconds(absl::Span<const int64_t> dims) const = 0;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_PLAN_RUNNER_H_
