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
#include "server/tuner/check/check_run.h"
#include "server/tuner/check/error_bound.h"
#include "server/tuner/check/sampled_check.h"
#include "server/tuner/run/device_worker.h"
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
  std::vector<absl::string_view> inputs;  // in the order of graph.ArgumentIds()
  std::vector<GuardedBytes> outputs;
};

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
  absl::StatusOr<Case> MakeCase(const ReferenceCase& reference);
  absl::Status AddSampledOutputs(Case* c);
  absl::Status AddOutput(size_t bytes, Case* c);
  int64_t RepeatedBytesHeld() const;

  absl::Status Compare(const Case& c, bool refused, internal::CheckReply* reply) const;
  absl::Status CompareSampled(const Case& c, internal::CheckReply* reply) const;

  // Runs the kernels where they can harm nothing.
  absl::Status RunKernels();
  absl::string_view OutputName(size_t output) const { return graph_.outputs[output].name; }

  const internal::CheckRequest& request_;
  const Graph& graph_;
  const std::vector<ReferenceCase>& references_;
  const IsolationLimits limits_;
  std::vector<Case> cases_;
  std::optional<SharedMemory> refused_;  // CheckRun::refused
};

absl::StatusOr<internal::CheckReply> Checker::Run() {
  for (const ReferenceCase& reference : references_) {
    ASSIGN_OR_RETURN(Case c, MakeCase(reference));
    cases_.push_back(std::move(c));
  }
  RETURN_IF_ERROR(RunKernels());
  internal::CheckReply reply;
  for (size_t i = 0; i < cases_.size(); ++i) {
    RETURN_IF_ERROR(Compare(cases_[i], refused_->data()[i] != 0, &reply));
  }
  return reply;
}

absl::Status Checker::RunKernels() {
  constexpr absl::string_view kWhat = "a checked kernel";
  ASSIGN_OR_RETURN(refused_, TakeOrCreate(limits_, cases_.size()));
  CheckRun run = {.request = request_, .graph = graph_, .refused = refused_->data()};
  std::vector<std::vector<GuardedBytes>*> outputs;
  for (Case& c : cases_) {
    CheckRun::Case& one = run.cases.emplace_back(CheckRun::Case{c.reference, c.inputs, {}});
    for (GuardedBytes& output : c.outputs) {
      one.outputs.push_back(absl::MakeSpan(output.data(), output.bytes()));
    }
    outputs.push_back(&c.outputs);
  }
  // Repeated pages count as often as they are mapped.
  IsolationLimits limits = limits_;
  limits.memory_bytes += RepeatedBytesHeld();
  if (limits.worker != nullptr) {
    internal::WorkerJob job;
    *job.mutable_check() = CheckJobOf(run, outputs, *refused_);
    return limits.worker->Run(kWhat, limits, &job).status();
  }
  std::optional<SharedMemory> window;
  if (limits.scratch != nullptr) {
    window = limits.scratch->Take(LargePreparedBytes(request_.plan(), {}));
    if (window.has_value()) run.window = &*window;
  }
  return RunWhereItIsSafe(kWhat, limits, request_.plan().target(), /*threads=*/2,
                          [&](Device* device) { return RunCheck(run, device); });
}

int64_t Checker::RepeatedBytesHeld() const {
  int64_t bytes = 0;
  for (const Case& c : cases_) {
    for (const RepeatedBytes& r : c.reference.repeated)
      bytes += static_cast<int64_t>(r.view().size());
  }
  return bytes;
}

absl::Status Checker::AddOutput(size_t bytes, Case* c) {
  absl::StatusOr<GuardedBytes> output = TakeOrCreateGuarded(limits_, bytes);
  if (!output.ok()) return output.status();
  std::memset(output->data(), kNoise, output->bytes());
  c->outputs.push_back(*std::move(output));
  return absl::OkStatus();
}

absl::StatusOr<Case> Checker::MakeCase(const ReferenceCase& reference) {
  Case c{reference, {}, {}, {}};
  for (const RepeatedBytes& input : reference.repeated) c.inputs.push_back(input.view());
  for (const Tensor& input : reference.inputs) {
    if (limits_.worker != nullptr) {  // which draws them again
      c.inputs.push_back(input.bytes);
      continue;
    }
    absl::StatusOr<GuardedBytes> bytes = GuardedBytes::Create(input.bytes.size());
    if (!bytes.ok()) return bytes.status();
    std::memcpy(bytes->data(), input.bytes.data(), input.bytes.size());
    bytes->Freeze();
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
  // The kernels' process can write that mark. What is known to be in range is compared all the
  // same.
  if (refused && c.reference.in_range) {
    return absl::DataLossError(absl::StrCat(
        c.reference.text, ": every index is in range, yet one is said to be out of it"));
  }
  if (c.reference.index_error || refused) {
    if (c.reference.sampled)
      reply->add_left_out(absl::StrCat(c.reference.text, ": an index is out of range"));
    return absl::OkStatus();
  }
  for (size_t output = 0; output < c.outputs.size(); ++output) {
    if (c.outputs[output].MarginIntact()) continue;
    return absl::DataLossError(absl::StrCat("output \"", OutputName(output), "\" at ",
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
      return absl::DataLossError(absl::StrCat("output \"", OutputName(output), "\" at ",
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
