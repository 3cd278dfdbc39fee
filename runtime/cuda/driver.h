// The CUDA driver as a table of functions, found at run time: a program with it builds and starts
// where there is neither a GPU nor a toolkit.
//
//   ASSIGN_OR_RETURN(const CudaDriver* cuda, CudaDriver::Load());
//   RETURN_IF_ERROR(CudaStatus(*cuda, cuda->Init(0), "cuInit"));
//
// Types and values are declared here, not taken from cuda.h; driver_declarations_test.py compares
// them with it. Tests put functions of their own into a table, to stand for a device.
#ifndef ATHANOR_RUNTIME_CUDA_DRIVER_H_
#define ATHANOR_RUNTIME_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace athanor {

using CudaResult = int;
using CudaDeviceHandle = int;
using CudaPointer = uint64_t;     // in the device's address space
using CudaAllocation = uint64_t;  // physical memory without an address
using CudaContext = struct CudaContextOpaque*;
using CudaModule = struct CudaModuleOpaque*;
using CudaFunction = struct CudaFunctionOpaque*;
using CudaStream = struct CudaStreamOpaque*;
using CudaEvent = struct CudaEventOpaque*;
using CudaGraph = struct CudaGraphOpaque*;
using CudaGraphNode = struct CudaGraphNodeOpaque*;
using CudaGraphExec = struct CudaGraphExecOpaque*;

// Results that callers tell apart.
enum : CudaResult {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaNotInitialized = 3,
  kCudaStubLibrary = 34,
  kCudaDeviceUnavailable = 46,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaDeviceNotLicensed = 102,
  kCudaInvalidImage = 200,
  kCudaNoBinaryForGpu = 209,
  kCudaEccUncorrectable = 214,
  kCudaNvlinkUncorrectable = 220,
  kCudaContained = 226,
  kCudaOperatingSystem = 304,
  kCudaNotFound = 500,
  kCudaNotReady = 600,
  kCudaIllegalAddress = 700,
  kCudaLaunchOutOfResources = 701,
  kCudaLaunchTimeout = 702,
  kCudaContextIsDestroyed = 709,
  kCudaAssert = 710,
  kCudaHardwareStackError = 714,
  kCudaIllegalInstruction = 715,
  kCudaMisalignedAddress = 716,
  kCudaInvalidAddressSpace = 717,
  kCudaInvalidPc = 718,
  kCudaLaunchFailed = 719,
  kCudaTensorMemoryLeak = 721,
  kCudaSystemNotReady = 802,
  kCudaSystemDriverMismatch = 803,
  kCudaCompatNotSupported = 804,
  kCudaMpsConnectionFailed = 805,
  kCudaMpsServerNotReady = 807,
  kCudaMpsMaxClientsReached = 808,
  kCudaMpsMaxConnectionsReached = 809,
  kCudaMpsClientTerminated = 810,
  kCudaCaptureUnsupported = 900,
  kCudaCaptureInvalidated = 901,
  kCudaUnknown = 999,
};

enum CudaDeviceAttribute : int {
  kCudaMaxThreadsPerBlock = 1,
  kCudaWarpSize = 10,
  kCudaClockKilohertz = 13,
  kCudaMultiprocessors = 16,
  kCudaComputeMode = 20,
  kCudaMemoryClockKilohertz = 36,
  kCudaMemoryBusBits = 37,
  kCudaL2Bytes = 38,
  kCudaThreadsPerMultiprocessor = 39,
  kCudaComputeMajor = 75,
  kCudaComputeMinor = 76,
  kCudaSharedBytesPerMultiprocessor = 81,
  kCudaRegistersPerMultiprocessor = 82,
  kCudaSharedBytesPerBlockOptin = 97,
  kCudaVirtualMemory = 102,
};

inline constexpr int kCudaComputeModeDefault = 0;
inline constexpr unsigned kCudaStreamNonBlocking = 1;
// Captures while this thread and others may call anything.
inline constexpr int kCudaCaptureRelaxed = 2;
inline constexpr unsigned kCudaEventDisableTiming = 2;
inline constexpr unsigned kCudaHostPortable = 1;
inline constexpr int kCudaMemoryPinned = 1;     // of CudaAllocationProperties.type
inline constexpr int kCudaLocationDevice = 1;   // of CudaLocation.type
inline constexpr int kCudaAccessReadWrite = 3;  // of CudaAccess.flags
inline constexpr int kCudaGranularityMinimum = 0;
inline constexpr int kCudaCopyOfHost = 1;  // of CudaCopySide.type
inline constexpr int kCudaCopyOfDevice = 2;

struct CudaLocation {
  int type = kCudaLocationDevice;
  int id = 0;
};
struct CudaAllocationProperties {
  int type = kCudaMemoryPinned;
  int handle_types = 0;
  CudaLocation location;
  void* win32 = nullptr;
  unsigned char compression = 0;
  unsigned char rdma = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};
