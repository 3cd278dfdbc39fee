#include "server/tuner/check/check.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/graph/accepted_limits.h"
#include "compiler/ir/graph/graph.h"
#include "runtime/cpu/device.h"
#include "runtime/executor.h"
#include "runtime/prepared_pool.h"
#include "server/tuner/check/error_bound.h"
#include "server/tuner/check/sampled_check.h"
#include "server/tuner/run/inputs.h"
#include "server/tuner/run/repeated_bytes.h"
#include "server/tuner/run/scratch.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSeeds = 2;
// A second seed is skipped if the first one's reference took longer.
constexpr std::chrono::milliseconds kLongReference{20};
constexpr unsigned char kNoise = 0x5a;

// One set of sizes with one seed: inputs, expected outputs, and the kernel's outputs.
struct Case {
  std::vector<int64_t> dims;
  Expr::Env env;
  std::string text;  // "b=7 s=11 seed=3"
  uint64_t seed = 0;
  bool sampled = false;
  std::vector<GuardedBytes> held;  // inputs are in this or in `repeated`
  std::vector<RepeatedBytes> repeated;
  std::vector<absl::string_view> inputs;  // in the order of graph.InputIds(), then ParameterIds()
  bool index_error = false;               // the reference finds an index out of range
  bool in_range = true;                   // every index was examined, and all are in range
  std::vector<Tensor> wanted;             // by graph.outputs; unused in sampled cases
  std::vector<std::vector<double>> bounds;
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
  Checker(const internal::CheckRequest& request, const IsolationLimits& limits)
      : request_(request), limits_(limits) {}

  absl::StatusOr<internal::CheckReply> Run();

 private:
  absl::Status Validate();
  absl::Status AddCases(int index);
  absl::StatusOr<Case> MakeCase(const Expr::Env& env, uint64_t seed);
  absl::Status SetReference(const std::vector<Tensor>& inputs, Case* c);
  absl::StatusOr<Case> MakeSampledCase(const Expr::Env& env, uint64_t seed);
  absl::Status RepeatInputs(IndexChoice choice, Case* c);
  absl::Status AddOutput(size_t bytes, Case* c);
  int64_t RepeatedBytesHeld() const;

  absl::Status Compare(const Case& c, bool refused, internal::CheckReply* reply) const;
  absl::Status CompareSampled(const Case& c, internal::CheckReply* reply) const;

  // Run in the isolated process.
  absl::Status RunPlans();
  absl::Status RunCase(Device* device, PreparedPool* pool,
                       const std::vector<absl::string_view>& objects, Case& c, char* refused);
  absl::StatusOr<std::vector<absl::string_view>> PlanInputs(const Executable& plan, const Case& c);
  absl::StatusOr<std::vector<absl::Span<char>>> PlanOutputs(const Executable& plan, const Case& c,
                                                            std::vector<std::string>* spare);

  const internal::CheckRequest& request_;
  const IsolationLimits limits_;
  Graph graph_;
  std::vector<std::string> input_names_, output_names_;
  size_t parameters_ = 0;  // number of parameters, which are the last of input_names_
  // Range of integers to draw: the most general that keeps computed indices in range so far.
  IndexChoice choice_ = IndexChoice::kAny;
  std::vector<Case> cases_;
  // By case, written in the isolated process: the kernel found an index out of range, rightly or
  // not.
  std::optional<SharedMemory> refused_;
  std::optional<SharedMemory> window_;  // for large prepared weights; empty: in memory
};

constexpr IndexChoice kChoices[] = {IndexChoice::kAny, IndexChoice::kSmall, IndexChoice::kZero};

