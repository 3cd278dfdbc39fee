// A driver of a device that is not there, as libcuda.so.1: memory is this process's, time is
// counted and not measured, and the kernels whose results a part checks are computed here, by name
// (stand_in.h). It shows that a part asks rightly; nothing of what it answers is about a GPU.
//
// ATHANOR_STAND_IN=WORD makes it a device that is wrong in one way; each has to show.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/cuda/driver.h"
#include "tests/gpu/stand_in.h"

namespace athanor {
namespace {

struct Node {
  const StandInKernel* kernel;               // nullptr: a copy
  std::vector<std::vector<char>> arguments;  // a node keeps copies
  CudaCopyNode copy;
};
struct Graph {
  std::vector<Node> nodes;
};

CudaResult Start(const StandInKernel* kernel, int blocks, void** arguments) {
  if (device.lost != kCudaSuccess) return device.lost;
  device.now_ms += 0.002;
  if (kernel == nullptr) {
    device.now_ms += 2;
  } else if (kernel->run != nullptr) {
    kernel->run(arguments, blocks);
  }
  return kCudaSuccess;
}

CudaResult Copy(void* to, const void* from, size_t bytes) {
  if (device.lost != kCudaSuccess) return device.lost;
  device.now_ms += 0.001 + double(bytes) / 5e7;
  // No part reads the whole of more.
  std::memcpy(to, from, std::min(bytes, size_t{16} << 20));
  return kCudaSuccess;
}

template <typename T>
void* Handle(T* pointer) {
  return static_cast<void*>(pointer);
}

}  // namespace
}  // namespace athanor

using namespace athanor;  // NOLINT: every function below is of its interface

#define DRIVER extern "C" __attribute__((visibility("default"))) CudaResult
// Calls that do nothing here; after a fault they fail as all others do.
#define IDLE(name, ...) \
  DRIVER name(__VA_ARGS__) { return device.lost; }

DRIVER cuInit(unsigned) { return kCudaSuccess; }
DRIVER cuDriverGetVersion(int* version) {
  *version = 13000;
  return kCudaSuccess;
}
DRIVER cuGetErrorName(CudaResult result, const char** name) {
  *name = result == kCudaSuccess ? "CUDA_SUCCESS" : "CUDA_ERROR_OF_A_STAND_IN";
  return kCudaSuccess;
}
DRIVER cuGetErrorString(CudaResult, const char** text) {
  *text = "no device is there";
  return kCudaSuccess;
}
DRIVER cuDeviceGet(CudaDevice* device, int) {
  *device = 0;
  return kCudaSuccess;
}
DRIVER cuDeviceGetName(char* name, int bytes, CudaDevice) {
  std::strncpy(name, "stand-in", bytes);
  return kCudaSuccess;
}
DRIVER cuDeviceGetAttribute(int* value, int attribute, CudaDevice) {
  static const std::map<int, int> values = {
      {kCudaComputeMajor, 9},         {kCudaComputeMinor, 0},
      {kCudaMultiprocessors, 132},    {kCudaL2Bytes, 50 << 20},
      {kCudaVirtualMemory, 1},        {kCudaMemoryBusBits, 5120},
      {kCudaClockKilohertz, 1500000}, {kCudaMemoryClockKilohertz, 2619000}};
  const auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return kCudaSuccess;
}
DRIVER cuDeviceTotalMem_v2(size_t* bytes, CudaDevice) {
  *bytes = size_t{80} << 30;
  return kCudaSuccess;
}
DRIVER cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = size_t{80} << 30;
  return device.lost;
}
DRIVER cuDevicePrimaryCtxRetain(CudaContext* context, CudaDevice) {
  *context = reinterpret_cast<CudaContext>(1);
  return device.lost;
}
IDLE(cuDevicePrimaryCtxRelease_v2, CudaDevice)
IDLE(cuDevicePrimaryCtxReset_v2, CudaDevice)
IDLE(cuCtxSetCurrent, CudaContext)

