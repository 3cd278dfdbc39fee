#include "server/tuner/check/check_run.h"

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/executor/executor.h"
#include "runtime/memory/prepared_pool.h"
#include "server/tuner/check/canaries.h"
#include "server/tuner/check/state_outputs.h"
#include "server/tuner/run/device_worker.h"
#include "server/tuner/run/scratch.h"
#include "server/tuner/run/scratch_states.h"
#include "server/tuner/run/target_device.h"

namespace athanor {
namespace {

template <typename Names>
std::optional<size_t> PositionOf(absl::string_view name, const Names& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (absl::string_view(names[i]) == name) return i;
  }
  return std::nullopt;
}

class Runner {
 public:
  Runner(const CheckRun& run, Device* device) : run_(run), device_(device) { NameTensors(); }

  absl::Status RunAll();

 private:
  void NameTensors();
  absl::Status RunCase(PreparedPool* pool, const CheckRun::Case& c, char* refused) const;
  absl::StatusOr<std::vector<absl::string_view>> PlanInputs(const Executable& plan,
                                                            const CheckRun::Case& c) const;
  absl::StatusOr<std::vector<absl::Span<char>>> PlanOutputs(const Executable& plan,
                                                            const CheckRun::Case& c,
                                                            std::vector<std::string>* spare) const;

