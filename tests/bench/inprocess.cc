#include "tests/bench/inprocess.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/frontend/frontend.h"
#include "compiler/ir/graph/graph.h"
#include "compiler/ir/graph/magnitude.h"
#include "compiler/pipeline/pipeline.h"
#include "proto/athanor/v1/graph.pb.h"
#include "runtime/cpu/device.h"
#include "runtime/executor/executor.h"
#include "tests/bench/plan_folder.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

struct Model {
  SavedPlan saved;
  std::unique_ptr<CpuDevice> device;
  std::shared_ptr<const Executable> executable;
  std::unique_ptr<Executable::Context> context;
  double plan_seconds = 0, compile_seconds = 0, load_seconds = 0;
};

// Measures seconds since the last call, or since construction.
class Stopwatch {
 public:
  double Lap() {
    const auto from = std::exchange(last_, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(last_ - from).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void Tell(const absl::Status& status, char* error, size_t bytes) {
  std::string text = status.ToString();
  std::strncpy(error, text.c_str(), bytes - 1);
  error[bytes - 1] = '\0';
}

absl::StatusOr<SavedPlan> Baseline(const Graph& graph, int threads) {
  v1::Target target = HostTarget();
  target.set_threads(threads);
  absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(graph, target);
  if (!plan.ok()) return plan.status();
  std::vector<std::string> objects(plan->kernels_size());
  return SavedPlan{*std::move(plan), std::move(objects)};
}

// Reads the plan in `folder`, which must be one for this graph and number of threads.
absl::StatusOr<SavedPlan> FromFolder(const std::string& folder, const Graph& graph, int threads) {
  absl::StatusOr<SavedPlan> saved = ReadPlan(folder);
  if (!saved.ok()) return saved.status();
  const v1::Plan& plan = saved->plan;
  if (const std::string hash = CanonicalHash(graph); plan.graph_hash() != hash) {
    return absl::FailedPreconditionError(absl::StrCat(folder, ": the plan is for the graph ",
                                                      plan.graph_hash(), ", not for ", hash));
  }
  if (plan.target().threads() != threads) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, ": the plan is for ", plan.target().threads(), " threads, not for ", threads));
  }
  return saved;
}

absl::Status CompileMissing(SavedPlan* saved) {
  const v1::Target& target = saved->plan.target();
  CpuTarget cpu{
      target.triple(), target.cpu(), {target.features().begin(), target.features().end()}};
  for (int i = 0; i < saved->plan.kernels_size(); ++i) {
    if (!saved->objects[i].empty()) continue;
    absl::StatusOr<std::string> object =
        CompileToSharedObject(saved->plan.kernels(i).source(), cpu, {});
    if (!object.ok()) return object.status();
    saved->objects[i] = *std::move(object);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> Load(const v1::Graph& message,
                                            std::vector<ParameterView> parameters, int threads,
                                            const char* folder) {
  auto model = std::make_unique<Model>();
  Stopwatch watch;
  absl::StatusOr<ImportedGraph> imported = ImportGraph(message);
  if (!imported.ok()) return imported.status();
  // The importer's facts about weights, as the server has them: a plan found for other contents is
  // refused.
  for (const NodeId id : imported->graph.ParameterIds()) {
    Node& node = imported->graph.nodes[id];
    for (const ParameterView& p : parameters) {
      if (p.name != node.name) continue;
      SetMagnitude(MagnitudeOf(node.type.dtype, {p.data.data(), p.data.size()}), &node);
    }
  }
  absl::StatusOr<SavedPlan> saved = folder == nullptr
                                        ? Baseline(imported->graph, threads)
                                        : FromFolder(folder, imported->graph, threads);
  if (!saved.ok()) return saved.status();
  model->saved = *std::move(saved);
  model->plan_seconds = watch.Lap();
  if (absl::Status s = CompileMissing(&model->saved); !s.ok()) return s;
  model->compile_seconds = watch.Lap();
  absl::StatusOr<std::unique_ptr<CpuDevice>> device = CpuDevice::Create({.threads = threads});
  if (!device.ok()) return device.status();
  model->device = *std::move(device);
  std::vector<absl::string_view> views(model->saved.objects.begin(), model->saved.objects.end());
  auto executable = Executable::Load(model->saved.plan, views, parameters, model->device.get(), {});
  if (!executable.ok()) return executable.status();
  model->executable = *std::move(executable);
  auto context = model->executable->NewContext();
  if (!context.ok()) return context.status();
  model->context = *std::move(context);
  model->load_seconds = watch.Lap();
  return model;
}

// Wraps the caller's pointers for the executor.
struct Tensors {
  std::vector<absl::string_view> in;
  std::vector<absl::Span<char>> out;
};

Tensors View(const Executable& e, const void* const* inputs, const size_t* input_bytes,
             void* const* outputs, const size_t* output_bytes) {
  Tensors t;
  for (int i = 0; i < e.inputs(); ++i)
    t.in.emplace_back(static_cast<const char*>(inputs[i]), input_bytes[i]);
  for (int i = 0; i < e.outputs(); ++i)
    t.out.emplace_back(static_cast<char*>(outputs[i]), output_bytes[i]);
  return t;
}

}  // namespace
}  // namespace athanor

