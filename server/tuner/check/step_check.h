// Debug mode for plans: runs step by step and compares each result with the reference evaluator, to
// name the first step that goes wrong.
//
//   BuiltPlan built = builder.Build(scheduled, names).value();
//   absl::Status right = CheckSteps({scheduled.graph, built, objects}, {7}, inputs, &device);
//   // DATA_LOSS "step 2 of 3 'Tanh over Contract', %4 (Tanh): f32[7,32]: 9 of 224 elements ..."
//
// For tests and tools, at sizes that the reference evaluator can handle: kernels run in this
// process.
#ifndef ATHANOR_SERVER_TUNER_CHECK_STEP_CHECK_H_
#define ATHANOR_SERVER_TUNER_CHECK_STEP_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/plan_builder.h"
#include "runtime/device/device.h"

namespace athanor {

struct SteppedPlan {
  const Graph& graph;  // the graph that the plan was built from, including its packed weights
  const BuiltPlan& built;
  absl::Span<const absl::string_view> objects;  // by built.plan.kernels
};

// `dims` are values of graph.dims; `inputs` are as for Evaluate. Compares a step's result after the
// step, within the bounds of error_bound.h, and prepared weights when a step first reads them.
// Returns DATA_LOSS for a difference, otherwise the errors of Evaluate and of the runtime.
absl::Status CheckSteps(const SteppedPlan& plan, absl::Span<const int64_t> dims,
                        absl::Span<const Tensor> inputs, Device* device);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_STEP_CHECK_H_
