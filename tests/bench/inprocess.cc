// A model in this process behind a C interface, for benchmarks that compare it call by call with
// another runtime in the same process (tests/bench/inprocess.py).
//
//   void* m = athanor_load(graph, graph_bytes, names, data, sizes, count, threads, error,
//   error_bytes); athanor_run(m, inputs, input_bytes, dims, outputs, output_bytes, error,
//   error_bytes);
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen/cpu/clang.h"
#include "compiler/frontend/frontend.h"
#include "compiler/pipeline/pipeline.h"
#include "proto/athanor/v1/graph.pb.h"
#include "runtime/cpu/device.h"
#include "runtime/executor.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

struct Model {
  std::unique_ptr<CpuDevice> device;
  std::shared_ptr<const Executable> executable;
  std::unique_ptr<Executable::Context> context;
};

void Tell(const absl::Status& status, char* error, size_t bytes) {
  std::string text = status.ToString();
  std::strncpy(error, text.c_str(), bytes - 1);
  error[bytes - 1] = '\0';
}

absl::StatusOr<std::unique_ptr<Model>> Load(const v1::Graph& message,
                                            std::vector<ParameterView> parameters, int threads) {
  absl::StatusOr<ImportedGraph> imported = ImportGraph(message);
  if (!imported.ok()) return imported.status();
  v1::Target target = HostTarget();
  target.set_threads(threads);
  absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(imported->graph, target);
  if (!plan.ok()) return plan.status();
  std::vector<std::string> objects;
  CpuTarget cpu{
      target.triple(), target.cpu(), {target.features().begin(), target.features().end()}};
  for (const v1::Kernel& k : plan->kernels()) {
    absl::StatusOr<std::string> object = CompileToSharedObject(k.source(), cpu, {});
    if (!object.ok()) return object.status();
    objects.push_back(*std::move(object));
  }
  auto model = std::make_unique<Model>();
  absl::StatusOr<std::unique_ptr<CpuDevice>> device = CpuDevice::Create({.threads = threads});
  if (!device.ok()) return device.status();
  model->device = *std::move(device);
  std::vector<absl::string_view> views(objects.begin(), objects.end());
  auto executable = Executable::Load(*plan, views, parameters, model->device.get(), {});
  if (!executable.ok()) return executable.status();
  model->executable = *std::move(executable);
  auto context = model->executable->NewContext();
  if (!context.ok()) return context.status();
  model->context = *std::move(context);
  return model;
}

}  // namespace
}  // namespace athanor

extern "C" {

// `data[i]` stays the caller's for the model's life. nullptr and a text in `error` on failure.
void* athanor_load(const char* graph, size_t graph_bytes, const char* const* names,
                   const void* const* data, const size_t* sizes, int count, int threads,
                   char* error, size_t error_bytes) {
  athanor::v1::Graph message;
  if (!message.ParseFromArray(graph, static_cast<int>(graph_bytes))) {
    athanor::Tell(absl::InvalidArgumentError("the graph does not parse"), error, error_bytes);
    return nullptr;
  }
  std::vector<athanor::ParameterView> parameters;
  for (int i = 0; i < count; ++i) {
    parameters.push_back({names[i], {static_cast<const char*>(data[i]), sizes[i]}, nullptr});
  }
  auto model = athanor::Load(message, std::move(parameters), threads);
  if (model.ok()) return model->release();
  athanor::Tell(model.status(), error, error_bytes);
  return nullptr;
}

// Inputs by the order of the graph's Inputs, dims by `athanor_dims`. 0 on success.
int athanor_run(void* handle, const void* const* inputs, const size_t* input_bytes,
                const int64_t* dims, void* const* outputs, const size_t* output_bytes, char* error,
                size_t error_bytes) {
  auto* m = static_cast<athanor::Model*>(handle);
  const athanor::Executable& e = *m->executable;
  std::vector<absl::string_view> in;
  for (int i = 0; i < e.inputs(); ++i)
    in.emplace_back(static_cast<const char*>(inputs[i]), input_bytes[i]);
  std::vector<absl::Span<char>> out;
  for (int i = 0; i < e.outputs(); ++i)
    out.emplace_back(static_cast<char*>(outputs[i]), output_bytes[i]);
  absl::Status s = e.Run(m->context.get(), absl::MakeSpan(dims, e.dims().size()), in, out, {});
  if (s.ok()) return 0;
  athanor::Tell(s, error, error_bytes);
  return 1;
}

// The i-th dim's name, nullptr past the last: the order `athanor_run` takes their values in.
const char* athanor_dim(void* handle, int i) {
  const auto& dims = static_cast<athanor::Model*>(handle)->executable->dims();
  return i < static_cast<int>(dims.size()) ? dims[i].name.c_str() : nullptr;
}

// Nanoseconds of each step of one run, with its label; returns the number of steps.
int athanor_profile(void* handle, const void* const* inputs, const size_t* input_bytes,
                    const int64_t* dims, void* const* outputs, const size_t* output_bytes,
                    int64_t* nanoseconds, const char** labels, int capacity) {
  auto* m = static_cast<athanor::Model*>(handle);
  const athanor::Executable& e = *m->executable;
  if (capacity < e.steps()) return -1;
  std::vector<absl::string_view> in;
  for (int i = 0; i < e.inputs(); ++i)
    in.emplace_back(static_cast<const char*>(inputs[i]), input_bytes[i]);
  std::vector<absl::Span<char>> out;
  for (int i = 0; i < e.outputs(); ++i)
    out.emplace_back(static_cast<char*>(outputs[i]), output_bytes[i]);
  athanor::RunOptions options;
  options.step_nanoseconds = absl::MakeSpan(nanoseconds, e.steps());
  if (!e.Run(m->context.get(), absl::MakeSpan(dims, e.dims().size()), in, out, options).ok())
    return -1;
  for (int i = 0; i < e.steps(); ++i) labels[i] = e.step_label(i).c_str();
  return e.steps();
}

void athanor_free(void* handle) { delete static_cast<athanor::Model*>(handle); }

}  // extern "C"
