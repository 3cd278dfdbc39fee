// Measures the steps of an ONNX model's baseline plan, in this process, with random weights.
//
//   onnx_steps --model model.onnx --dims "batch:1:8,height:32:320" --sizes "batch=1,height=224"
//              [--threads N] [--rounds N] [--sources FOLDER] [--lower 1]
//
// `--lower` lowers the graph `--rounds` times, checks included, and prints the least and median
// milliseconds instead, and how many kernels there are.
//
// Prints a line per step: least and median microseconds, GFLOP/s at the least, number of work
// items, number of the kernel, label; then the sums, and the time of whole runs, which alternate
// with timed ones. `--sources` writes each kernel's source and object to a folder.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/frontend/expr_proto.h"
#include "compiler/frontend/onnx/importer/import.h"
#include "compiler/pipeline/pipeline.h"
#include "runtime/cpu/device.h"
#include "runtime/executor/executor.h"
#include "tests/bench/arguments.h"
#include "tests/bench/graph_file.h"
#include "tests/conformance/harness.h"

namespace athanor {
namespace {

struct Arguments {
  std::string model, sources;
  OnnxDims dims;
  std::map<std::string, int64_t> sizes;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  int rounds = 21, lower = 0;
};

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments a;
  const auto sizes = [&](const std::string& value) {
    for (absl::string_view item : absl::StrSplit(value, ',', absl::SkipEmpty())) {
      const std::vector<std::string> parts = absl::StrSplit(item, '=');
      if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &a.sizes[parts[0]])) return false;
    }
    return true;
  };
  const absl::Status read = ReadArguments(argc, argv,
                                          {{"--model", {.set = AsText(&a.model), .needed = true}},
                                           {"--dims", {AsDims(&a.dims)}},
                                           {"--sizes", {.set = sizes}},
                                           {"--sources", {AsText(&a.sources)}},
                                           {"--threads", {AsNumber(&a.threads, 1)}},
                                           {"--lower", {AsNumber(&a.lower, 0)}},
                                           {"--rounds", {AsNumber(&a.rounds, 1)}}});
  if (!read.ok()) return read;
  return a;
}

double Least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Value(const v1::SizeExpr& size, const std::map<std::string, int64_t>& sizes) {
  const absl::StatusOr<Expr> e = ExprFromProto(size, {64, int64_t{1} << 20});
  return static_cast<double>(e.ok() ? e->Evaluate({sizes.begin(), sizes.end()}).value_or(0) : 0);
}

absl::StatusOr<std::vector<std::string>> ObjectsOf(const v1::Plan& plan,
                                                   const std::string& folder) {
  const v1::Target& target = plan.target();
  const CpuTarget cpu{
      target.triple(), target.cpu(), {target.features().begin(), target.features().end()}};
  std::vector<std::string> objects;
  for (const v1::Kernel& kernel : plan.kernels()) {
    absl::StatusOr<std::string> object = CompileToSharedObject(kernel.source(), cpu, {});
    if (!object.ok()) return object.status();
    if (!folder.empty()) {
      const std::string path = absl::StrCat(folder, "/", objects.size());
      std::ofstream(path + ".cc") << kernel.source();
      std::ofstream(path + ".so", std::ios::binary) << *object;
    }
    objects.push_back(*std::move(object));
  }
  return objects;
}

// Makes a random tensor of the size given by `sizes`.
Tensor RandomOf(const Node& node, const std::map<std::string, int64_t>& sizes, double scale,
                std::mt19937& rng) {
  std::vector<int64_t> shape;
  for (const Expr& size : node.type.shape) {
    shape.push_back(size.Evaluate({sizes.begin(), sizes.end()}).value_or(0));
  }
  return RandomTensor(node.type.dtype, std::move(shape), rng, scale);
}

struct Times {
  std::vector<std::vector<double>> steps;  // microseconds, by step and round
  std::vector<double> whole;
};

