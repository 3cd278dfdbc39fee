#include "server/tuner/check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/compare.h"
#include "compiler/ir/graph.h"
#include "runtime/cpu/device.h"
#include "runtime/executor.h"
#include "server/tuner/error_bound.h"
#include "server/tuner/inputs.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSeeds = 2;
// A second seed is left out when the first one's reference took longer.
constexpr std::chrono::milliseconds kLongReference{20};
constexpr double kReferenceToo = 2;  // kernel and reference are each within the bound
constexpr unsigned char kNoise = 0x5a;

// One set of sizes with one seed: what goes in, what must come out, what did.
struct Case {
  std::vector<int64_t> dims;
  std::string text;                  // "b=7 s=11, seed 3"
  std::vector<GuardedBytes> inputs;  // in the order of graph.InputIds(), then ParameterIds()
  bool index_error = false;          // the reference finds an index out of range
  std::vector<Tensor> wanted;        // by graph.outputs
  std::vector<std::vector<double>> tolerances;
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

  absl::StatusOr<double> Run() {
    absl::Status status = Validate();
    for (int i = 0; i < request_.sizes_size() && status.ok(); ++i) status = AddCases(i);
    if (!status.ok()) return status;
    status = RunIsolated("a checked kernel", limits_, [this] { return RunPlans(); });
    if (!status.ok()) return status;
    double worst = 0;
    for (const Case& c : cases_) {
      absl::StatusOr<double> error = Compare(c);
      if (!error.ok()) return error;
      worst = std::max(worst, *error);
    }
    return worst;
  }

 private:
  absl::Status Validate();
  absl::Status AddCases(int index);
  absl::StatusOr<Case> MakeCase(const Expr::Env& env, uint64_t seed);
  absl::Status SetReference(const Expr::Env& env, const std::vector<Tensor>& inputs, Case* c);
  absl::StatusOr<double> Compare(const Case& c) const;
  absl::StatusOr<double> CompareOutput(const Case& c, size_t output) const;

  // In the isolated process.
  absl::Status RunPlans();
  absl::Status RunCase(Device* device, const std::vector<absl::string_view>& objects, Case& c);
  absl::StatusOr<std::vector<absl::string_view>> PlanInputs(const Executable& plan, const Case& c);

  const internal::CheckRequest& request_;
  const IsolationLimits limits_;
  Graph graph_;
  std::vector<std::string> input_names_, output_names_;
  size_t parameters_ = 0;  // the last of input_names_
  std::vector<Case> cases_;
};

