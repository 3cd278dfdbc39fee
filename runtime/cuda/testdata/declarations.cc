// Compiled against a toolkit's cuda.h, never run: each declaration of driver.h is the header's.
#include <cuda.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "runtime/cuda/driver.h"

// The headers of CUDA 13 declare only its successor, of the same arguments, which drivers before
// 570 do not have.
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end);

namespace athanor {
namespace {

// Pointers are of class 1, integers and the enums that stand for them of class 2.
template <typename T>
constexpr int kClass = std::is_pointer_v<T>                         ? 1
                       : std::is_integral_v<T> || std::is_enum_v<T> ? 2
                                                                    : 3;

// Compares the sizes behind two pointers, where both are known.
template <typename Ours, typename Theirs>
constexpr bool SamePointees() {
  if constexpr (requires {
                  sizeof(Ours);
                  sizeof(Theirs);
                }) {
    return sizeof(Ours) == sizeof(Theirs) && std::is_const_v<Ours> == std::is_const_v<Theirs>;
  } else {
    return true;
  }
}

template <typename Ours, typename Theirs>
constexpr bool kPassedAlike =
    kClass<Ours> == kClass<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
    SamePointees<std::remove_pointer_t<Ours>, std::remove_pointer_t<Theirs>>();

template <typename Ours, typename Theirs>
struct Alike;
template <typename... Ours, typename... Theirs>
struct Alike<CudaResult (*)(Ours...), CUresult (*)(Theirs...)> {
  static constexpr bool Value() {
    if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
      return (kPassedAlike<Ours, Theirs> && ...);
    } else {
      return false;
    }
  }
};

// `SYMBOL` is the function of the exact name: cuda.h's macros of names lead to other versions.
#define SAME_FUNCTION(member, SYMBOL)                                            \
  static_assert(Alike<decltype(CudaDriver::member), decltype(&SYMBOL)>::Value(), \
                #member " is not declared as " #SYMBOL);
#include <functions.inc>  // one SAME_FUNCTION for each row of ATHANOR_CUDA_DRIVER

#define SAME_VALUE(ours, theirs) static_assert(static_cast<long>(ours) == static_cast<long>(theirs))
SAME_VALUE(kCudaSuccess, CUDA_SUCCESS);
SAME_VALUE(kCudaInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(kCudaOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(kCudaNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME_VALUE(kCudaNoDevice, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(kCudaInvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SAME_VALUE(kCudaInvalidImage, CUDA_ERROR_INVALID_IMAGE);
SAME_VALUE(kCudaNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_VALUE(kCudaEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME_VALUE(kCudaContained, CUDA_ERROR_CONTAINED);
SAME_VALUE(kCudaNotFound, CUDA_ERROR_NOT_FOUND);
SAME_VALUE(kCudaNotReady, CUDA_ERROR_NOT_READY);
SAME_VALUE(kCudaIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(kCudaLaunchOutOfResources, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME_VALUE(kCudaLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME_VALUE(kCudaContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME_VALUE(kCudaAssert, CUDA_ERROR_ASSERT);
SAME_VALUE(kCudaHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME_VALUE(kCudaIllegalInstruction, CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME_VALUE(kCudaMisalignedAddress, CUDA_ERROR_MISALIGNED_ADDRESS);
SAME_VALUE(kCudaInvalidAddressSpace, CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME_VALUE(kCudaInvalidPc, CUDA_ERROR_INVALID_PC);
SAME_VALUE(kCudaLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME_VALUE(kCudaTensorMemoryLeak, CUDA_ERROR_TENSOR_MEMORY_LEAK);
SAME_VALUE(kCudaUnknown, CUDA_ERROR_UNKNOWN);
SAME_VALUE(kCudaDeviceUnavailable, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME_VALUE(kCudaNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME_VALUE(kCudaOperatingSystem, CUDA_ERROR_OPERATING_SYSTEM);
SAME_VALUE(kCudaSystemNotReady, CUDA_ERROR_SYSTEM_NOT_READY);
SAME_VALUE(kCudaCompatNotSupported, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME_VALUE(kCudaMpsConnectionFailed, CUDA_ERROR_MPS_CONNECTION_FAILED);
SAME_VALUE(kCudaMpsServerNotReady, CUDA_ERROR_MPS_SERVER_NOT_READY);
SAME_VALUE(kCudaMpsMaxClientsReached, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
SAME_VALUE(kCudaMpsMaxConnectionsReached, CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED);
SAME_VALUE(kCudaMpsClientTerminated, CUDA_ERROR_MPS_CLIENT_TERMINATED);
SAME_VALUE(kCudaComputeMode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
SAME_VALUE(kCudaComputeModeDefault, CU_COMPUTEMODE_DEFAULT);
SAME_VALUE(kCudaSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME_VALUE(kCudaMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_VALUE(kCudaWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
SAME_VALUE(kCudaClockKilohertz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME_VALUE(kCudaMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(kCudaMemoryClockKilohertz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME_VALUE(kCudaMemoryBusBits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME_VALUE(kCudaL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME_VALUE(kCudaThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
SAME_VALUE(kCudaComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(kCudaComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(kCudaSharedBytesPerMultiprocessor,
           CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME_VALUE(kCudaRegistersPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
SAME_VALUE(kCudaSharedBytesPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_VALUE(kCudaVirtualMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_VALUE(kCudaStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME_VALUE(kCudaCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_VALUE(kCudaCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_VALUE(kCudaCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_VALUE(kCudaEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(kCudaHostPortable, CU_MEMHOSTALLOC_PORTABLE);
SAME_VALUE(kCudaMemoryPinned, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(kCudaLocationDevice, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(kCudaAccessReadWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(kCudaCopyOfHost, CU_MEMORYTYPE_HOST);
SAME_VALUE(kCudaCopyOfDevice, CU_MEMORYTYPE_DEVICE);
SAME_VALUE(kCudaGranularityMinimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(kCudaTensorMapF32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);

#define SAME_FIELD(Ours, our, Theirs, their)                                                \
  static_assert(offsetof(Ours, our) == offsetof(Theirs, their) &&                           \
                sizeof(std::declval<Ours>().our) == sizeof(std::declval<Theirs>().their) && \
                sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs))
SAME_FIELD(CudaLocation, id, CUmemLocation, id);
SAME_FIELD(CudaAllocationProperties, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(CudaAllocationProperties, location, CUmemAllocationProp, location);
SAME_FIELD(CudaAllocationProperties, win32, CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(CudaAllocationProperties, compression, CUmemAllocationProp, allocFlags.compressionType);
SAME_FIELD(CudaAccess, flags, CUmemAccessDesc, flags);
SAME_FIELD(CudaKernelNode, grid_x, CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
SAME_FIELD(CudaKernelNode, block_x, CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
SAME_FIELD(CudaKernelNode, shared_bytes, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
SAME_FIELD(CudaKernelNode, arguments, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
SAME_FIELD(CudaKernelNode, extra, CUDA_KERNEL_NODE_PARAMS_v2, extra);
SAME_FIELD(CudaKernelNode, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern);
SAME_FIELD(CudaKernelNode, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx);
SAME_FIELD(CudaCopyNode, from.x, CUDA_MEMCPY3D, srcXInBytes);
SAME_FIELD(CudaCopyNode, from.level, CUDA_MEMCPY3D, srcLOD);
SAME_FIELD(CudaCopyNode, from.type, CUDA_MEMCPY3D, srcMemoryType);
SAME_FIELD(CudaCopyNode, from.host, CUDA_MEMCPY3D, srcHost);
SAME_FIELD(CudaCopyNode, from.device, CUDA_MEMCPY3D, srcDevice);
SAME_FIELD(CudaCopyNode, from.array, CUDA_MEMCPY3D, srcArray);
SAME_FIELD(CudaCopyNode, from.pitch, CUDA_MEMCPY3D, srcPitch);
SAME_FIELD(CudaCopyNode, from.height, CUDA_MEMCPY3D, srcHeight);
SAME_FIELD(CudaCopyNode, to.x, CUDA_MEMCPY3D, dstXInBytes);
SAME_FIELD(CudaCopyNode, to.type, CUDA_MEMCPY3D, dstMemoryType);
SAME_FIELD(CudaCopyNode, to.host, CUDA_MEMCPY3D, dstHost);
SAME_FIELD(CudaCopyNode, to.device, CUDA_MEMCPY3D, dstDevice);
SAME_FIELD(CudaCopyNode, to.pitch, CUDA_MEMCPY3D, dstPitch);
SAME_FIELD(CudaCopyNode, to.height, CUDA_MEMCPY3D, dstHeight);
SAME_FIELD(CudaCopyNode, bytes, CUDA_MEMCPY3D, WidthInBytes);
SAME_FIELD(CudaCopyNode, rows, CUDA_MEMCPY3D, Height);
SAME_FIELD(CudaCopyNode, depth, CUDA_MEMCPY3D, Depth);
// Headers before CUDA 13 ask for 64 bytes, and so does the text of the call that fills one.
static_assert(sizeof(CudaTensorMap) == sizeof(CUtensorMap));
static_assert(alignof(CudaTensorMap) == alignof(CUtensorMap));

}  // namespace
}  // namespace athanor