absl::StatusOr<internal::CheckReply> Checker::Run() {
  absl::Status status = Validate();
  for (int i = 0; i < request_.sizes_size() && status.ok(); ++i) status = AddCases(i);
  if (!status.ok()) return status;
  absl::StatusOr<SharedMemory> refused = SharedMemory::Create(cases_.size());
  if (!refused.ok()) return refused.status();
  refused_.emplace(*std::move(refused));
  if (limits_.scratch != nullptr) {
    window_ = limits_.scratch->Take(LargePreparedBytes(request_.plan(), {}));
  }
  // Repeated pages count as often as they are mapped.
  IsolationLimits limits = limits_;
  limits.memory_bytes += RepeatedBytesHeld();
  status = RunIsolated("a checked kernel", limits, [this] { return RunPlans(); });
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
    for (const RepeatedBytes& r : c.repeated) bytes += static_cast<int64_t>(r.view().size());
  }
  return bytes;
}

absl::Status Checker::Validate() {
  absl::StatusOr<Graph> graph = ParseGraph(request_.graph_text(), AcceptedLimits());
  if (!graph.ok()) return graph.status();
  if (absl::Status s = Verify(*graph, AcceptedLimits()); !s.ok()) return s;
  graph_ = *std::move(graph);
  for (NodeId id : graph_.InputIds()) input_names_.push_back(graph_.node(id).name);
  for (NodeId id : graph_.ParameterIds()) input_names_.push_back(graph_.node(id).name);
  parameters_ = graph_.ParameterIds().size();
  for (const Output& output : graph_.outputs) output_names_.push_back(output.name);
  if (request_.objects_size() != request_.plan().kernels_size()) {
    return absl::InvalidArgumentError(absl::StrCat("check: ", request_.objects_size(),
                                                   " objects for ", request_.plan().kernels_size(),
                                                   " kernels"));
  }
  if (request_.sizes_size() == 0) return absl::InvalidArgumentError("check: no sizes");
  return absl::OkStatus();
}

absl::Status Checker::AddCases(int index) {
  const auto& sizes = request_.sizes(index).values();
  const v1::Plan& plan = request_.plan();
  if (sizes.size() != plan.dims_size()) {
    return absl::InvalidArgumentError(absl::StrCat("check: ", sizes.size(), " sizes for ",
                                                   plan.dims_size(), " dims of the plan"));
  }
  Expr::Env env;
  std::string text;
  for (int d = 0; d < plan.dims_size(); ++d) {
    env[plan.dims(d).name()] = sizes[d];
    absl::StrAppend(&text, plan.dims(d).name(), "=", sizes[d], " ");
  }
  const bool sampled = request_.sizes(index).sampled();
  for (int s = 0; s < (sampled ? 1 : kSeeds); ++s) {
    const uint64_t seed = request_.seed() + static_cast<uint64_t>(index) * kSeeds + s;
    const Clock::time_point start = Clock::now();
    absl::StatusOr<Case> c = sampled ? MakeSampledCase(env, seed) : MakeCase(env, seed);
    if (!c.ok()) return c.status();
    c->dims.assign(sizes.begin(), sizes.end());
    c->text = absl::StrCat(text, "seed=", seed);
    cases_.push_back(*std::move(c));
    if (Clock::now() - start > kLongReference) break;
  }
  return absl::OkStatus();
}

absl::Status Checker::AddOutput(size_t bytes, Case* c) {
  absl::StatusOr<GuardedBytes> output = TakeOrCreateGuarded(limits_.scratch, bytes);
  if (!output.ok()) return output.status();
  std::memset(output->data(), kNoise, output->bytes());
  c->outputs.push_back(*std::move(output));
  return absl::OkStatus();
}

