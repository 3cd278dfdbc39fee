// From a graph with its genome to a plan, and to the checks its kernels have to pass. Whole models
// and single tasks of the search go the same way.
//
//   PlanBuilder builder(target);
//   BuiltPlan built = builder.Build(scheduled, {.kind = "baseline"}).value();
//   std::vector<internal::KernelCheck> checks = builder.Checks(built).value();
//
// Kernels are lowered as tasks (search/task.h), equal ones once: a model of more equal layers takes
// longer to write down, not to lower.
#ifndef ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_
#define ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/lower.h"
#include "compiler/search/kernels/fusion.h"
#include "compiler/search/kernels/task.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/plan.pb.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct PlanNames {
  std::string kind;                    // Plan.kind
  std::string graph_hash;              // of the user's graph; empty: of the scheduled one
  std::vector<std::string> dim_names;  // by graph.dims; empty: theirs
  bool describe = true;                // with KIR and genome as text
  FusionRules rules = {};              // of loops' bodies
};

struct BuiltPlan {
  v1::Plan plan;
  // A task for each distinct kernel of `plan`, with that kernel's index; and one for each loop as a
  // whole, with the index of its last kernel.
  std::vector<std::pair<KernelTask, int>> tasks;
  // By plan.buffers: the node of the scheduled graph whose value each holds; -1 inside loops.
  std::vector<NodeId> nodes;
};

// Borrows the target. Pure, thread-safe.
class PlanBuilder {
 public:
  explicit PlanBuilder(const v1::Target& target) : target_(target) {}

  // INTERNAL if codegen cannot lower a choice.
  absl::StatusOr<BuiltPlan> Build(const ScheduledGraph& scheduled, const PlanNames& names) const;

  // One for each distinct kernel: it alone, as a plan, against the reference evaluator on the part
  // of the graph it computes.
  absl::StatusOr<std::vector<internal::KernelCheck>> Checks(const BuiltPlan& built) const;

  // The check of a task's kernel under one schedule.
  absl::StatusOr<internal::CheckRequest> Check(const KernelTask& task,
                                               const KernelChoice& choice) const;

 private:
  const v1::Target& target_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_
