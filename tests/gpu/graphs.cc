// Graphs of explicit nodes and edges, as a recording of a plan would be.
#include <chrono>
#include <functional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

constexpr int kSamples = 21;
// Times between events are of the order of a small graph; so many replays make one sample.
constexpr int kReplays = 10;

struct Built {
  CudaGraphExec exec = nullptr;
  double add_ms = 0, instantiate_ms = 0;
};

// Makes a graph of `nodes` copies of a kernel in `branches` chains of equal length. The driver
// keeps copies of each node's arguments.
absl::StatusOr<Built> Build(const Gpu& gpu, CudaFunction kernel, int nodes, int branches,
                            absl::FunctionRef<void**(int node)> arguments) {
  const CudaDriver& cuda = gpu.cuda();
  Built built;
  CudaGraph graph = nullptr;
  RETURN_IF_CUDA_ERROR(cuda, GraphCreate(&graph, 0));
  absl::Cleanup destroy = [&] { cuda.GraphDestroy(graph); };
  std::vector<CudaGraphNode> last(branches, nullptr);
  CudaKernelNode node = {.function = kernel, .block_x = 32};
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < nodes; ++i) {
    CudaGraphNode& tail = last[i % branches];
    const CudaGraphNode before = tail;
    node.arguments = arguments(i);
    RETURN_IF_CUDA_ERROR(cuda, GraphAddKernel(&tail, graph, &before, before != nullptr, &node));
  }
  built.add_ms = MsSince(begin);
  begin = std::chrono::steady_clock::now();
  RETURN_IF_CUDA_ERROR(cuda, GraphInstantiate(&built.exec, graph, 0));
  built.instantiate_ms = MsSince(begin);
  RETURN_IF_CUDA_ERROR(cuda, GraphUpload(built.exec, gpu.stream()));
  return built;
}

struct Replayed {
  Built built;
  Timing timing;   // of a replay
  Median host_us;  // of the call that starts one
};

absl::StatusOr<Replayed> Replay(Gpu& gpu, CudaFunction kernel, int nodes, int branches,
                                void** arguments) {
  Replayed result;
  ASSIGN_OR_RETURN(result.built,
                   Build(gpu, kernel, nodes, branches, [&](int) { return arguments; }));
  absl::Cleanup destroy = [&] { gpu.cuda().GraphExecDestroy(result.built.exec); };
  std::vector<double> host;
  const auto replay = [&]() -> absl::Status {
    for (int i = 0; i < kReplays; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      RETURN_IF_CUDA_ERROR(gpu.cuda(), GraphLaunch(result.built.exec, gpu.stream()));
      host.push_back(MsSince(begin) * 1e3);
    }
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(result.timing, gpu.Time(kSamples, kReplays, replay));
  // Drops the warm-up, which comes first.
  host.erase(host.begin(), host.end() - std::min<ptrdiff_t>(host.size(), kSamples * kReplays));
  result.host_us = MedianOf(std::move(host));
  return result;
}

Json Row(const Replayed& replayed, int nodes) {
  return {{"nodes", nodes},
          {"replay_us", replayed.timing.ms.value * 1e3},
          {"host_us", Spread(replayed.host_us)},
          {"add_us", replayed.built.add_ms * 1e3},
          {"instantiate_us", replayed.built.instantiate_ms * 1e3},
          {"steady", replayed.timing.Steady()}};
}

// Returns microseconds a node, free of the cost of the replay itself; the ends of both intervals
// add up.
Median PerNode(const Median& few, int few_nodes, const Median& many, int many_nodes) {
  const double to_us = 1e3 / (many_nodes - few_nodes);
  return {(many.value - few.value) * to_us, (many.low - few.high) * to_us,
          (many.high - few.low) * to_us, many.samples};
}

// Returns whether a chain of kernels, each reading what the one before wrote, runs in its order.
absl::StatusOr<bool> KeepsOrder(Gpu& gpu) {
  ASSIGN_OR_RETURN(const CudaFunction append, gpu.Kernel("probes.cu", "append"));
  ASSIGN_OR_RETURN(CudaPointer value, gpu.Allocate(4));
  RETURN_IF_ERROR(gpu.Fill(value, 0, 4));
  constexpr int kNodes = 200;
  // Odd, so that no bit of an early mistake is shifted out; different, so that two nodes do not
  // commute.
  uint32_t factor = 0, expected = 0;
  const auto factor_of = [](int node) { return static_cast<uint32_t>(2 * node + 3); };
  void* arguments[] = {&value, &factor};
  ASSIGN_OR_RETURN(const Built built, Build(gpu, append, kNodes, 1, [&](int node) {
                     factor = factor_of(node);
                     return arguments;
                   }));
  absl::Cleanup destroy = [&] { gpu.cuda().GraphExecDestroy(built.exec); };
  for (int replay = 0; replay < 20; ++replay) {
    RETURN_IF_CUDA_ERROR(gpu.cuda(), GraphLaunch(built.exec, gpu.stream()));
    for (int i = 0; i < kNodes; ++i) expected = expected * factor_of(i) + 1;
  }
  ASSIGN_OR_RETURN(const std::vector<uint32_t> found, gpu.Download<uint32_t>(value, 1));
  return found[0] == expected;
}

}  // namespace

