// A loaded plan of the runtime's executor, as the server runs plans.
//
//   auto runner = ExecutorRunner::Load(graph, plan, objects, parameters, device,
//                                      {.ledger = &ledger, .pool = &pool}, {&traffic, &turns})
//                     .value();
#ifndef ATHANOR_SERVER_PLANS_EXECUTOR_RUNNER_H_
#define ATHANOR_SERVER_PLANS_EXECUTOR_RUNNER_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "proto/athanor/v1/plan.pb.h"
#include "runtime/executor/executor.h"
#include "runtime/memory/state_memory.h"
#include "runtime/program/size_expr.h"
#include "server/base/traffic.h"
#include "server/plans/compile_backend.h"
#include "server/plans/plan_runner.h"
#include "server/plans/turns.h"
#include "server/storage/tensor_store.h"

namespace athanor {

// Holds what runs of a device share. Those that wait for their turn are not in `traffic`.
struct SharedDevice {
  Traffic* traffic = nullptr;  // null: runs are not counted
  Turns* turns = nullptr;      // null: each run begins at once
};

class ExecutorRunner final : public PlanRunner {
 public:
  // `device`, what `options` and `shared` point to outlive the runner and its contexts.
  // `parameters` are in the order of graph.ParameterIds().
  static absl::StatusOr<std::shared_ptr<PlanRunner>> Load(
      const Graph& graph, const v1::Plan& plan, absl::Span<const KernelObject> objects,
      absl::Span<const std::shared_ptr<const MappedTensor>> parameters, Device* device,
      const LoadOptions& options, const SharedDevice& shared);

  absl::StatusOr<std::unique_ptr<RunContext>> NewContext() override { return Make(nullptr); }
  absl::StatusOr<std::unique_ptr<StateMemory>> NewStates(int64_t slots, int64_t block,
                                                         StateMemory::Order order) override;
  absl::StatusOr<std::unique_ptr<RunContext>> NewContextOver(const StateMemory& states) override {
    return Make(&states);
  }
  absl::Status Run(RunContext& context, absl::Span<const int64_t> dims,
                   absl::Span<const std::string_view> inputs, absl::Span<const RunOutput> outputs,
                   const RunLimits& limits) override;
  bool TryTurn(RunContext& context) override;
  int64_t prepared_bytes() const override { return executable_->fixed_bytes(); }
  void AddPrepared(Prepared* held) const override;
  int64_t arena_bytes() const override { return arena_bytes_->load(); }
  int64_t EstimateMicroseconds(absl::Span<const int64_t> dims) const override;

 private:
  using Clock = TurnOrder::Clock;
  struct Context;

  // Finds the plan's dims, inputs and outputs among the graph's, by name.
  absl::Status MatchNames(const Graph& graph, const v1::Plan& plan);
  absl::Status AddWork(const v1::Plan& plan);
  void AddStates(const Graph& graph, const v1::Plan& plan);
  absl::StatusOr<std::unique_ptr<RunContext>> Make(const StateMemory* states);
  // Returns microseconds, as if nothing had run.
  double Guess(absl::Span<const int64_t> plan_dims) const;
  std::vector<int64_t> PlanDims(absl::Span<const int64_t> dims) const;
  // As Run, in the context's turn.
  absl::Status RunNow(Context& context, absl::Span<const int64_t> dims,
                      absl::Span<const std::string_view> inputs,
                      absl::Span<const RunOutput> outputs, const RunLimits& limits);
  // Learns how long the context's latest run has taken.
  void Learn(const Context& context, Clock::duration took);
  // Returns how long runs have taken lately, whatever their sizes.
  Clock::duration usual() const { return std::chrono::nanoseconds(usual_ns_.load()); }

  Device* device_ = nullptr;
  MemoryLedger* ledger_ = nullptr;  // the device's
  std::shared_ptr<const Executable> executable_;
  std::vector<StateMemory::Spec> states_;     // as the plan has them
  std::vector<int> dims_, inputs_, outputs_;  // by the plan's order
  // A step's flops and moved bytes, and how often it runs.
  struct Work {
    int flops, bytes;
    std::vector<int> turns;  // iteration counts of the loops around it, ids in work_sizes_
  };
  SizeTable work_sizes_;
  std::vector<Work> work_;  // by step
  SharedDevice shared_;
  std::atomic<int64_t> usual_ns_{0};  // moving average; 0: nothing has run
  std::atomic<double> pace_{1};       // actual over guessed time: follows the median of the runs
  // Shared with the contexts, which may outlive the runner.
  std::shared_ptr<std::atomic<int64_t>> arena_bytes_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_PLANS_EXECUTOR_RUNNER_H_