  const CheckRun& run_;
  Device* const device_;
  std::vector<std::string> input_names_, output_names_;  // without states
  size_t parameters_ = 0;  // number of parameters, which are the last of input_names_
};

void Runner::NameTensors() {
  const Graph& graph = run_.graph;
  for (NodeId id : graph.InputIds()) input_names_.push_back(graph.node(id).name);
  for (NodeId id : graph.ParameterIds()) input_names_.push_back(graph.node(id).name);
  parameters_ = graph.ParameterIds().size();
  for (const Output& output : graph.outputs) output_names_.push_back(output.name);
}

absl::Status Runner::RunAll() {
  std::optional<ScratchDevice> large;
  if (run_.window != nullptr) large.emplace(device_, run_.window->data(), run_.window->bytes());
  PreparedPool pool(device_, nullptr, large.has_value() ? &*large : nullptr);
  for (size_t i = 0; i < run_.cases.size(); ++i) {
    const CheckRun::Case& c = run_.cases[i];
    const absl::Status status = RunCase(&pool, c, run_.refused + i);
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat(c.reference.text, ": ", status.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::string_view>> Runner::PlanInputs(const Executable& plan,
                                                                  const CheckRun::Case& c) const {
  std::vector<absl::string_view> inputs;
  for (int i = 0; i < plan.inputs(); ++i) {
    const std::optional<size_t> position = PositionOf(plan.input_name(i), input_names_);
    if (!position) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan's input \"", plan.input_name(i), "\" is none of the graph's"));
    }
    inputs.push_back(c.inputs[*position]);
  }
  return inputs;
}

absl::StatusOr<std::vector<absl::Span<char>>> Runner::PlanOutputs(
    const Executable& plan, const CheckRun::Case& c, std::vector<std::string>* spare) const {
  spare->resize(plan.outputs());
  std::vector<absl::Span<char>> outputs;
  for (int i = 0; i < plan.outputs(); ++i) {
    const std::optional<size_t> position = PositionOf(plan.output_name(i), output_names_);
    if (!position) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan's output \"", plan.output_name(i), "\" is none of the graph's"));
    }
    if (c.reference.index_error) {
      // There is nothing to compare, so the kernel writes into spare memory.
      (*spare)[i].resize(plan.output_bytes(i, c.reference.dims));
      outputs.push_back(absl::MakeSpan((*spare)[i].data(), (*spare)[i].size()));
    } else {
      outputs.push_back(c.outputs[*position]);
    }
  }
  if (const int wanted = PlanOutputsOf(run_.graph); plan.outputs() != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan has ", plan.outputs(), " outputs, the graph ", wanted));
  }
  return outputs;
}

absl::Status Runner::RunCase(PreparedPool* pool, const CheckRun::Case& c, char* refused) const {
  const std::vector<absl::string_view> objects(run_.request.objects().begin(),
                                               run_.request.objects().end());
  std::vector<ParameterView> parameters;
  for (size_t i = input_names_.size() - parameters_; i < input_names_.size(); ++i) {
    parameters.push_back({input_names_[i], c.inputs[i], nullptr});
  }
  absl::StatusOr<std::shared_ptr<const Executable>> plan =
      Executable::Load(run_.request.plan(), objects, parameters, device_,
                       {.pool = run_.window != nullptr ? pool : nullptr, .poison = true});
  if (!plan.ok()) return plan.status();
  RETURN_IF_ERROR((*plan)->CheckDims(c.reference.dims));
  ASSIGN_OR_RETURN(std::unique_ptr<ScratchStates> states,
                   ScratchStates::Create(run_.request.plan(), {c.reference.dims}, device_));
  RETURN_IF_ERROR(FillStates(run_.graph, absl::MakeSpan(c.inputs).subspan(input_names_.size()),
                             c.reference.dims, states.get()));
  absl::StatusOr<std::unique_ptr<Executable::Context>> context =
      (*plan)->NewContext(states->memory());
  if (!context.ok()) return context.status();
  absl::StatusOr<std::vector<absl::string_view>> inputs = PlanInputs(**plan, c);
  if (!inputs.ok()) return inputs.status();
  std::vector<std::string> spare;
  absl::StatusOr<std::vector<absl::Span<char>>> outputs = PlanOutputs(**plan, c, &spare);
  if (!outputs.ok()) return outputs.status();
  absl::Status status = (*plan)->Run(context->get(), c.reference.dims, *inputs, *outputs, {});
  if (c.reference.index_error && status.ok()) {
    return absl::DataLossError("an index out of range goes unnoticed");
  }
  if (status.ok()) return ReadStates(run_.graph, c.reference.dims, *states, c.outputs);
  if (!IsIndexError(status) || c.reference.index_error) {
    return IsIndexError(status) ? absl::OkStatus() : status;
  }
  if (c.reference.in_range) {
    return absl::DataLossError(absl::StrCat("every index is in range, yet ", status.message()));
  }
  *refused = 1;
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCheck(const CheckRun& run, Device* device) { return Runner(run, device).RunAll(); }

internal::CheckJob CheckJobOf(const CheckRun& run,
                              const std::vector<std::vector<GuardedBytes>*>& outputs,
                              const SharedMemory& refused) {
  internal::CheckJob job;
  *job.mutable_request() = run.request;
  *job.mutable_refused() = ToMessage(refused);
  for (size_t i = 0; i < run.cases.size(); ++i) {
    const ReferenceCase& reference = run.cases[i].reference;
    internal::CheckJob::Case& c = *job.add_cases();
    c.mutable_dims()->Assign(reference.dims.begin(), reference.dims.end());
    c.set_text(reference.text);
    c.set_seed(reference.seed);
    c.set_choice(static_cast<int>(reference.choice));
    c.set_sampled(reference.sampled);
    c.set_index_error(reference.index_error);
    c.set_in_range(reference.in_range);
    for (const GuardedBytes& output : *outputs[i]) *c.add_outputs() = ToMessage(output);
  }
  return job;
}

absl::Status ServeCheckJob(const internal::CheckJob& job, absl::FunctionRef<void()> drawn) {
  ASSIGN_OR_RETURN(Graph parsed, ParseGraph(job.request().graph_text(), AcceptedLimits()));
  const Graph graph = WithStatesWritten(std::move(parsed));
  ASSIGN_OR_RETURN(const SharedMemory refused, SharedFrom(job.refused()));
  const auto& dims = job.request().plan().dims();
  CheckRun run = {.request = job.request(), .graph = graph, .refused = refused.data()};
  std::deque<ReferenceCase> references;
  std::deque<GuardedBytes> outputs;
  for (const internal::CheckJob::Case& c : job.cases()) {
    const bool fits = c.dims_size() == dims.size() && run.cases.size() < refused.bytes() &&
                      (c.index_error() || c.outputs_size() == std::ssize(graph.outputs));
    if (!fits) return absl::InvalidArgumentError("a job whose cases do not fit its plan");
    ReferenceCase& reference = references.emplace_back();
    reference.dims.assign(c.dims().begin(), c.dims().end());
    for (int d = 0; d < dims.size(); ++d) reference.env[dims[d].name()] = c.dims(d);
    reference.text = c.text();
    reference.seed = c.seed();
    reference.choice = static_cast<IndexChoice>(c.choice());
    reference.sampled = c.sampled();
    reference.index_error = c.index_error();
    reference.in_range = c.in_range();
    RETURN_IF_ERROR(DrawInputsOf(graph, &reference));
    CheckRun::Case& one = run.cases.emplace_back(CheckRun::Case{reference, {}, {}});
    for (const Tensor& input : reference.inputs) one.inputs.push_back(input.bytes);
    for (const RepeatedBytes& input : reference.repeated) one.inputs.push_back(input.view());
    for (const internal::SharedBytes& output : c.outputs()) {
      ASSIGN_OR_RETURN(GuardedBytes memory, GuardedFrom(output));
      one.outputs.push_back(absl::MakeSpan(memory.data(), memory.bytes()));
      outputs.push_back(std::move(memory));
    }
  }
  drawn();
  return RunOnDevice(job.request().plan().target(), /*threads=*/1, [&](Device* device) {
    CanaryDevice canaries(device);
    return RunCheck(run, &canaries);
  });
}

}  // namespace athanor