struct CudaAccess {
  CudaLocation location;
  int flags = kCudaAccessReadWrite;
};
struct CudaKernelNode {
  CudaFunction function = nullptr;
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;  // instead of a function
  CudaContext context = nullptr;
};
// Describes one side of a copy, and the whole of it. Fields that copies of bytes between memories
// do not use stay as they are.
struct CudaCopySide {
  size_t x = 0, y = 0, z = 0, level = 0;
  int type = kCudaCopyOfDevice;
  void* host = nullptr;
  CudaPointer device = 0;
  void* array = nullptr;
  void* reserved = nullptr;
  size_t pitch = 0, height = 0;
};
struct CudaCopyNode {
  CudaCopySide from, to;
  size_t bytes = 0, rows = 1, depth = 1;
};
// Describes a tile to the copy engine; bytes are the driver's own.
struct alignas(128) CudaTensorMap {
  uint64_t opaque[16] = {};
};
enum CudaTensorMapType : int { kCudaTensorMapF32 = 7 };

// X(member, symbol, arguments): every function of the table. All return a CudaResult.
#define ATHANOR_CUDA_DRIVER(X)                                                                   \
  X(Init, "cuInit", (unsigned flags))                                                            \
  X(DriverGetVersion, "cuDriverGetVersion", (int* version))                                      \
  X(GetErrorName, "cuGetErrorName", (CudaResult result, const char** name))                      \
  X(GetErrorString, "cuGetErrorString", (CudaResult result, const char** text))                  \
  X(DeviceGetCount, "cuDeviceGetCount", (int* count))                                            \
  X(DeviceGet, "cuDeviceGet", (CudaDeviceHandle * device, int ordinal))                          \
  X(DeviceGetName, "cuDeviceGetName", (char* name, int bytes, CudaDeviceHandle device))          \
  X(DeviceGetAttribute, "cuDeviceGetAttribute",                                                  \
    (int* value, int attribute, CudaDeviceHandle device))                                        \
  X(DeviceGetPciBusId, "cuDeviceGetPCIBusId", (char* id, int bytes, CudaDeviceHandle device))    \
  X(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t* bytes, CudaDeviceHandle device))             \
  X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                                                \
    (CudaContext * context, CudaDeviceHandle device))                                            \
  X(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CudaDeviceHandle device))                \
  X(PrimaryCtxReset, "cuDevicePrimaryCtxReset_v2", (CudaDeviceHandle device))                    \
  X(CtxSetCurrent, "cuCtxSetCurrent", (CudaContext context))                                     \
  X(ModuleLoadData, "cuModuleLoadData", (CudaModule * module, const void* image))                \
  X(ModuleUnload, "cuModuleUnload", (CudaModule module))                                         \
  X(ModuleGetFunction, "cuModuleGetFunction",                                                    \
    (CudaFunction * function, CudaModule module, const char* name))                              \
  X(LaunchKernel, "cuLaunchKernel",                                                              \
    (CudaFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CudaStream stream,               \
     void** arguments, void** extra))                                                            \
  X(OccupancyBlocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                              \
    (int* blocks, CudaFunction function, int block_threads, size_t shared_bytes))                \
  X(MemGetInfo, "cuMemGetInfo_v2", (size_t* free, size_t* total))                                \
  X(MemAlloc, "cuMemAlloc_v2", (CudaPointer * pointer, size_t bytes))                            \
  X(MemFree, "cuMemFree_v2", (CudaPointer pointer))                                              \
  X(MemHostAlloc, "cuMemHostAlloc", (void** pointer, size_t bytes, unsigned flags))              \
  X(MemFreeHost, "cuMemFreeHost", (void* pointer))                                               \
  X(CopyToDevice, "cuMemcpyHtoDAsync_v2",                                                        \
    (CudaPointer to, const void* from, size_t bytes, CudaStream stream))                         \
  X(CopyToHost, "cuMemcpyDtoHAsync_v2",                                                          \
    (void* to, CudaPointer from, size_t bytes, CudaStream stream))                               \
  X(CopyOnDevice, "cuMemcpyDtoDAsync_v2",                                                        \
    (CudaPointer to, CudaPointer from, size_t bytes, CudaStream stream))                         \
  X(FillBytes, "cuMemsetD8Async",                                                                \
    (CudaPointer to, unsigned char value, size_t bytes, CudaStream stream))                      \
  X(StreamCreate, "cuStreamCreate", (CudaStream * stream, unsigned flags))                       \
  X(StreamDestroy, "cuStreamDestroy_v2", (CudaStream stream))                                    \
  X(StreamSynchronize, "cuStreamSynchronize", (CudaStream stream))                               \
  X(StreamBeginCapture, "cuStreamBeginCapture_v2", (CudaStream stream, int mode))                \
  X(StreamEndCapture, "cuStreamEndCapture", (CudaStream stream, CudaGraph * graph))              \
  X(EventCreate, "cuEventCreate", (CudaEvent * event, unsigned flags))                           \
  X(EventDestroy, "cuEventDestroy_v2", (CudaEvent event))                                        \
  X(EventRecord, "cuEventRecord", (CudaEvent event, CudaStream stream))                          \
  X(EventSynchronize, "cuEventSynchronize", (CudaEvent event))                                   \
  X(EventElapsedTime, "cuEventElapsedTime", (float* ms, CudaEvent begin, CudaEvent end))         \
  X(GraphCreate, "cuGraphCreate", (CudaGraph * graph, unsigned flags))                           \
  X(GraphDestroy, "cuGraphDestroy", (CudaGraph graph))                                           \
  X(GraphAddKernel, "cuGraphAddKernelNode_v2",                                                   \
    (CudaGraphNode * node, CudaGraph graph, const CudaGraphNode* after, size_t count,            \
     const CudaKernelNode* kernel))                                                              \
  X(GraphAddCopy, "cuGraphAddMemcpyNode",                                                        \
    (CudaGraphNode * node, CudaGraph graph, const CudaGraphNode* after, size_t count,            \
     const CudaCopyNode* copy, CudaContext context))                                             \
  X(GraphAddChild, "cuGraphAddChildGraphNode",                                                   \
    (CudaGraphNode * node, CudaGraph graph, const CudaGraphNode* after, size_t count,            \
     CudaGraph child))                                                                           \
  X(GraphAddEvent, "cuGraphAddEventRecordNode",                                                  \
    (CudaGraphNode * node, CudaGraph graph, const CudaGraphNode* after, size_t count,            \
     CudaEvent event))                                                                           \
  X(GraphInstantiate, "cuGraphInstantiateWithFlags",                                             \
    (CudaGraphExec * exec, CudaGraph graph, unsigned long long flags))                           \
  X(GraphUpload, "cuGraphUpload", (CudaGraphExec exec, CudaStream stream))                       \
  X(GraphLaunch, "cuGraphLaunch", (CudaGraphExec exec, CudaStream stream))                       \
  X(GraphExecDestroy, "cuGraphExecDestroy", (CudaGraphExec exec))                                \
  X(AddressReserve, "cuMemAddressReserve",                                                       \
    (CudaPointer * pointer, size_t bytes, size_t alignment, CudaPointer wish,                    \
     unsigned long long flags))                                                                  \
  X(AddressFree, "cuMemAddressFree", (CudaPointer pointer, size_t bytes))                        \
  X(MemCreate, "cuMemCreate",                                                                    \
    (CudaAllocation * allocation, size_t bytes, const CudaAllocationProperties* properties,      \
     unsigned long long flags))                                                                  \
  X(MemRelease, "cuMemRelease", (CudaAllocation allocation))                                     \
  X(MemMap, "cuMemMap",                                                                          \
    (CudaPointer pointer, size_t bytes, size_t offset, CudaAllocation allocation,                \
     unsigned long long flags))                                                                  \
  X(MemUnmap, "cuMemUnmap", (CudaPointer pointer, size_t bytes))                                 \
  X(MemSetAccess, "cuMemSetAccess",                                                              \
    (CudaPointer pointer, size_t bytes, const CudaAccess* access, size_t count))                 \
  X(MemGranularity, "cuMemGetAllocationGranularity",                                             \
    (size_t* bytes, const CudaAllocationProperties* properties, int option))                     \
  X(TensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                              \
    (CudaTensorMap * map, int type, uint32_t rank, void* address, const uint64_t* sizes,         \
     const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,        \
     int swizzle, int promotion, int fill))