DRIVER cuModuleLoadData(CudaModule* module, const void* image) {
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return kCudaNoBinaryForGpu;
  *module = reinterpret_cast<CudaModule>(1);
  return device.lost;
}
IDLE(cuModuleUnload, CudaModule)
DRIVER cuModuleGetFunction(CudaFunction* function, CudaModule, const char* name) {
  static const StandInKernel other{"", {}, nullptr};
  const StandInKernel* found = &other;
  for (const StandInKernel& kernel : StandInKernels()) {
    if (std::string_view(kernel.name) == name) found = &kernel;
  }
  *function = reinterpret_cast<CudaFunction>(const_cast<StandInKernel*>(found));
  return device.lost;
}
DRIVER cuLaunchKernel(CudaFunction function, unsigned blocks, unsigned, unsigned, unsigned,
                      unsigned, unsigned, unsigned, CudaStream, void** arguments, void**) {
  const auto* kernel = reinterpret_cast<const StandInKernel*>(function);
  return Start(*kernel->name == '\0' ? nullptr : kernel, int(blocks), arguments);
}

DRIVER cuMemAlloc_v2(CudaPointer* pointer, size_t bytes) {
  if (device.lost != kCudaSuccess) return device.lost;
  *pointer = reinterpret_cast<CudaPointer>(std::malloc(bytes));
  device.memory[*pointer] = bytes;
  return *pointer == 0 ? kCudaOutOfMemory : kCudaSuccess;
}
DRIVER cuMemFree_v2(CudaPointer pointer) {
  if (device.memory.erase(pointer) == 0) return kCudaInvalidValue;
  std::free(reinterpret_cast<void*>(pointer));
  return device.lost;
}
DRIVER cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::malloc(bytes);
  return device.lost;
}
DRIVER cuMemFreeHost(void* pointer) {
  std::free(pointer);
  return device.lost;
}
DRIVER cuMemcpyHtoDAsync_v2(CudaPointer to, const void* from, size_t bytes, CudaStream) {
  return Copy(reinterpret_cast<void*>(to), from, bytes);
}
DRIVER cuMemcpyDtoHAsync_v2(void* to, CudaPointer from, size_t bytes, CudaStream) {
  return Copy(to, reinterpret_cast<const void*>(from), bytes);
}
DRIVER cuMemcpyDtoDAsync_v2(CudaPointer, CudaPointer, size_t bytes, CudaStream) {
  device.now_ms += double(bytes) / 1.5e9;  // no part looks at what it copies
  return device.lost;
}
DRIVER cuMemsetD8Async(CudaPointer to, unsigned char value, size_t bytes, CudaStream) {
  if (device.lost != kCudaSuccess) return device.lost;
  device.now_ms += 0.002 + double(bytes) / 2e9;
  std::memset(reinterpret_cast<void*>(to), value, std::min(bytes, size_t{16} << 20));
  return kCudaSuccess;
}

DRIVER cuStreamCreate(CudaStream* stream, unsigned) {
  *stream = reinterpret_cast<CudaStream>(1);
  return device.lost;
}
IDLE(cuStreamDestroy_v2, CudaStream)
DRIVER cuStreamSynchronize(CudaStream) {
  if (device.hanging) sleep(20);
  return device.lost;
}
DRIVER cuEventCreate(CudaEvent* event, unsigned) {
  *event = static_cast<CudaEvent>(Handle(new double(0)));
  return device.lost;
}
DRIVER cuEventDestroy_v2(CudaEvent event) {
  delete reinterpret_cast<double*>(event);
  return device.lost;
}
DRIVER cuEventRecord(CudaEvent event, CudaStream) {
  *reinterpret_cast<double*>(event) = device.now_ms += 0.001;
  return device.lost;
}
IDLE(cuEventSynchronize, CudaEvent)
DRIVER cuEventElapsedTime(float* ms, CudaEvent begin, CudaEvent end) {
  *ms = float(*reinterpret_cast<double*>(end) - *reinterpret_cast<double*>(begin));
  return device.lost;
}

