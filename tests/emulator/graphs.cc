// The driver's functions for graphs. Of the nodes that may run, that which was added last runs
// first: a dependency that was forgotten shows.
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/emulator/device.h"

using namespace athanor;            // NOLINT: every function below is of its interface
using namespace athanor::emulator;  // NOLINT

namespace {

struct Graph;

// Is a kernel, captured work, a graph of its own, an event's recording, or else a copy.
struct Node {
  Kernel* kernel = nullptr;
  Threads threads;
  std::vector<std::vector<char>> arguments;
  CopyEnd to, from;
  size_t bytes = 0;
  std::function<void()> work;
  std::shared_ptr<const Graph> child;
  CudaEvent event = nullptr;
  std::vector<size_t> after;  // places in the graph
};
struct Graph {
  std::vector<Node> nodes;
};

Graph& GraphOf(CudaGraph handle) { return *reinterpret_cast<Graph*>(handle); }
Graph& GraphOf(CudaGraphExec handle) { return *reinterpret_cast<Graph*>(handle); }

CudaResult Add(CudaGraph graph, Node node, const CudaGraphNode* after, size_t count,
               CudaGraphNode* handle) {
  std::vector<Node>& nodes = GraphOf(graph).nodes;
  for (size_t i = 0; i < count; ++i) {
    const size_t place = reinterpret_cast<size_t>(after[i]) - 1;
    if (place >= nodes.size()) return kCudaInvalidValue;
    node.after.push_back(place);
  }
  nodes.push_back(std::move(node));
  *handle = reinterpret_cast<CudaGraphNode>(nodes.size());
  return kCudaSuccess;
}

// Returns the nodes' places in the order in which they run.
std::vector<size_t> OrderOf(const Graph& graph) {
  std::vector<size_t> order;
  std::vector<bool> ran(graph.nodes.size(), false);
  while (order.size() < graph.nodes.size()) {
    size_t next = graph.nodes.size() - 1;
    const auto waits = [&](size_t place) { return !ran[place]; };
    while (ran[next] ||
           std::any_of(graph.nodes[next].after.begin(), graph.nodes[next].after.end(), waits)) {
      --next;  // nodes wait for earlier ones only
    }
    ran[next] = true;
    order.push_back(next);
  }
  return order;
}

void EnqueueGraph(const Graph& graph, Stream& stream) {
  for (const size_t place : OrderOf(graph)) {
    const Node& node = graph.nodes[place];
    if (node.kernel != nullptr) {
      EnqueueKernel(stream, node.kernel, node.threads, node.arguments);
    } else if (node.work) {
      Enqueue(stream, node.work);
    } else if (node.child != nullptr) {
      EnqueueGraph(*node.child, stream);
    } else if (node.event != nullptr) {
      EnqueueEvent(stream, node.event);
    } else {
      Enqueue(stream,
              [=, to = node.to, from = node.from, bytes = node.bytes] { Copy(to, from, bytes); });
    }
  }
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
ATHANOR_DRIVER cuGraphAddKernelNode_v2(CudaGraphNode* node, CudaGraph graph,
                                       const CudaGraphNode* after, size_t count,
                                       const CudaKernelNode* added) {
  return InContext([&]() -> CudaResult {
    auto* const kernel = reinterpret_cast<Kernel*>(added->function);
    const Threads threads = {int64_t{added->grid_x} * added->grid_y * added->grid_z,
                             int64_t{added->block_x} * added->block_y * added->block_z};
    std::vector<std::vector<char>> kept;
    if (const CudaResult taken = TakeArguments(*kernel, added->arguments, added->extra, &kept);
        taken != kCudaSuccess) {
      return taken;
    }
    return Add(graph, {.kernel = kernel, .threads = threads, .arguments = std::move(kept)}, after,
               count, node);
  });
}
ATHANOR_DRIVER cuGraphAddMemcpyNode(CudaGraphNode* node, CudaGraph graph,
                                    const CudaGraphNode* after, size_t count,
                                    const CudaCopyNode* added, CudaContext) {
  return InContext([&]() -> CudaResult {
    const CopyEnd to = EndOf(added->to), from = EndOf(added->from);
    const size_t bytes = added->bytes * added->rows * added->depth;
    const CudaResult result = CheckCopy(to, from, bytes);
    if (result != kCudaSuccess) return result;
    return Add(graph, {.to = to, .from = from, .bytes = bytes}, after, count, node);
  });
}
// Adds a copy of the child.
ATHANOR_DRIVER cuGraphAddChildGraphNode(CudaGraphNode* node, CudaGraph graph,
                                        const CudaGraphNode* after, size_t count, CudaGraph child) {
  return InContext([&]() -> CudaResult {
    if (child == nullptr) return kCudaInvalidValue;
    return Add(graph, {.child = std::make_shared<const Graph>(GraphOf(child))}, after, count, node);
  });
}
ATHANOR_DRIVER cuGraphAddEventRecordNode(CudaGraphNode* node, CudaGraph graph,
                                         const CudaGraphNode* after, size_t count,
                                         CudaEvent event) {
  return InContext([&]() -> CudaResult {
    if (event == nullptr) return kCudaInvalidValue;
    return Add(graph, {.event = event}, after, count, node);
  });
}

ATHANOR_DRIVER cuStreamBeginCapture_v2(CudaStream handle, int) {
  return InContext([&]() -> CudaResult {
    Stream* const stream = FindStream(handle);
    if (handle == nullptr || stream == nullptr) return kCudaInvalidHandle;
    if (stream->capture != nullptr) return kCudaCaptureUnsupported;
    stream->capture = std::make_unique<Capture>();
    return kCudaSuccess;
  });
}
// The graph is a chain of what was enqueued.
ATHANOR_DRIVER cuStreamEndCapture(CudaStream handle, CudaGraph* graph) {
  return InContext([&]() -> CudaResult {
    *graph = nullptr;
    Stream* const stream = FindStream(handle);
    if (stream == nullptr || stream->capture == nullptr) return kCudaInvalidValue;
    const std::unique_ptr<Capture> capture = std::move(stream->capture);
    if (capture->broken) return kCudaCaptureInvalidated;
    auto* const made = new Graph;
    for (std::function<void()>& work : capture->work) {
      Node node = {.work = std::move(work)};
      if (!made->nodes.empty()) node.after.push_back(made->nodes.size() - 1);
      made->nodes.push_back(std::move(node));
    }
    *graph = reinterpret_cast<CudaGraph>(made);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph,
                                           unsigned long long) {
  return InContext([&] {
    auto* const copy = new Graph(GraphOf(graph));
    if (TheMachine().swaps_nodes && copy->nodes.size() > 1) {
      std::swap(copy->nodes[0], copy->nodes[1]);
      std::swap(copy->nodes[0].after, copy->nodes[1].after);
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
    EnqueueGraph(GraphOf(exec), *stream);
    return device.lost;
  });
}
ATHANOR_DRIVER cuGraphExecDestroy(CudaGraphExec exec) {
  return InContext([&] {
    delete &GraphOf(exec);
    return kCudaSuccess;
  });
}