extern "C" {

void* athanor_load(const char* graph, size_t graph_bytes, const char* const* names,
                   const void* const* data, const size_t* sizes, int count, int threads,
                   const char* plan_folder, char* error, size_t error_bytes) {
  athanor::v1::Graph message;
  if (!message.ParseFromArray(graph, static_cast<int>(graph_bytes))) {
    athanor::Tell(absl::InvalidArgumentError("the graph does not parse"), error, error_bytes);
    return nullptr;
  }
  std::vector<athanor::ParameterView> parameters;
  for (int i = 0; i < count; ++i) {
    parameters.push_back({names[i], {static_cast<const char*>(data[i]), sizes[i]}, nullptr});
  }
  auto model = athanor::Load(message, std::move(parameters), threads, plan_folder);
  if (model.ok()) return model->release();
  athanor::Tell(model.status(), error, error_bytes);
  return nullptr;
}

int athanor_run(void* handle, const void* const* inputs, const size_t* input_bytes,
                const int64_t* dims, void* const* outputs, const size_t* output_bytes, char* error,
                size_t error_bytes) {
  auto* m = static_cast<athanor::Model*>(handle);
  const athanor::Executable& e = *m->executable;
  athanor::Tensors t = athanor::View(e, inputs, input_bytes, outputs, output_bytes);
  absl::Status s = e.Run(m->context.get(), absl::MakeSpan(dims, e.dims().size()), t.in, t.out, {});
  if (s.ok()) return 0;
  athanor::Tell(s, error, error_bytes);
  return 1;
}

const char* athanor_dim(void* handle, int i) {
  const auto& dims = static_cast<athanor::Model*>(handle)->executable->dims();
  return i < static_cast<int>(dims.size()) ? dims[i].name.c_str() : nullptr;
}

const char* athanor_input(void* handle, int i) {
  const athanor::Executable& e = *static_cast<athanor::Model*>(handle)->executable;
  return i < e.inputs() ? e.input_name(i).c_str() : nullptr;
}

const char* athanor_output(void* handle, int i) {
  const athanor::Executable& e = *static_cast<athanor::Model*>(handle)->executable;
  return i < e.outputs() ? e.output_name(i).c_str() : nullptr;
}

const char* athanor_plan_id(void* handle) {
  return static_cast<athanor::Model*>(handle)->saved.plan.plan_id().c_str();
}

const char* athanor_plan_kind(void* handle) {
  return static_cast<athanor::Model*>(handle)->saved.plan.kind().c_str();
}

int athanor_kernels(void* handle) {
  return static_cast<athanor::Model*>(handle)->saved.plan.kernels_size();
}

int athanor_steps(void* handle) {
  return static_cast<athanor::Model*>(handle)->saved.plan.run_size();
}

void athanor_seconds(void* handle, double* seconds) {
  const auto* m = static_cast<athanor::Model*>(handle);
  seconds[0] = m->plan_seconds;
  seconds[1] = m->compile_seconds;
  seconds[2] = m->load_seconds;
}

int athanor_save(void* handle, const char* folder, char* error, size_t error_bytes) {
  const auto* m = static_cast<athanor::Model*>(handle);
  absl::Status s = athanor::WritePlan(folder, m->saved.plan, m->saved.objects);
  if (s.ok()) return 0;
  athanor::Tell(s, error, error_bytes);
  return 1;
}

int athanor_profile(void* handle, const void* const* inputs, const size_t* input_bytes,
                    const int64_t* dims, void* const* outputs, const size_t* output_bytes,
                    int64_t* nanoseconds, const char** labels, int capacity) {
  auto* m = static_cast<athanor::Model*>(handle);
  const athanor::Executable& e = *m->executable;
  if (capacity < e.steps()) return -1;
  athanor::Tensors t = athanor::View(e, inputs, input_bytes, outputs, output_bytes);
  athanor::RunOptions options;
  options.step_nanoseconds = absl::MakeSpan(nanoseconds, e.steps());
  if (!e.Run(m->context.get(), absl::MakeSpan(dims, e.dims().size()), t.in, t.out, options).ok())
    return -1;
  for (int i = 0; i < e.steps(); ++i) labels[i] = e.step_label(i).c_str();
  return e.steps();
}

void athanor_free(void* handle) { delete static_cast<athanor::Model*>(handle); }

}  // extern "C"
