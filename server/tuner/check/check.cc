#include "server/tuner/check/check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/graph.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/executor.h"
#include "runtime/prepared_pool.h"
#include "server/tuner/check/error_bound.h"
#include "server/tuner/check/sampled_check.h"
#include "server/tuner/run/repeated_bytes.h"
#include "server/tuner/run/scratch.h"
#include "server/tuner/run/target_device.h"

namespace athanor {
namespace {

constexpr unsigned char kNoise = 0x5a;

// Inputs of a kernel in one case, and the memory it writes to.
struct Case {
  const ReferenceCase& reference;
  std::vector<GuardedBytes> held;         // copies of reference.inputs
  std::vector<absl::string_view> inputs;  // in the order of graph.InputIds(), then ParameterIds()
  std::vector<GuardedBytes> outputs;
};

template <typename Names>
std::optional<size_t> PositionOf(absl::string_view name, const Names& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (absl::string_view(names[i]) == name) return i;
  }
  return std::nullopt;
}

class Checker {
 public:
  Checker(const internal::CheckRequest& request, const References& references,
          const IsolationLimits& limits)
      : request_(request),
        graph_(references.graph),
        references_(references.cases),
        limits_(limits) {}

  absl::StatusOr<internal::CheckReply> Run();

 private:
  void NameTensors();
  absl::StatusOr<Case> MakeCase(const ReferenceCase& reference);
  absl::Status AddSampledOutputs(Case* c);
  absl::Status AddOutput(size_t bytes, Case* c);
  int64_t RepeatedBytesHeld() const;

  absl::Status Compare(const Case& c, bool refused, internal::CheckReply* reply) const;
  absl::Status CompareSampled(const Case& c, internal::CheckReply* reply) const;

  // Run in the isolated process.
  absl::Status RunPlans(Device* device);
  absl::Status RunCase(Device* device, PreparedPool* pool,
                       const std::vector<absl::string_view>& objects, Case& c, char* refused);
  absl::StatusOr<std::vector<absl::string_view>> PlanInputs(const Executable& plan, const Case& c);
  absl::StatusOr<std::vector<absl::Span<char>>> PlanOutputs(const Executable& plan, const Case& c,
                                                            std::vector<std::string>* spare);