DRIVER cuGraphCreate(CudaGraph* graph, unsigned) {
  *graph = static_cast<CudaGraph>(Handle(new Graph));
  return device.lost;
}
DRIVER cuGraphDestroy(CudaGraph graph) {
  delete reinterpret_cast<Graph*>(graph);
  return device.lost;
}
DRIVER cuGraphAddKernelNode_v2(CudaGraphNode* node, CudaGraph graph, const CudaGraphNode*, size_t,
                               const CudaKernelNode* kernel) {
  auto& nodes = reinterpret_cast<Graph*>(graph)->nodes;
  Node& added =
      nodes.emplace_back(Node{reinterpret_cast<const StandInKernel*>(kernel->function), {}, {}});
  for (size_t i = 0; i < added.kernel->argument_bytes.size(); ++i) {
    const auto* bytes = static_cast<const char*>(kernel->arguments[i]);
    added.arguments.emplace_back(bytes, bytes + added.kernel->argument_bytes[i]);
  }
  *node = reinterpret_cast<CudaGraphNode>(nodes.size());
  return device.lost;
}
DRIVER cuGraphAddMemcpyNode(CudaGraphNode* node, CudaGraph graph, const CudaGraphNode*, size_t,
                            const CudaCopyNode* copy, CudaContext) {
  auto& nodes = reinterpret_cast<Graph*>(graph)->nodes;
  nodes.push_back({nullptr, {}, *copy});
  *node = reinterpret_cast<CudaGraphNode>(nodes.size());
  return device.lost;
}
DRIVER cuGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph, unsigned long long) {
  auto* const copy = new Graph(*reinterpret_cast<Graph*>(graph));
  if (Defect("order") && copy->nodes.size() > 1) std::swap(copy->nodes[0], copy->nodes[1]);
  *exec = static_cast<CudaGraphExec>(Handle(copy));
  return device.lost;
}
IDLE(cuGraphUpload, CudaGraphExec, CudaStream)
DRIVER cuGraphLaunch(CudaGraphExec exec, CudaStream) {
  for (Node& node : reinterpret_cast<Graph*>(exec)->nodes) {
    if (node.kernel == nullptr) {  // always to the device
      Copy(reinterpret_cast<void*>(node.copy.to.device), node.copy.from.host, node.copy.bytes);
      continue;
    }
    std::vector<void*> arguments;
    for (std::vector<char>& argument : node.arguments) arguments.push_back(argument.data());
    if (const CudaResult result = Start(node.kernel, 1, arguments.data()); result != kCudaSuccess) {
      return result;
    }
  }
  return device.lost;
}
DRIVER cuGraphExecDestroy(CudaGraphExec exec) {
  delete reinterpret_cast<Graph*>(exec);
  return device.lost;
}

DRIVER cuMemAddressReserve(CudaPointer* pointer, size_t bytes, size_t, CudaPointer,
                           unsigned long long) {
  *pointer = reinterpret_cast<CudaPointer>(mmap(
      nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return device.lost;
}
DRIVER cuMemAddressFree(CudaPointer pointer, size_t bytes) {
  return munmap(reinterpret_cast<void*>(pointer), bytes) == 0 ? device.lost : kCudaInvalidValue;
}
DRIVER cuMemCreate(CudaAllocation* allocation, size_t, const CudaAllocationProperties*,
                   unsigned long long) {
  *allocation = 1;
  return device.lost;
}
IDLE(cuMemRelease, CudaAllocation)
IDLE(cuMemMap, CudaPointer, size_t, size_t, CudaAllocation, unsigned long long)
IDLE(cuMemUnmap, CudaPointer, size_t)
IDLE(cuMemSetAccess, CudaPointer, size_t, const CudaAccess*, size_t)
DRIVER cuMemGetAllocationGranularity(size_t* bytes, const CudaAllocationProperties*, int) {
  *bytes = size_t{2} << 20;
  return device.lost;
}
DRIVER cuTensorMapEncodeTiled(CudaTensorMap* map, int, uint32_t, void* address,
                              const uint64_t* sizes, const uint64_t*, const uint32_t*,
                              const uint32_t*, int, int, int, int) {
  map->opaque[0] = reinterpret_cast<uint64_t>(address);
  map->opaque[1] = sizes[0];
  return device.lost;
}
