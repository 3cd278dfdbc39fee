// Computes an engine's steps by the plans of its version, over states that all of them share.
//
//   PlanStepRunner runner(&version->plans(), version->graph(), options);
//   ASSIGN_OR_RETURN(absl::Span<const float> logits, runner.Run(step, tables));
//
// The plan of a step is that of its sizes at that time: another plan takes over between two steps.
// The states are made when there is a plan, which knows how they lie in memory.
#ifndef ATHANOR_SERVER_GENERATE_PLAN_STEP_RUNNER_H_
#define ATHANOR_SERVER_GENERATE_PLAN_STEP_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "runtime/memory/state_memory.h"
#include "server/generate/step_runner.h"
#include "server/plans/plan_runner.h"
#include "server/plans/plans.h"
#include "server/plans/served_plan.h"

namespace athanor {

struct PlanStepOptions {
  int64_t block = 16;        // positions of a block
  int64_t blocks = 2;        // of the states, block 0 included
  int64_t table_blocks = 1;  // most blocks of a sequence
  int64_t vocabulary = 0;    // logits of a row
  StateMemory::Order order = StateMemory::Order::kByState;
  std::shared_ptr<const void> promise;  // of memory for the states: goes with them
};

class PlanStepRunner final : public StepRunner {
 public:
  // `plans` outlives the runner. REQUIRES: `graph` is a decoder in form kPaged
  // (compiler/frontend/checkpoint/decoder.h), and the sizes in `options` are in its dims' ranges:
  // `blocks` in that of N, or with kByBlock `blocks` times the number of states.
  PlanStepRunner(Plans* plans, const Graph& graph, const PlanStepOptions& options);
  ~PlanStepRunner() override;

  // Before the first plan, Run and Commit wait for it; callers wait ahead of that, since neither
  // deadlines nor cancels act meanwhile. Later they return UNAVAILABLE where there is none for the
  // time being. Once there will be none they return the slot's error.
  absl::StatusOr<absl::Span<const float>> Run(
      const Step& step, absl::Span<const absl::Span<const int32_t>> tables) override;
  absl::Status Commit(int32_t block) override;
  void Decommit(int32_t block) override;
  bool Trim() override;  // drops the contexts of plans that serve no more, which hold these
  int64_t committed_bytes() const override;
  // Returns that of the plan of the full range. Weights that were withdrawn as damaged make it
  // another.
  std::string signature() override;
  const std::string& plan_id() const override { return plan_id_; }

 private:
  // The inputs and dims that a step has.
  enum Input { kIds, kSequence, kPosition, kTable, kWanted, kInputs };
  enum Size { kT, kR, kS, kB, kN, kSizes };
  struct Context {
    std::shared_ptr<const ServedPlan> plan;
    std::unique_ptr<RunContext> context;
  };

  // Tables are as wide as the longest needs, up to a power of two, so that sizes seldom change from
  // step to step; what is left of a line refers to block 0.
  void Fill(const Step& step, absl::Span<const absl::Span<const int32_t>> tables);
  // Waits for a plan of the full range, unless there has been one.
  absl::Status AwaitPlan();
  // Waits for a plan of the full range, and makes the states as it has them, unless they are there.
  absl::Status AwaitStates();
  absl::StatusOr<RunContext*> ContextOf(const std::shared_ptr<const ServedPlan>& plan);

  Plans& plans_;
  const PlanStepOptions options_;
  int input_at_[kInputs], size_at_[kSizes];  // by Input, Size: index in the graph's inputs and dims
  std::unique_ptr<StateMemory> states_;      // outlives the contexts
  std::vector<Context> contexts_;
  std::vector<int32_t> values_[kInputs];  // of the step
  std::vector<int64_t> dims_;
  std::vector<float> logits_;
  std::string plan_id_, signature_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_GENERATE_PLAN_STEP_RUNNER_H_