  const internal::CheckRequest& request_;
  const Graph& graph_;
  const std::vector<ReferenceCase>& references_;
  const IsolationLimits limits_;
  std::vector<std::string> input_names_, output_names_;
  size_t parameters_ = 0;  // number of parameters, which are the last of input_names_
  std::vector<Case> cases_;
  // By case, written in the isolated process: the kernel found an index out of range, and not all
  // indices of the case were examined.
  std::optional<SharedMemory> refused_;
  std::optional<SharedMemory> window_;  // for large prepared weights; empty: in memory
};

absl::StatusOr<internal::CheckReply> Checker::Run() {
  NameTensors();
  for (const ReferenceCase& reference : references_) {
    absl::StatusOr<Case> c = MakeCase(reference);
    if (!c.ok()) return c.status();
    cases_.push_back(*std::move(c));
  }
  absl::StatusOr<SharedMemory> refused = SharedMemory::Create(cases_.size());
  if (!refused.ok()) return refused.status();
  refused_.emplace(*std::move(refused));
  if (limits_.scratch != nullptr && RunsOnHost(request_.plan().target())) {
    window_ = limits_.scratch->Take(LargePreparedBytes(request_.plan(), {}));
  }
  // Repeated pages count as often as they are mapped.
  IsolationLimits limits = limits_;
  limits.memory_bytes += RepeatedBytesHeld();
  absl::Status status = RunIsolated("a checked kernel", limits, [this] {
    return RunOnDevice(request_.plan().target(), /*threads=*/2,
                       [this](Device* device) { return RunPlans(device); });
  });
  if (!status.ok()) return status;
  internal::CheckReply reply;
  for (size_t i = 0; i < cases_.size(); ++i) {
    status = Compare(cases_[i], refused_->data()[i] != 0, &reply);
    if (!status.ok()) return status;
  }
  return reply;
}

int64_t Checker::RepeatedBytesHeld() const {
  int64_t bytes = 0;
  for (const Case& c : cases_) {
    for (const RepeatedBytes& r : c.reference.repeated)
      bytes += static_cast<int64_t>(r.view().size());
  }
  return bytes;
}

void Checker::NameTensors() {
  for (NodeId id : graph_.InputIds()) input_names_.push_back(graph_.node(id).name);
  for (NodeId id : graph_.ParameterIds()) input_names_.push_back(graph_.node(id).name);
  parameters_ = graph_.ParameterIds().size();
  for (const Output& output : graph_.outputs) output_names_.push_back(output.name);
}

absl::Status Checker::AddOutput(size_t bytes, Case* c) {
  absl::StatusOr<GuardedBytes> output = TakeOrCreateGuarded(limits_.scratch, bytes);
  if (!output.ok()) return output.status();
  std::memset(output->data(), kNoise, output->bytes());
  c->outputs.push_back(*std::move(output));
  return absl::OkStatus();
}

absl::StatusOr<Case> Checker::MakeCase(const ReferenceCase& reference) {
  Case c{reference, {}, {}, {}};
  for (const RepeatedBytes& input : reference.repeated) c.inputs.push_back(input.view());
  for (const Tensor& input : reference.inputs) {
    absl::StatusOr<GuardedBytes> bytes = GuardedBytes::Create(input.bytes.size());
    if (!bytes.ok()) return bytes.status();
    std::memcpy(bytes->data(), input.bytes.data(), input.bytes.size());
    c.held.push_back(*std::move(bytes));
    c.inputs.push_back(c.held.back().view());
  }
  absl::Status status;
  if (reference.sampled) status = AddSampledOutputs(&c);
  for (const Tensor& tensor : reference.wanted) {
    if (status.ok()) status = AddOutput(tensor.bytes.size(), &c);
  }
  if (!status.ok()) return status;
  return c;
}

absl::Status Checker::AddSampledOutputs(Case* c) {
  int64_t total = 0;
  for (const Output& output : graph_.outputs) {
    const TensorType& type = graph_.node(output.node).type;
    absl::StatusOr<std::vector<int64_t>> shape = ConcreteShape(type.shape, c->reference.env);
    if (!shape.ok()) return shape.status();
    int64_t bytes = DTypeBytes(type.dtype);
    bool fits = true;
    for (int64_t size : *shape) fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
    fits =
        fits && !__builtin_add_overflow(total, bytes, &total) && total <= limits_.memory_bytes / 2;
    if (!fits) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a check of output \"", output.name, "\", ", TypeToString(type),
                       ", needs more than the ", limits_.memory_bytes / 2, " bytes it may have"));
    }
    if (absl::Status s = AddOutput(bytes, c); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Checker::RunPlans(Device* device) {
  std::optional<ScratchDevice> large;
  if (window_.has_value()) large.emplace(device, window_->data(), window_->bytes());
  PreparedPool pool(device, nullptr, large.has_value() ? &*large : nullptr);
  std::vector<absl::string_view> objects;
  for (const std::string& object : request_.objects()) objects.push_back(object);
  for (size_t i = 0; i < cases_.size(); ++i) {
    absl::Status status = RunCase(device, &pool, objects, cases_[i], refused_->data() + i);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(cases_[i].reference.text, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::string_view>> Checker::PlanInputs(const Executable& plan,
                                                                   const Case& c) {
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

absl::StatusOr<std::vector<absl::Span<char>>> Checker::PlanOutputs(
    const Executable& plan, const Case& c, std::vector<std::string>* spare) {
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
      outputs.push_back(absl::MakeSpan(c.outputs[*position].data(), c.outputs[*position].bytes()));
    }
  }
  if (static_cast<size_t>(plan.outputs()) != output_names_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has ", plan.outputs(),
                                                   " outputs, the graph ", output_names_.size()));
  }
  return outputs;
}

absl::Status Checker::RunCase(Device* device, PreparedPool* pool,
                              const std::vector<absl::string_view>& objects, Case& c,
                              char* refused) {
  for (GuardedBytes& input : c.held) input.Freeze();
  std::vector<ParameterView> parameters;
  for (size_t i = input_names_.size() - parameters_; i < input_names_.size(); ++i) {
    parameters.push_back({input_names_[i], c.inputs[i], nullptr});
  }
  absl::StatusOr<std::shared_ptr<const Executable>> plan =
      Executable::Load(request_.plan(), objects, parameters, device,
                       {.pool = window_.has_value() ? pool : nullptr, .poison = true});
  if (!plan.ok()) return plan.status();
  absl::StatusOr<std::unique_ptr<Executable::Context>> context = (*plan)->NewContext();
  if (!context.ok()) return context.status();
  if (absl::Status s = (*plan)->CheckDims(c.reference.dims); !s.ok()) return s;
  absl::StatusOr<std::vector<absl::string_view>> inputs = PlanInputs(**plan, c);
  if (!inputs.ok()) return inputs.status();
  std::vector<std::string> spare;
  absl::StatusOr<std::vector<absl::Span<char>>> outputs = PlanOutputs(**plan, c, &spare);
  if (!outputs.ok()) return outputs.status();
  absl::Status status = (*plan)->Run(context->get(), c.reference.dims, *inputs, *outputs, {});
  if (c.reference.index_error && status.ok()) {
    return absl::DataLossError("an index out of range goes unnoticed");
  }
  if (!IsIndexError(status) || c.reference.index_error) {
    return IsIndexError(status) ? absl::OkStatus() : status;
  }
  if (c.reference.in_range) {
    return absl::DataLossError(absl::StrCat("every index is in range, yet ", status.message()));
  }
  *refused = 1;
  return absl::OkStatus();
}

absl::Status Checker::CompareSampled(const Case& c, internal::CheckReply* reply) const {
  std::vector<absl::string_view> outputs;
  for (const GuardedBytes& output : c.outputs) outputs.push_back(output.view());
  absl::StatusOr<SampleReport> report = CompareSamples({.graph = graph_,
                                                        .dims = c.reference.env,
                                                        .inputs = c.inputs,
                                                        .outputs = outputs,
                                                        .noise = kNoise,
                                                        .seed = c.reference.seed});
  if (!report.ok()) return report.status();
  reply->set_worst_error(std::max(reply->worst_error(), report->worst_error));
  reply->set_sampled_elements(reply->sampled_elements() + report->elements);
  for (const std::string& why : report->left_out) {
    reply->add_left_out(absl::StrCat(c.reference.text, ": ", why));
  }
  return absl::OkStatus();
}

absl::Status Checker::Compare(const Case& c, bool refused, internal::CheckReply* reply) const {
  if (c.reference.index_error || refused) {
    if (c.reference.sampled)
      reply->add_left_out(absl::StrCat(c.reference.text, ": an index is out of range"));
    return absl::OkStatus();
  }
  for (size_t output = 0; output < c.outputs.size(); ++output) {
    if (c.outputs[output].MarginIntact()) continue;
    return absl::DataLossError(absl::StrCat("output \"", output_names_[output], "\" at ",
                                            c.reference.text, ": written before its beginning"));
  }
  if (c.reference.sampled) {
    const absl::Status same = CompareSampled(c, reply);
    return same.ok()
               ? same
               : absl::Status(same.code(), absl::StrCat(c.reference.text, ": ", same.message()));
  }
  for (size_t output = 0; output < c.outputs.size(); ++output) {
    const Tensor& want = c.reference.wanted[output];
    const Tensor got{want.dtype, want.shape, std::string(c.outputs[output].view())};
    const absl::StatusOr<double> worst = WithinBounds(got, want, c.reference.bounds[output]);
    if (!worst.ok()) {
      return absl::DataLossError(absl::StrCat("output \"", output_names_[output], "\" at ",
                                              c.reference.text, ": ", worst.status().message()));
    }
    reply->set_worst_error(std::max(reply->worst_error(), *worst));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<internal::CheckReply> CheckKernels(const internal::CheckRequest& request,
                                                  const IsolationLimits& limits,
                                                  ReferenceMemory* memory) {
  if (request.objects_size() != request.plan().kernels_size()) {
    return absl::InvalidArgumentError(absl::StrCat("check: ", request.objects_size(),
                                                   " objects for ", request.plan().kernels_size(),
                                                   " kernels"));
  }
  absl::StatusOr<std::shared_ptr<const References>> references = memory->For(request);
  if (!references.ok()) return references.status();
  return Checker(request, **references, limits).Run();
}

}  // namespace athanor