inline constexpr char kCudaDriverFile[] = "libcuda.so.1";

struct CudaDriver {
#define ATHANOR_MEMBER(member, symbol, arguments) CudaResult(*member) arguments = nullptr;
  ATHANOR_CUDA_DRIVER(ATHANOR_MEMBER)
#undef ATHANOR_MEMBER

  // Opens the driver once per `file`, for the life of the process; initialises nothing. Returns
  // FAILED_PRECONDITION if this machine has no driver, or one that lacks a function; the message
  // names it. Thread-safe.
  static absl::StatusOr<const CudaDriver*> Load(const char* file = kCudaDriverFile);
};

// Reports whether a result is known to leave its context unusable: every later call fails. False
// promises a usable context only for the results of this header.
bool IsStickyError(CudaResult result);

// Reports whether what a kernel did can have led to a result that ends its context; others come
// from the chip, the driver or another process.
bool IsKernelFault(CudaResult result);

// Returns OK for kCudaSuccess. Otherwise the message is `call`, the driver's name of the error and
// its explanation; the code says what to do next: RESOURCE_EXHAUSTED: with less memory;
// UNAVAILABLE: the context is lost, in another process; FAILED_PRECONDITION: with another device,
// driver or binary; INVALID_ARGUMENT: with other arguments; INTERNAL: a result that this header
// does not know, whose context may be lost.
absl::Status CudaStatus(const CudaDriver& cuda, CudaResult result, absl::string_view call);

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CUDA_DRIVER_H_