absl::Status RunGraph(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  ASSIGN_OR_RETURN(const CudaFunction empty, gpu->Kernel("probes.cu", "empty"));
  constexpr int kFew = 100, kMany = 1000;
  Json sizes = Json::array();
  Replayed one, few, many;
  for (const int nodes : {1, 2, 5, 10, 20, 50, kFew, 200, 500, kMany}) {
    ASSIGN_OR_RETURN(const Replayed replayed, Replay(*gpu, empty, nodes, 1, nullptr));
    sizes.push_back(Row(replayed, nodes));
    if (nodes == 1) one = replayed;
    if (nodes == kFew) few = replayed;
    if (nodes == kMany) many = replayed;
  }
  GpuReport& report = run.report();
  report.Answer("graph.node_us", PerNode(few.timing.ms, kFew, many.timing.ms, kMany),
                {{"sizes", std::move(sizes)}});
  report.Answer("graph.replay_us", one.timing.ms.value * 1e3);
  report.Answer("graph.host_us", few.host_us, {{"nodes", kFew}});
  report.Answer("graph.instantiate_us", many.built.instantiate_ms * 1e3 / kMany);
  ASSIGN_OR_RETURN(const Replayed wide, Replay(*gpu, empty, kMany, 4, nullptr));
  report.Answer("graph.branches", wide.timing.ms.value / many.timing.ms.value, Row(wide, kMany));
  ASSIGN_OR_RETURN(const bool ordered, KeepsOrder(*gpu));
  report.Answer("graph.order", ordered);
  return absl::OkStatus();
}

absl::Status RunReading(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  ASSIGN_OR_RETURN(const CudaFunction read, gpu->Kernel("probes.cu", "read_sizes"));
  ASSIGN_OR_RETURN(const CudaFunction take, gpu->Kernel("probes.cu", "take_sizes"));
  const std::vector<int64_t> sizes = {1024, 768, 512, 33, 17, 9, 5, 3};
  ASSIGN_OR_RETURN(CudaPointer block, gpu->Upload(sizes));
  ASSIGN_OR_RETURN(CudaPointer out, gpu->Allocate(4));
  void* by_block[] = {&block, &out};
  std::vector<void*> by_value;
  for (const int64_t& size : sizes) by_value.push_back(const_cast<int64_t*>(&size));
  by_value.push_back(&out);
  constexpr int kNodes = 500, kRounds = 9;
  std::vector<double> more;
  Json rounds = Json::array();
  for (int round = 0; round < kRounds; ++round) {  // in turn, so that the clock cancels
    ASSIGN_OR_RETURN(const Replayed reads, Replay(*gpu, read, kNodes, 1, by_block));
    ASSIGN_OR_RETURN(const Replayed takes, Replay(*gpu, take, kNodes, 1, by_value.data()));
    more.push_back((reads.timing.ms.value - takes.timing.ms.value) * 1e3 / kNodes);
    rounds.push_back({reads.timing.ms.value * 1e3 / kNodes, takes.timing.ms.value * 1e3 / kNodes});
  }
  run.report().Answer("reading.block_us", MedianOf(more), {{"us_by_block_and_value", rounds}});
  return absl::OkStatus();
}

}  // namespace athanor