absl::Status Checker::Validate() {
  absl::StatusOr<Graph> graph = ParseGraph(request_.graph_text());
  if (!graph.ok()) return graph.status();
  if (absl::Status s = Verify(*graph); !s.ok()) return s;
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
  for (int d = 0; d < plan.dims_size(); ++d) env[plan.dims(d).name()] = sizes[d];
  for (int s = 0; s < kSeeds; ++s) {
    const uint64_t seed = request_.seed() + static_cast<uint64_t>(index) * kSeeds + s;
    const Clock::time_point start = Clock::now();
    absl::StatusOr<Case> c = MakeCase(env, seed);
    if (!c.ok()) return c.status();
    c->dims.assign(sizes.begin(), sizes.end());
    for (int d = 0; d < plan.dims_size(); ++d) {
      absl::StrAppend(&c->text, plan.dims(d).name(), "=", sizes[d], " ");
    }
    absl::StrAppend(&c->text, "seed=", seed);
    cases_.push_back(*std::move(c));
    if (Clock::now() - start > kLongReference) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<Case> Checker::MakeCase(const Expr::Env& env, uint64_t seed) {
  Case c;
  absl::Status status;
  std::vector<Tensor> inputs;
  // Indices computed from inputs are in range for tame inputs if for any.
  for (IndexChoice choice : {IndexChoice::kAny, IndexChoice::kSmall, IndexChoice::kZero}) {
    absl::StatusOr<std::vector<Tensor>> random = RandomInputs(graph_, env, seed, choice);
    if (!random.ok()) return random.status();
    inputs = *std::move(random);
    status = SetReference(env, inputs, &c);
    if (!absl::IsOutOfRange(status)) break;
  }
  c.index_error = absl::IsOutOfRange(status);
  if (!status.ok() && !c.index_error) return status;
  for (const Tensor& input : inputs) {
    absl::StatusOr<GuardedBytes> bytes = GuardedBytes::Create(input.bytes.size());
    if (!bytes.ok()) return bytes.status();
    std::memcpy(bytes->data(), input.bytes.data(), input.bytes.size());
    c.inputs.push_back(*std::move(bytes));
  }
  return c;
}

absl::Status Checker::SetReference(const Expr::Env& env, const std::vector<Tensor>& inputs, Case* c) {
  absl::StatusOr<std::vector<Tensor>> wanted = Evaluate(graph_, inputs, &env);
  if (!wanted.ok()) return wanted.status();
  absl::StatusOr<std::vector<std::vector<double>>> bounds = ErrorBounds(graph_, inputs, &env);
  if (!bounds.ok()) return bounds.status();
  c->wanted = *std::move(wanted);
  c->tolerances = *std::move(bounds);
  for (std::vector<double>& tolerances : c->tolerances) {
    for (double& t : tolerances) t *= kReferenceToo;
  }
  for (const Tensor& tensor : c->wanted) {
    absl::StatusOr<GuardedBytes> bytes = GuardedBytes::Create(tensor.bytes.size());
    if (!bytes.ok()) return bytes.status();
    std::memset(bytes->data(), kNoise, bytes->bytes());
    c->outputs.push_back(*std::move(bytes));
  }
  return absl::OkStatus();
}

absl::Status Checker::RunPlans() {
  absl::StatusOr<std::unique_ptr<CpuDevice>> device =
      CpuDevice::Create({.threads = 2, .pin = false});
  if (!device.ok()) return device.status();
  std::vector<absl::string_view> objects;
  for (const std::string& object : request_.objects()) objects.push_back(object);
  for (Case& c : cases_) {
    absl::Status status = RunCase(device->get(), objects, c);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(c.text, ": ", status.message()));
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
    inputs.push_back(c.inputs[*position].view());
  }
  return inputs;
}

absl::Status Checker::RunCase(Device* device, const std::vector<absl::string_view>& objects,
                              Case& c) {
  for (GuardedBytes& input : c.inputs) input.Freeze();
  std::vector<ParameterView> parameters;
  for (size_t i = input_names_.size() - parameters_; i < input_names_.size(); ++i) {
    parameters.push_back({input_names_[i], c.inputs[i].view(), nullptr});
  }
  absl::StatusOr<std::shared_ptr<const Executable>> plan =
      Executable::Load(request_.plan(), objects, parameters, device, {.poison = true});
  if (!plan.ok()) return plan.status();
  absl::StatusOr<std::unique_ptr<Executable::Context>> context = (*plan)->NewContext();
  if (!context.ok()) return context.status();
  absl::StatusOr<std::vector<absl::string_view>> inputs = PlanInputs(**plan, c);
  if (!inputs.ok()) return inputs.status();
  // A plan whose reference is an index error has nothing to write into but its own spare memory.
  std::vector<std::string> spare((*plan)->outputs());
  std::vector<absl::Span<char>> outputs;
  for (int i = 0; i < (*plan)->outputs(); ++i) {
    const std::optional<size_t> position = PositionOf((*plan)->output_name(i), output_names_);
    if (!position) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the plan's output \"", (*plan)->output_name(i), "\" is none of the graph's"));
    }
    if (c.index_error) {
      if (absl::Status s = (*plan)->CheckDims(c.dims); !s.ok()) return s;
      spare[i].resize((*plan)->output_bytes(i, c.dims));
      outputs.push_back(absl::MakeSpan(spare[i].data(), spare[i].size()));
    } else {
      outputs.push_back(absl::MakeSpan(c.outputs[*position].data(), c.outputs[*position].bytes()));
    }
  }
  if (static_cast<size_t>((*plan)->outputs()) != output_names_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has ", (*plan)->outputs(),
                                                   " outputs, the graph ", output_names_.size()));
  }
  absl::Status status = (*plan)->Run(context->get(), c.dims, *inputs, outputs, {});
  if (!c.index_error) return status;
  if (absl::IsInvalidArgument(status)) return absl::OkStatus();
  return status.ok() ? absl::DataLossError("an index out of range goes unnoticed") : status;
}

absl::StatusOr<double> Checker::CompareOutput(const Case& c, size_t output) const {
  const Tensor& want = c.wanted[output];
  Tensor got{want.dtype, want.shape, std::string(c.outputs[output].view())};
  std::vector<double> tolerances = c.tolerances[output];
  double worst = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    if (tolerances[i] == std::numeric_limits<double>::infinity()) {
      // Nothing can be said about this element at these inputs.
      StoreScalar(got, i, LoadScalar(want, i));
      tolerances[i] = 0;
    } else if (IsFloat(want.dtype) && tolerances[i] > 0) {
      const double error = std::fabs(LoadScalar(got, i).f - LoadScalar(want, i).f);
      if (std::isfinite(error)) worst = std::max(worst, error / tolerances[i]);
    }
  }
  absl::Status same = CompareTensors(got, want, tolerances);
  if (same.ok()) return std::min(worst, 1.0);
  return absl::DataLossError(
      absl::StrCat("output \"", output_names_[output], "\" at ", c.text, ": ", same.message()));
}

absl::StatusOr<double> Checker::Compare(const Case& c) const {
  double worst = 0;
  if (c.index_error) return worst;
  for (size_t output = 0; output < c.wanted.size(); ++output) {
    if (!c.outputs[output].MarginIntact()) {
      return absl::DataLossError(absl::StrCat("output \"", output_names_[output], "\" at ", c.text,
                                              ": written before its beginning"));
    }
    absl::StatusOr<double> error = CompareOutput(c, output);
    if (!error.ok()) return error;
    worst = std::max(worst, *error);
  }
  return worst;
}

}  // namespace

absl::StatusOr<double> CheckKernels(const internal::CheckRequest& request,
                                    const IsolationLimits& limits) {
  return Checker(request, limits).Run();
}

}  // namespace athanor