absl::StatusOr<Case> Checker::MakeCase(const Expr::Env& env, uint64_t seed) {
  Case c;
  c.env = env;
  c.seed = seed;
  absl::Status status;
  std::vector<Tensor> inputs;
  // Indices computed from inputs are the most likely to be in range for small inputs.
  for (IndexChoice choice : kChoices) {
    absl::StatusOr<std::vector<Tensor>> random = RandomInputs(graph_, env, seed, choice);
    if (!random.ok()) return random.status();
    inputs = *std::move(random);
    status = SetReference(inputs, &c);
    choice_ = std::max(choice_, choice);
    if (!absl::IsOutOfRange(status)) break;
  }
  c.index_error = absl::IsOutOfRange(status);
  if (!status.ok() && !c.index_error) return status;
  for (const Tensor& input : inputs) {
    absl::StatusOr<GuardedBytes> bytes = GuardedBytes::Create(input.bytes.size());
    if (!bytes.ok()) return bytes.status();
    std::memcpy(bytes->data(), input.bytes.data(), input.bytes.size());
    c.held.push_back(*std::move(bytes));
    c.inputs.push_back(c.held.back().view());
  }
  return c;
}

absl::Status Checker::SetReference(const std::vector<Tensor>& inputs, Case* c) {
  absl::StatusOr<std::vector<Tensor>> wanted = Evaluate(graph_, inputs, &c->env);
  if (!wanted.ok()) return wanted.status();
  absl::StatusOr<std::vector<std::vector<double>>> bounds = ErrorBounds(graph_, inputs, &c->env);
  if (!bounds.ok()) return bounds.status();
  c->wanted = *std::move(wanted);
  c->bounds = *std::move(bounds);
  for (const Tensor& tensor : c->wanted) {
    if (absl::Status s = AddOutput(tensor.bytes.size(), c); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Checker::RepeatInputs(IndexChoice choice, Case* c) {
  absl::StatusOr<std::vector<DrawnInput>> drawn = DrawInputs(graph_, c->env, c->seed, choice);
  if (!drawn.ok()) return drawn.status();
  c->repeated.clear();
  c->inputs.clear();
  for (const DrawnInput& input : *drawn) {
    std::vector<int64_t> strides;
    int64_t bytes = DTypeBytes(input.drawn.dtype);
    for (size_t axis = input.shape.size(); axis-- > 0;) {
      strides.push_back(bytes);
      if (__builtin_mul_overflow(bytes, input.shape[axis], &bytes)) {
        return absl::ResourceExhaustedError(
            absl::StrCat("input \"", input_names_[c->repeated.size()], "\" has too many bytes"));
      }
    }
    absl::StatusOr<RepeatedBytes> repeated =
        RepeatedBytes::Create(bytes, strides, input.drawn.bytes);
    if (!repeated.ok()) return repeated.status();
    c->repeated.push_back(*std::move(repeated));
    c->inputs.push_back(c->repeated.back().view());
  }
  return absl::OkStatus();
}

absl::StatusOr<Case> Checker::MakeSampledCase(const Expr::Env& env, uint64_t seed) {
  Case c;
  c.env = env;
  c.seed = seed;
  c.sampled = true;
  for (IndexChoice choice : kChoices) {
    if (choice < choice_) continue;
    if (absl::Status s = RepeatInputs(choice, &c); !s.ok()) return s;
    const absl::StatusOr<bool> in_range = IndicesInRange(graph_, env, c.inputs);
    c.index_error = absl::IsOutOfRange(in_range.status());
    if (!in_range.ok() && !c.index_error) return in_range.status();
    c.in_range = in_range.ok() && *in_range;
    if (!c.index_error) break;
  }
  int64_t total = 0;
  for (const Output& output : graph_.outputs) {
    const TensorType& type = graph_.node(output.node).type;
    absl::StatusOr<std::vector<int64_t>> shape = ConcreteShape(type.shape, env);
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
    if (absl::Status s = AddOutput(bytes, &c); !s.ok()) return s;
  }
  return c;
}

absl::Status Checker::RunPlans() {
  absl::StatusOr<std::unique_ptr<CpuDevice>> device =
      CpuDevice::Create({.threads = 2, .pin = false});
  if (!device.ok()) return device.status();
  std::optional<ScratchDevice> large;
  if (window_.has_value()) large.emplace(device->get(), window_->data(), window_->bytes());
  PreparedPool pool(device->get(), nullptr, large.has_value() ? &*large : nullptr);
  std::vector<absl::string_view> objects;
  for (const std::string& object : request_.objects()) objects.push_back(object);
  for (size_t i = 0; i < cases_.size(); ++i) {
    absl::Status status = RunCase(device->get(), &pool, objects, cases_[i], refused_->data() + i);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(cases_[i].text, ": ", status.message()));
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
    if (c.index_error) {
      // There is nothing to compare, so the kernel writes into spare memory.
      (*spare)[i].resize(plan.output_bytes(i, c.dims));
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
  if (absl::Status s = (*plan)->CheckDims(c.dims); !s.ok()) return s;
  absl::StatusOr<std::vector<absl::string_view>> inputs = PlanInputs(**plan, c);
  if (!inputs.ok()) return inputs.status();
  std::vector<std::string> spare;
  absl::StatusOr<std::vector<absl::Span<char>>> outputs = PlanOutputs(**plan, c, &spare);
  if (!outputs.ok()) return outputs.status();
  absl::Status status = (*plan)->Run(context->get(), c.dims, *inputs, *outputs, {});
  if (c.index_error && status.ok()) {
    return absl::DataLossError("an index out of range goes unnoticed");
  }
  if (!IsIndexError(status) || c.index_error) {
    return IsIndexError(status) ? absl::OkStatus() : status;
  }
  if (c.in_range) {
    return absl::DataLossError(absl::StrCat("every index is in range, yet ", status.message()));
  }
  *refused = 1;
  return absl::OkStatus();
}

absl::Status Checker::CompareSampled(const Case& c, internal::CheckReply* reply) const {
  std::vector<absl::string_view> outputs;
  for (const GuardedBytes& output : c.outputs) outputs.push_back(output.view());
  absl::StatusOr<SampleReport> report = CompareSamples({.graph = graph_,
                                                        .dims = c.env,
                                                        .inputs = c.inputs,
                                                        .outputs = outputs,
                                                        .noise = kNoise,
                                                        .seed = c.seed});
  if (!report.ok()) return report.status();
  reply->set_worst_error(std::max(reply->worst_error(), report->worst_error));
  reply->set_sampled_elements(reply->sampled_elements() + report->elements);
  for (const std::string& why : report->left_out) {
    reply->add_left_out(absl::StrCat(c.text, ": ", why));
  }
  return absl::OkStatus();
}

absl::Status Checker::Compare(const Case& c, bool refused, internal::CheckReply* reply) const {
  if (c.index_error || refused) {
    if (c.sampled) reply->add_left_out(absl::StrCat(c.text, ": an index is out of range"));
    return absl::OkStatus();
  }
  for (size_t output = 0; output < c.outputs.size(); ++output) {
    if (c.outputs[output].MarginIntact()) continue;
    return absl::DataLossError(absl::StrCat("output \"", output_names_[output], "\" at ", c.text,
                                            ": written before its beginning"));
  }
  if (c.sampled) {
    const absl::Status same = CompareSampled(c, reply);
    return same.ok() ? same : absl::Status(same.code(), absl::StrCat(c.text, ": ", same.message()));
  }
  for (size_t output = 0; output < c.outputs.size(); ++output) {
    const Tensor& want = c.wanted[output];
    const Tensor got{want.dtype, want.shape, std::string(c.outputs[output].view())};
    const absl::StatusOr<double> worst = WithinBounds(got, want, c.bounds[output]);
    if (!worst.ok()) {
      return absl::DataLossError(absl::StrCat("output \"", output_names_[output], "\" at ", c.text,
                                              ": ", worst.status().message()));
    }
    reply->set_worst_error(std::max(reply->worst_error(), *worst));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<internal::CheckReply> CheckKernels(const internal::CheckRequest& request,
                                                  const IsolationLimits& limits) {
  return Checker(request, limits).Run();
}

}  // namespace athanor
