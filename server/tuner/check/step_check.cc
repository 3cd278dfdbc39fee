#include "server/tuner/check/step_check.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/executor/executor.h"
#include "server/tuner/check/error_bound.h"

namespace athanor {
namespace {

// The values that the plan's buffers should hold.
class Expected {
 public:
  static absl::StatusOr<Expected> Of(const SteppedPlan& plan, const Expr::Env& dims,
                                     absl::Span<const Tensor> inputs) {
    Expected e;
    Graph all = plan.graph;
    all.outputs.clear();
    for (NodeId node : plan.built.nodes) {
      e.place_.push_back(node < 0 ? -1 : static_cast<int>(all.outputs.size()));
      if (node >= 0) all.outputs.push_back({absl::StrCat(node), node});
    }
    ASSIGN_OR_RETURN(e.right_, EvaluateWithBounds(all, inputs, &dims));
    return e;
  }

  absl::Status Compare(const StepView::Buffer& buffer) const {
    const int place = place_[buffer.index];
    // Local to a loop iteration: known when the loop has ended.
    if (place < 0) return absl::OkStatus();
    const Tensor& want = right_.values[place];
    const Tensor got{want.dtype, want.shape, std::string(buffer.data)};
    return WithinBounds(got, want, right_.errors[place]).status();
  }

 private:
  std::vector<int> place_;  // by plan.buffers: index of the output; -1: not there
  BoundedValues right_;
};

absl::Status CheckStep(const SteppedPlan& plan, const Expected& expected, const StepView& view) {
  const v1::Plan& message = plan.built.plan;
  // Checks what the step reads, then what it writes, which is the first buffer.
  for (size_t k = 1; k <= view.buffers.size(); ++k) {
    const size_t b = k % view.buffers.size();
    const StepView::Buffer& buffer = view.buffers[b];
    // Operands in the arena were compared when they were written, and may be overwritten by now.
    const bool prepared = message.buffers(buffer.index).kind() == v1::Buffer::PREPARED;
    if (b > 0 && !prepared) continue;
    const absl::Status same = expected.Compare(buffer);
    if (same.ok()) continue;
    return absl::DataLossError(absl::StrCat("step ", view.step + 1, " of ", message.run_size(),
                                            " '", view.label, "', ",
                                            plan.graph.Describe(plan.built.nodes[buffer.index]),
                                            prepared ? " as prepared" : "", ": ", same.message()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSteps(const SteppedPlan& plan, absl::Span<const int64_t> dims,
                        absl::Span<const Tensor> inputs, Device* device) {
  Expr::Env env;
  for (size_t d = 0; d < plan.graph.dims.size(); ++d) env[plan.graph.dims[d].name] = dims[d];
  ASSIGN_OR_RETURN(Expected expected, Expected::Of(plan, env, inputs));
  const std::vector<NodeId> ids = plan.graph.InputIds(), weights = plan.graph.ParameterIds();
  std::vector<ParameterView> parameters;
  for (size_t i = 0; i < weights.size(); ++i) {
    parameters.push_back({plan.graph.node(weights[i]).name, inputs[ids.size() + i].bytes, nullptr});
  }
  ASSIGN_OR_RETURN(auto loaded, Executable::Load(plan.built.plan, plan.objects, parameters, device,
                                                 {.poison = true}));
  const Executable& executable = *loaded;
  ASSIGN_OR_RETURN(auto context, executable.NewContext());
  RETURN_IF_ERROR(executable.CheckDims(dims));
  std::vector<absl::string_view> views;
  for (int i = 0; i < executable.inputs(); ++i) {
    auto id = std::find_if(ids.begin(), ids.end(), [&](NodeId n) {
      return plan.graph.node(n).name == executable.input_name(i);
    });
    if (id == ids.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the plan's input \"", executable.input_name(i), "\" is none of the graph's"));
    }
    views.push_back(inputs[id - ids.begin()].bytes);
  }
  std::vector<std::string> memory;
  std::vector<absl::Span<char>> outputs;
  memory.reserve(executable.outputs());
  for (int i = 0; i < executable.outputs(); ++i) {
    memory.emplace_back(executable.output_bytes(i, dims), '\0');
    outputs.push_back(absl::MakeSpan(memory.back()));
  }
  const std::function<absl::Status(const StepView&)> check = [&](const StepView& view) {
    return CheckStep(plan, expected, view);
  };
  RunOptions options;
  options.check = &check;
  return executable.Run(context.get(), dims, views, outputs, options);
}

}  // namespace athanor
