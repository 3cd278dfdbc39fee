// The driver's functions for graphs. Nodes run in the order in which they were added.
#include <memory>
#include <utility>

#include "tests/emulator/device.h"

using namespace athanor;            // NOLINT: every function below is of its interface
using namespace athanor::emulator;  // NOLINT

namespace {

struct Node {
  Kernel* kernel = nullptr;  // null: a copy
  Threads threads;
  std::vector<std::vector<char>> arguments;
  CopyEnd to, from;
  size_t bytes = 0;
};
struct Graph {
  std::vector<Node> nodes;
};

Graph& GraphOf(CudaGraph handle) { return *reinterpret_cast<Graph*>(handle); }
Graph& GraphOf(CudaGraphExec handle) { return *reinterpret_cast<Graph*>(handle); }

CudaResult Add(CudaGraph graph, Node node, CudaGraphNode* handle) {
  GraphOf(graph).nodes.push_back(std::move(node));
  *handle = reinterpret_cast<CudaGraphNode>(GraphOf(graph).nodes.size());
  return kCudaSuccess;
}

CopyEnd EndOf(const CudaCopySide& side) {
  if (side.type == kCudaCopyOfHost) return {.host = side.host};
  return {.device = side.device};
}

}  // namespace

ATHANOR_DRIVER cuGraphCreate(CudaGraph* graph, unsigned) {
  return InContext([&] {
    *graph = reinterpret_cast<CudaGraph>(new Graph);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuGraphDestroy(CudaGraph graph) {
  return InContext([&] {
    delete &GraphOf(graph);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuGraphAddKernelNode_v2(CudaGraphNode* node, CudaGraph graph, const CudaGraphNode*,
                                       size_t, const CudaKernelNode* added) {
  return InContext([&] {
    auto* const kernel = reinterpret_cast<Kernel*>(added->function);
    const Threads threads = {int64_t{added->grid_x} * added->grid_y * added->grid_z,
                             int64_t{added->block_x} * added->block_y * added->block_z};
    return Add(graph, {kernel, threads, KeptArguments(*kernel, added->arguments), {}, {}, 0}, node);
  });
}
ATHANOR_DRIVER cuGraphAddMemcpyNode(CudaGraphNode* node, CudaGraph graph, const CudaGraphNode*,
                                    size_t, const CudaCopyNode* added, CudaContext) {
  return InContext([&]() -> CudaResult {
    const CopyEnd to = EndOf(added->to), from = EndOf(added->from);
    const size_t bytes = added->bytes * added->rows * added->depth;
    const CudaResult result = CheckCopy(to, from, bytes);
    if (result != kCudaSuccess) return result;
    return Add(graph, {nullptr, {}, {}, to, from, bytes}, node);
  });
}
ATHANOR_DRIVER cuGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph,
                                           unsigned long long) {
  return InContext([&] {
    auto* const copy = new Graph(GraphOf(graph));
    if (TheMachine().swaps_nodes && copy->nodes.size() > 1) {
      std::swap(copy->nodes[0], copy->nodes[1]);
    }
    *exec = reinterpret_cast<CudaGraphExec>(copy);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuGraphUpload(CudaGraphExec, CudaStream) {
  return InContext([] { return kCudaSuccess; });
}
ATHANOR_DRIVER cuGraphLaunch(CudaGraphExec exec, CudaStream handle) {
  return InContext([&]() -> CudaResult {
    Stream* const stream = FindStream(handle);
    if (stream == nullptr) return kCudaInvalidHandle;
    for (const Node& node : GraphOf(exec).nodes) {
      if (node.kernel != nullptr) {
        EnqueueKernel(*stream, node.kernel, node.threads, node.arguments);
      } else {
        Enqueue(*stream,
                [=, to = node.to, from = node.from, bytes = node.bytes] { Copy(to, from, bytes); });
      }
    }
    return device.lost;
  });
}
ATHANOR_DRIVER cuGraphExecDestroy(CudaGraphExec exec) {
  return InContext([&] {
    delete &GraphOf(exec);
    return kCudaSuccess;
  });
}