absl::StatusOr<Times> Measure(const Executable& e, const Graph& graph, const Arguments& a) {
  std::mt19937 rng(2);
  std::vector<int64_t> dims;
  for (const SizeDim& d : e.dims()) {
    if (!a.sizes.contains(d.name)) {
      return absl::InvalidArgumentError(absl::StrCat("--sizes has no ", d.name));
    }
    dims.push_back(a.sizes.at(d.name));
  }
  std::map<std::string, Tensor> inputs;
  for (const NodeId id : graph.InputIds()) {
    inputs.emplace(graph.node(id).name, RandomOf(graph.node(id), a.sizes, 1, rng));
  }
  std::vector<absl::string_view> in;
  for (int i = 0; i < e.inputs(); ++i) in.emplace_back(inputs.at(e.input_name(i)).bytes);
  std::vector<std::string> outputs(e.outputs());
  std::vector<absl::Span<char>> out;
  for (int i = 0; i < e.outputs(); ++i) {
    int64_t bytes = DTypeBytes(*ParseDType(e.output_dtype(i)));
    for (const int64_t size : e.output_shape(i, dims)) bytes *= size;
    outputs[i].resize(bytes);
    out.emplace_back(outputs[i].data(), outputs[i].size());
  }
  auto context = e.NewContext();
  if (!context.ok()) return context.status();
  Times times{.steps = std::vector<std::vector<double>>(e.steps()), .whole = {}};
  std::vector<int64_t> nanoseconds(e.steps());
  for (int round = -1; round < a.rounds; ++round) {  // round -1 is not counted
    for (const bool timed : {true, false}) {
      RunOptions options;
      if (timed) options.step_nanoseconds = absl::MakeSpan(nanoseconds);
      const auto from = std::chrono::steady_clock::now();
      if (absl::Status s = e.Run(context->get(), dims, in, out, options); !s.ok()) return s;
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - from;
      if (round >= 0 && !timed) times.whole.push_back(took.count());
    }
    for (int i = 0; round >= 0 && i < e.steps(); ++i) {
      times.steps[i].push_back(static_cast<double>(nanoseconds[i]) / 1e3);
    }
  }
  return times;
}

void Print(const Times& times, const Executable& e, const v1::Plan& plan, const Arguments& a) {
  double sum = 0, least = 0;
  for (int i = 0; i < e.steps(); ++i) {
    const v1::Step& step = plan.run(i);
    const double best = Least(times.steps[i]), median = Median(times.steps[i]);
    sum += median;
    least += best;
    std::printf("%10.1f %10.1f %6.1f %6.0f  %3u  %s\n", best, median,
                Value(step.flops(), a.sizes) / best / 1e3, Value(step.grid(), a.sizes),
                step.kernel(), e.step_label(i).c_str());
  }
  std::printf("%10.1f %10.1f of the steps; whole runs %.1f %.1f\n", least, sum, Least(times.whole),
              Median(times.whole));
}

absl::Status TimeLowering(const Arguments& a, const Graph& graph, const v1::Target& target) {
  std::vector<double> times;
  int kernels = 0;
  for (int round = 0; round < a.rounds; ++round) {
    const auto from = std::chrono::steady_clock::now();
    const absl::StatusOr<CheckedPlan> made = BuildCheckedBaselinePlan(graph, target);
    if (!made.ok()) return made.status();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - from;
    times.push_back(took.count());
    kernels = made->plan.kernels_size();
    if (round == 0) std::printf("first %.1f ms\n", took.count());
  }
  std::printf("%zu nodes, %d kernels: least %.1f, median %.1f ms\n", graph.nodes.size(), kernels,
              Least(times), Median(times));
  return absl::OkStatus();
}

absl::Status Run(const Arguments& a) {
  absl::StatusOr<Graph> graph = ReadOnnx(a.model, a.dims);
  if (!graph.ok()) return graph.status();
  v1::Target target = HostTarget();
  target.set_threads(a.threads);
  if (a.lower != 0) return TimeLowering(a, *graph, target);
  absl::StatusOr<v1::Plan> plan = BuildBaselinePlan(*graph, target);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<std::vector<std::string>> objects = ObjectsOf(*plan, a.sources);
  if (!objects.ok()) return objects.status();
  std::mt19937 rng(1);
  std::vector<Tensor> weights;
  for (const NodeId id : graph->ParameterIds()) {
    weights.push_back(RandomOf(graph->node(id), a.sizes, 0.05, rng));
  }
  std::vector<ParameterView> views;
  for (size_t i = 0; i < weights.size(); ++i) {
    views.push_back({graph->node(graph->ParameterIds()[i]).name, weights[i].bytes, nullptr});
  }
  absl::StatusOr<std::unique_ptr<CpuDevice>> device = CpuDevice::Create({.threads = a.threads});
  if (!device.ok()) return device.status();
  auto loaded =
      Executable::Load(*plan, std::vector<absl::string_view>(objects->begin(), objects->end()),
                       views, device->get(), {});
  if (!loaded.ok()) return loaded.status();
  absl::StatusOr<Times> times = Measure(**loaded, *graph, a);
  if (!times.ok()) return times.status();
  Print(*times, **loaded, *plan, a);
  return absl::OkStatus();
}

}  // namespace
}  // namespace athanor

int main(int argc, char** argv) {
  absl::StatusOr<athanor::Arguments> arguments = athanor::Parse(argc, argv);
  const absl::Status s = arguments.ok() ? athanor::Run(*arguments) : arguments.status();
  if (s.ok()) return 0;
  std::fprintf(stderr, "%s\n", s.ToString().c_str());
  return 1;
}
