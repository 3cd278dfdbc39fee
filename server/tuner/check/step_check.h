// The debug mode of plans: step after step, each followed by a comparison with the reference
// evaluator, so that the first one that goes wrong has a name.
//
//   BuiltPlan built = builder.Build(scheduled, names).value();
//   absl::Status right = CheckSteps({scheduled.graph, built, objects}, {7}, inputs, &device);
//   // DATA_LOSS "step 2 of 3 'Tanh over Contract', %4 (Tanh): f32[7,32]: 9 of 224 elements ..."
//
// For tests and tools, at sizes that the reference evaluator manages: kernels run in this process.
#ifndef ATHANOR_SERVER_TUNER_CHECK_STEP_CHECK_H_
#define ATHANOR_SERVER_TUNER_CHECK_STEP_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/pipeline/plan_builder.h"
#include "runtime/device.h"

namespace athanor {

struct SteppedPlan {
  const Graph& graph;  // that the plan was built from, its packed weights among the nodes
  const BuiltPlan& built;
  absl::Span<const absl::string_view> objects;  // by built.plan.kernels
};

// `dims` are values of graph.dims; `inputs` as Evaluate takes them. A step's result is compared
// after it, within the bounds of error_bound.h; what `prepare` made, when a step first reads it.
// Besides DATA_LOSS, the errors of Evaluate and of the runtime.
absl::Status CheckSteps(const SteppedPlan& plan, absl::Span<const int64_t> dims,
                        absl::Span<const Tensor> inputs, Device* device);

}  // namespace athanor

#endif  // ATHANOR_SERVER_TUNER_CHECK_STEP_CHECK_H_
