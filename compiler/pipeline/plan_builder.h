// Turns a graph with its genome into a plan, and into the checks that its kernels have to pass.
// Whole models and single tasks of the search use the same code.
//
//   PlanBuilder builder(target);
//   BuiltPlan built = builder.Build(scheduled, {.kind = "baseline"}).value();
//   std::vector<internal::KernelCheck> checks = builder.Checks(built).value();
//
// Kernels are lowered as tasks (search/task.h), equal ones once: more equal layers take longer to
// write down, not to lower.
#ifndef ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_
#define ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/lower/lower.h"
#include "compiler/ir/rows/paged_sizes.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/task.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/plan.pb.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct PlanNames {
  std::string kind;                    // Plan.kind
  std::string graph_hash;              // of the user's graph; empty: that of the scheduled one
  std::vector<std::string> dim_names;  // in the order of graph.dims; empty: their own names
  bool describe = true;                // adds KIR and genome as text
  FusionRules rules = {};              // for loops' bodies
};

struct BuiltPlan {
  v1::Plan plan;
  // A task for each distinct kernel of `plan`, with that kernel's index; and a task for each loop
  // as a whole, with the index of its last kernel.
  std::vector<std::pair<KernelTask, int>> tasks;
  // By plan.buffers: the node of the scheduled graph whose value the buffer holds; -1 inside loops,
  // and for memory of a launch.
  std::vector<NodeId> nodes;
  // The kernels as they were lowered and printed, so that checks of the tasks need not do it again.
  std::shared_ptr<struct KnownKernels> known;
};

// Borrows the target. Pure; thread-safe, but for Checks of one BuiltPlan or of its copies.
class PlanBuilder {
 public:
  // `paged`: sizes of calls, over the dims of what is built, at which kernels are checked.
  explicit PlanBuilder(const v1::Target& target, std::optional<PagedSizes> paged = std::nullopt)
      : target_(target), paged_(std::move(paged)) {}

  // INTERNAL if codegen cannot lower a choice.
  absl::StatusOr<BuiltPlan> Build(const ScheduledGraph& scheduled, const PlanNames& names) const;

  // Returns a check for each distinct kernel: the kernel alone, as a plan, against the reference
  // evaluator on the part of the graph it computes.
  absl::StatusOr<std::vector<internal::KernelCheck>> Checks(const BuiltPlan& built) const;

  // Returns the check of a task's kernel under one schedule. The plan of a task that writes a state
  // has no output: the write is in its STATE buffer.
  absl::StatusOr<internal::CheckRequest> Check(const KernelTask& task,
                                               const KernelChoice& choice) const;

 private:
  absl::StatusOr<BuiltPlan> BuildWith(const ScheduledGraph& scheduled, const PlanNames& names,
                                      std::shared_ptr<KnownKernels> known) const;
  absl::StatusOr<internal::CheckRequest> CheckWith(const KernelTask& task,
                                                   const KernelChoice& choice,
                                                   std::shared_ptr<KnownKernels> known) const;

  const v1::Target& target_;
  const std::optional<PagedSizes> paged_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_
