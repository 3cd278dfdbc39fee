// A driver of a device that is not there, as libcuda.so.1: memory is this process's, time is
// counted and not measured, and the kernels whose results a part checks are computed here, by name.
// It shows that a part asks rightly; nothing of what it answers is about a GPU.
//
// ATHANOR_STAND_IN=WORD makes it a device that is wrong in one way (kDefects); each has to show.
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/codegen/cuda/fragments.h"
#include "runtime/cuda/driver.h"
#include "tests/gpu/number_formats.h"

namespace athanor {
namespace {

bool Defect(std::string_view word) {
  const char* set = std::getenv("ATHANOR_STAND_IN");
  return set != nullptr && word == set;
}

double now_ms = 1;               // of the device
CudaResult lost = kCudaSuccess;  // the error that ended the context
bool hanging = false;
std::map<uint64_t, size_t> memory;  // what is allocated

template <typename T>
T& Argument(void** arguments, int index) {
  return *static_cast<T*>(arguments[index]);
}
template <typename T>
T* Pointer(void** arguments, int index) {
  return reinterpret_cast<T*>(Argument<uint64_t>(arguments, index));
}

bool Allocated(const void* pointer) {
  const auto at = reinterpret_cast<uint64_t>(pointer);
  const auto after = memory.upper_bound(at);
  if (after == memory.begin()) return false;
  return at < std::prev(after)->first + std::prev(after)->second;
}

// Reads an element of a fragment: registers of a warp's threads, lowest bits first.
template <typename T>
T Read(const void* registers, const Fragment& fragment, int thread, int slot) {
  return static_cast<const T*>(registers)[thread * fragment.slots() + slot];
}

// Multiplies as one warp does; `left` and `right` are its registers. Sums go to [row][column].
template <typename T, typename Value>
void MultiplyWarp(const char* instruction, const void* left, const void* right, Value value,
                  double sums[16][8]) {
  const Fragment& a = *FindFragment(instruction, Operand::kLeft);
  const Fragment& b = *FindFragment(instruction, Operand::kRight);
  double lefts[16][32] = {}, rights[32][8] = {};
  for (int thread = 0; thread < kWarpThreads; ++thread) {
    for (int slot = 0; slot < a.slots(); ++slot) {
      const Element e = a.At(thread, Defect("fragments") ? slot ^ 1 : slot);
      lefts[e.row][e.column] = value(Read<T>(left, a, thread, slot));
    }
    for (int slot = 0; slot < b.slots(); ++slot) {
      const Element e = b.At(thread, slot);
      rights[e.row][e.column] = value(Read<T>(right, b, thread, slot));
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      for (int k = 0; k < a.columns; ++k) sums[row][column] += lefts[row][k] * rights[k][column];
      // A unit whose sums have 11 bits.
      if (Defect("rounding")) sums[row][column] = F16Value(F16Bits(float(sums[row][column])));
    }
  }
}

template <typename T, typename Value, typename Sum>
void Multiply(const char* instruction, void** arguments, int blocks, Value value, Sum sum) {
  const Fragment& a = *FindFragment(instruction, Operand::kLeft);
  const Fragment& d = *FindFragment(instruction, Operand::kSum);
  for (int block = 0; block < blocks; ++block) {
    double sums[16][8] = {};
    MultiplyWarp<T>(instruction, Pointer<T>(arguments, 0) + block * a.elements(),
                    Pointer<T>(arguments, 1), value, sums);
    for (int i = 0; i < d.elements(); ++i) {
      const Element e = d.At(i / d.slots(), i % d.slots());
      Pointer<uint32_t>(arguments, 2)[block * d.elements() + i] = sum(sums[e.row][e.column]);
    }
  }
}

template <typename Value>
void Chain(void** arguments, int blocks, Value value) {
  const Fragment& d = *FindFragment("mma.m16n8k16", Operand::kSum);
  const int steps = Argument<int>(arguments, 3);
  for (int block = 0; block < blocks; ++block) {
    double sums[16][8] = {};
    for (int step = block * steps; step < (block + 1) * steps; ++step) {
      MultiplyWarp<uint16_t>("mma.m16n8k16", Pointer<uint16_t>(arguments, 0) + step * 256,
                             Pointer<uint16_t>(arguments, 1) + step * 128, value, sums);
    }
    for (int i = 0; i < d.elements(); ++i) {
      const Element e = d.At(i / d.slots(), i % d.slots());
      Pointer<float>(arguments, 2)[block * d.elements() + i] = float(sums[e.row][e.column]);
    }
  }
}

void Load(const char* instruction, void** arguments) {
  const Fragment& loaded = *FindFragment(instruction, Operand::kLoaded);
  for (int i = 0; i < loaded.elements(); ++i) {
    const Element e = loaded.At(i / loaded.slots(), i % loaded.slots());
    Pointer<uint16_t>(arguments, 1)[i] = Pointer<uint16_t>(arguments, 0)[e.row * 8 + e.column];
  }
}

// A descriptor is the matrix's address and the elements of its row.
void CopyTile(const CudaTensorMap& given, void** arguments) {
  static const CudaTensorMap first = given;
  const CudaTensorMap& map = Defect("descriptor") ? first : given;
  const auto* matrix = reinterpret_cast<const float*>(map.opaque[0]);
  const int x = Argument<int>(arguments, 2), y = Argument<int>(arguments, 3);
  for (int i = 0; i < 32 * 32; ++i) {
    Pointer<float>(arguments, 1)[i] = matrix[(y + i / 32) * map.opaque[1] + x + i % 32];
  }
}

uint32_t FloatBits(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }

struct Kernel {
  const char* name;
  std::vector<int> argument_bytes;
  void (*run)(void** arguments, int blocks);
};
// Kernels without a row do nothing for two milliseconds.
const std::vector<Kernel>& Kernels() {
  static const auto* const kernels = new std::vector<Kernel>{
      {"empty", {}, nullptr},
      {"read_sizes", {8, 8}, nullptr},
      {"take_sizes", {8, 8, 8, 8, 8, 8, 8, 8, 8}, nullptr},
      {"append",
       {8, 4},
       [](void** a, int) {
         *Pointer<uint32_t>(a, 0) = *Pointer<uint32_t>(a, 0) * Argument<uint32_t>(a, 1) + 1;
       }},
      {"spin",
       {8, 8},
       [](void** a, int) {
         const auto cycles = Argument<uint64_t>(a, 0);
         now_ms += double(cycles) / 1.5e6;
         if (auto* took = Pointer<uint64_t>(a, 1); took != nullptr) {
           took[0] = cycles;
           took[1] = cycles * 2 / 3;
         }
       }},
      {"count_nonzero",
       {8, 8, 8},
       [](void** a, int) { *Pointer<uint64_t>(a, 2) += Defect("dirty"); }},
      {"write_word",
       {8, 4},
       [](void** a, int) {
         if (!Allocated(Pointer<void>(a, 0))) lost = kCudaIllegalAddress;
       }},
      {"trap", {}, [](void**, int) { lost = kCudaLaunchFailed; }},
      {"hang", {8}, [](void**, int) { hanging = true; }},
      {"multiply_f16",
       {8, 8, 8},
       [](void** a, int n) { Multiply<uint16_t>("mma.m16n8k16", a, n, F16Value, FloatBits); }},
      {"multiply_bf16",
       {8, 8, 8},
       [](void** a, int n) { Multiply<uint16_t>("mma.m16n8k16", a, n, Bf16Value, FloatBits); }},
      {"multiply_i8",
       {8, 8, 8},
       [](void** a, int n) {
         Multiply<int8_t>(
             "mma.m16n8k32", a, n, [](int8_t v) { return v; },
             [](double v) { return uint32_t(int32_t(v)); });
       }},
      {"multiply_tf32",
       {8, 8, 8},
       [](void** a, int n) {
         Multiply<float>("mma.m16n8k8", a, n, [](float v) { return v; }, FloatBits);
       }},
      {"load_plain", {8, 8}, [](void** a, int) { Load("ldmatrix.x4", a); }},
      {"load_trans", {8, 8}, [](void** a, int) { Load("ldmatrix.x4.trans", a); }},
      {"chain_f16", {8, 8, 8, 4}, [](void** a, int n) { Chain(a, n, F16Value); }},
      {"chain_bf16", {8, 8, 8, 4}, [](void** a, int n) { Chain(a, n, Bf16Value); }},
      {"by_argument",
       {128, 8, 4, 4},
       [](void** a, int) { CopyTile(Argument<CudaTensorMap>(a, 0), a); }},
      {"by_pointer",
       {8, 8, 4, 4},
       [](void** a, int) { CopyTile(*Pointer<CudaTensorMap>(a, 0), a); }},
      {"by_pointer_fenced",
       {8, 8, 4, 4},
       [](void** a, int) { CopyTile(*Pointer<CudaTensorMap>(a, 0), a); }},
  };
  return *kernels;
}

struct Node {
  const Kernel* kernel;
  std::vector<std::vector<char>> arguments;  // a node keeps copies
};
struct Graph {
  std::vector<Node> nodes;
};

CudaResult Start(const Kernel* kernel, int blocks, void** arguments) {
  if (lost != kCudaSuccess) return lost;
  now_ms += 0.002;
  if (kernel == nullptr) {
    now_ms += 2;
  } else if (kernel->run != nullptr) {
    kernel->run(arguments, blocks);
  }
  return kCudaSuccess;
}

CudaResult Copy(void* to, const void* from, size_t bytes) {
  if (lost != kCudaSuccess) return lost;
  now_ms += 0.001 + double(bytes) / 5e7;
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
  DRIVER name(__VA_ARGS__) { return lost; }

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
DRIVER cuDeviceGetCount(int* count) {
  *count = 1;
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
  return lost;
}
DRIVER cuDevicePrimaryCtxRetain(CudaContext* context, CudaDevice) {
  *context = reinterpret_cast<CudaContext>(1);
  return lost;
}
IDLE(cuDevicePrimaryCtxRelease_v2, CudaDevice)
IDLE(cuDevicePrimaryCtxReset_v2, CudaDevice)
IDLE(cuCtxSetCurrent, CudaContext)
IDLE(cuCtxSynchronize)

DRIVER cuModuleLoadData(CudaModule* module, const void* image) {
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return kCudaNoBinaryForGpu;
  *module = reinterpret_cast<CudaModule>(1);
  return lost;
}
IDLE(cuModuleUnload, CudaModule)
DRIVER cuModuleGetFunction(CudaFunction* function, CudaModule, const char* name) {
  static const Kernel other{"", {}, nullptr};
  const Kernel* found = &other;
  for (const Kernel& kernel : Kernels()) {
    if (std::string_view(kernel.name) == name) found = &kernel;
  }
  *function = reinterpret_cast<CudaFunction>(const_cast<Kernel*>(found));
  return lost;
}
DRIVER cuFuncGetAttribute(int* value, int, CudaFunction) {
  *value = 0;
  return lost;
}
IDLE(cuFuncSetAttribute, CudaFunction, int, int)
DRIVER cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CudaFunction, int, size_t) {
  *blocks = 1;
  return lost;
}
DRIVER cuLaunchKernel(CudaFunction function, unsigned blocks, unsigned, unsigned, unsigned,
                      unsigned, unsigned, unsigned, CudaStream, void** arguments, void**) {
  const auto* kernel = reinterpret_cast<const Kernel*>(function);
  return Start(*kernel->name == '\0' ? nullptr : kernel, int(blocks), arguments);
}

DRIVER cuMemAlloc_v2(CudaPointer* pointer, size_t bytes) {
  if (lost != kCudaSuccess) return lost;
  *pointer = reinterpret_cast<CudaPointer>(std::malloc(bytes));
  memory[*pointer] = bytes;
  return *pointer == 0 ? kCudaOutOfMemory : kCudaSuccess;
}
DRIVER cuMemFree_v2(CudaPointer pointer) {
  if (memory.erase(pointer) == 0) return kCudaInvalidValue;
  std::free(reinterpret_cast<void*>(pointer));
  return lost;
}
DRIVER cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = std::malloc(bytes);
  return lost;
}
DRIVER cuMemFreeHost(void* pointer) {
  std::free(pointer);
  return lost;
}
DRIVER cuMemcpyHtoDAsync_v2(CudaPointer to, const void* from, size_t bytes, CudaStream) {
  return Copy(reinterpret_cast<void*>(to), from, bytes);
}
DRIVER cuMemcpyDtoHAsync_v2(void* to, CudaPointer from, size_t bytes, CudaStream) {
  return Copy(to, reinterpret_cast<const void*>(from), bytes);
}
DRIVER cuMemcpyDtoDAsync_v2(CudaPointer, CudaPointer, size_t bytes, CudaStream) {
  now_ms += double(bytes) / 1.5e9;  // no part looks at what it copies
  return lost;
}
DRIVER cuMemsetD8Async(CudaPointer to, unsigned char value, size_t bytes, CudaStream) {
  if (lost != kCudaSuccess) return lost;
  now_ms += 0.002 + double(bytes) / 2e9;
  std::memset(reinterpret_cast<void*>(to), value, std::min(bytes, size_t{16} << 20));
  return kCudaSuccess;
}

DRIVER cuStreamCreate(CudaStream* stream, unsigned) {
  *stream = reinterpret_cast<CudaStream>(1);
  return lost;
}
IDLE(cuStreamDestroy_v2, CudaStream)
DRIVER cuStreamSynchronize(CudaStream) {
  if (hanging) sleep(20);
  return lost;
}
IDLE(cuStreamWaitEvent, CudaStream, CudaEvent, unsigned)
DRIVER cuEventCreate(CudaEvent* event, unsigned) {
  *event = static_cast<CudaEvent>(Handle(new double(0)));
  return lost;
}
DRIVER cuEventDestroy_v2(CudaEvent event) {
  delete reinterpret_cast<double*>(event);
  return lost;
}
DRIVER cuEventRecord(CudaEvent event, CudaStream) {
  *reinterpret_cast<double*>(event) = now_ms += 0.001;
  return lost;
}
IDLE(cuEventQuery, CudaEvent)
IDLE(cuEventSynchronize, CudaEvent)
DRIVER cuEventElapsedTime(float* ms, CudaEvent begin, CudaEvent end) {
  *ms = float(*reinterpret_cast<double*>(end) - *reinterpret_cast<double*>(begin));
  return lost;
}

DRIVER cuGraphCreate(CudaGraph* graph, unsigned) {
  *graph = static_cast<CudaGraph>(Handle(new Graph));
  return lost;
}
DRIVER cuGraphDestroy(CudaGraph graph) {
  delete reinterpret_cast<Graph*>(graph);
  return lost;
}
DRIVER cuGraphAddKernelNode_v2(CudaGraphNode* node, CudaGraph graph, const CudaGraphNode*, size_t,
                               const CudaKernelNode* kernel) {
  auto& nodes = reinterpret_cast<Graph*>(graph)->nodes;
  Node& added = nodes.emplace_back(Node{reinterpret_cast<const Kernel*>(kernel->function), {}});
  for (size_t i = 0; i < added.kernel->argument_bytes.size(); ++i) {
    const auto* bytes = static_cast<const char*>(kernel->arguments[i]);
    added.arguments.emplace_back(bytes, bytes + added.kernel->argument_bytes[i]);
  }
  *node = reinterpret_cast<CudaGraphNode>(nodes.size());
  return lost;
}
IDLE(cuGraphAddMemsetNode, CudaGraphNode*, CudaGraph, const CudaGraphNode*, size_t,
     const CudaMemsetNode*, CudaContext)
DRIVER cuGraphInstantiateWithFlags(CudaGraphExec* exec, CudaGraph graph, unsigned long long) {
  *exec = static_cast<CudaGraphExec>(Handle(new Graph(*reinterpret_cast<Graph*>(graph))));
  return lost;
}
IDLE(cuGraphUpload, CudaGraphExec, CudaStream)
DRIVER cuGraphLaunch(CudaGraphExec exec, CudaStream) {
  for (Node& node : reinterpret_cast<Graph*>(exec)->nodes) {
    if (Defect("order") && &node == &reinterpret_cast<Graph*>(exec)->nodes.back()) continue;
    std::vector<void*> arguments;
    for (std::vector<char>& argument : node.arguments) arguments.push_back(argument.data());
    if (const CudaResult result = Start(node.kernel, 1, arguments.data()); result != kCudaSuccess) {
      return result;
    }
  }
  return lost;
}
DRIVER cuGraphExecDestroy(CudaGraphExec exec) {
  delete reinterpret_cast<Graph*>(exec);
  return lost;
}

DRIVER cuMemAddressReserve(CudaPointer* pointer, size_t bytes, size_t, CudaPointer,
                           unsigned long long) {
  *pointer = reinterpret_cast<CudaPointer>(mmap(
      nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return lost;
}
DRIVER cuMemAddressFree(CudaPointer pointer, size_t bytes) {
  return munmap(reinterpret_cast<void*>(pointer), bytes) == 0 ? lost : kCudaInvalidValue;
}
DRIVER cuMemCreate(CudaAllocation* allocation, size_t, const CudaAllocationProperties*,
                   unsigned long long) {
  *allocation = 1;
  return lost;
}
IDLE(cuMemRelease, CudaAllocation)
IDLE(cuMemMap, CudaPointer, size_t, size_t, CudaAllocation, unsigned long long)
IDLE(cuMemUnmap, CudaPointer, size_t)
IDLE(cuMemSetAccess, CudaPointer, size_t, const CudaAccess*, size_t)
DRIVER cuMemGetAllocationGranularity(size_t* bytes, const CudaAllocationProperties*, int) {
  *bytes = size_t{2} << 20;
  return lost;
}
DRIVER cuTensorMapEncodeTiled(CudaTensorMap* map, int, uint32_t, void* address,
                              const uint64_t* sizes, const uint64_t*, const uint32_t*,
                              const uint32_t*, int, int, int, int) {
  map->opaque[0] = reinterpret_cast<uint64_t>(address);
  map->opaque[1] = sizes[0];
  return lost;
}
