// From a graph with its genome to a plan, and to the checks its kernels have to pass. Whole models
// and single tasks of the search go the same way.
//
//   PlanBuilder builder(target);
//   v1::Plan plan = builder.Build(scheduled, {.kind = "baseline"}).value();
//   std::vector<internal::KernelCheck> checks = builder.Checks(scheduled, plan).value();
#ifndef ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_
#define ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/lower.h"
#include "compiler/search/task.h"
#include "proto/athanor/internal/tuner.pb.h"
#include "proto/athanor/v1/plan.pb.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor {

struct PlanNames {
  std::string kind;                    // Plan.kind
  std::string graph_hash;              // of the user's graph; empty: of the scheduled one
  std::vector<std::string> dim_names;  // by graph.dims; empty: theirs
};

// A check of one kernel: the kernel alone, as a plan, against the reference evaluator on the part
// of the graph it computes. `kernel` is its index in the plan it was made for.
struct KernelCheck {
  int kernel;
  internal::CheckRequest request;  // without objects
};

// Borrows the target. Pure, thread-safe.
class PlanBuilder {
 public:
  explicit PlanBuilder(const v1::Target& target) : target_(target) {}

  // INTERNAL if codegen cannot lower a choice.
  absl::StatusOr<v1::Plan> Build(const ScheduledGraph& scheduled, const PlanNames& names) const;

  // One for each distinct kernel of `plan`, which was built from `scheduled`.
  absl::StatusOr<std::vector<KernelCheck>> Checks(const ScheduledGraph& scheduled,
                                                  const v1::Plan& plan) const;

  // The check of a task's kernel under one schedule.
  absl::StatusOr<internal::CheckRequest> Check(const KernelTask& task,
                                               const KernelChoice& choice) const;

 private:
  const v1::Target& target_;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_PIPELINE_PLAN_BUILDER_H_
