// The driver's functions for the device itself, its context, modules and launches.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/emulator/device.h"

using namespace athanor;            // NOLINT: every function below is of its interface
using namespace athanor::emulator;  // NOLINT

namespace {

const struct {
  CudaResult result;
  const char *name, *text;
} kErrors[] = {
    {kCudaSuccess, "CUDA_SUCCESS", "no error"},
    {kCudaInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kCudaOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kCudaNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kCudaInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kCudaInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kCudaInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kCudaNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {kCudaInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kCudaNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kCudaNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kCudaEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {kCudaIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kCudaMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kCudaCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kCudaCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCudaLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

}  // namespace

ATHANOR_DRIVER cuInit(unsigned flags) {
  MutexLock lock(device.mutex);
  if (flags != 0) return kCudaInvalidValue;
  device.initialised = true;
  return kCudaSuccess;
}
ATHANOR_DRIVER cuDriverGetVersion(int* version) {
  *version = 13000;
  return kCudaSuccess;
}
ATHANOR_DRIVER cuGetErrorName(CudaResult result, const char** name) {
  for (const auto& error : kErrors) {
    if (error.result != result) continue;
    *name = error.name;
    return kCudaSuccess;
  }
  *name = nullptr;
  return kCudaInvalidValue;
}
ATHANOR_DRIVER cuGetErrorString(CudaResult result, const char** text) {
  MutexLock lock(device.mutex);
  if (result != kCudaSuccess && result == device.lost && !device.fault.empty()) {
    *text = device.fault.c_str();  // stays as it is from now on
    return kCudaSuccess;
  }
  for (const auto& error : kErrors) {
    if (error.result != result) continue;
    *text = error.text;
    return kCudaSuccess;
  }
  *text = nullptr;
  return kCudaInvalidValue;
}

ATHANOR_DRIVER cuDeviceGetCount(int* count) {
  return OnDevice([&] {
    *count = 1;
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuDeviceGet(CudaDeviceHandle* ordinal, int wanted) {
  return OnDevice([&]() -> CudaResult {
    if (wanted != 0) return kCudaInvalidDevice;
    *ordinal = 0;
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuDeviceGetName(char* name, int bytes, CudaDeviceHandle) {
  return OnDevice([&] {
    std::strncpy(name, TheMachine().name.c_str(), bytes);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuDeviceGetAttribute(int* value, int attribute, CudaDeviceHandle) {
  return OnDevice([&] {
    *value = TheMachine().attribute(attribute);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuDeviceGetPCIBusId(char* id, int bytes, CudaDeviceHandle) {
  return OnDevice([&] {
    std::strncpy(id, "0000:01:00.0", bytes);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuDeviceTotalMem_v2(size_t* bytes, CudaDeviceHandle) {
  return OnDevice([&] {
    *bytes = TheMachine().bytes;
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuDevicePrimaryCtxRetain(CudaContext* context, CudaDeviceHandle) {
  return OnDevice([&] {
    ++device.retained;
    *context = reinterpret_cast<CudaContext>(&device);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuDevicePrimaryCtxRelease_v2(CudaDeviceHandle) {
  return OnDevice([&]() -> CudaResult {
    if (device.retained == 0) return kCudaInvalidContext;
    --device.retained;
    return kCudaSuccess;
  });
}
// Does not bring back a lost device: a new process does.
ATHANOR_DRIVER cuDevicePrimaryCtxReset_v2(CudaDeviceHandle) {
  return OnDevice([] { return kCudaSuccess; });
}
ATHANOR_DRIVER cuCtxSetCurrent(CudaContext context) {
  return OnDevice([&]() -> CudaResult {
    if (context != nullptr && context != reinterpret_cast<CudaContext>(&device)) {
      return kCudaInvalidContext;
    }
    SetContextOfThread(context != nullptr);
    return kCudaSuccess;
  });
}

ATHANOR_DRIVER cuModuleLoadData(CudaModule* module, const void* image) {
  return InContext([&]() -> CudaResult {
    std::unique_ptr<Program> program;
    const CudaResult result = TheMachine().load(image, &program);
    if (result != kCudaSuccess) return result;
    *module = reinterpret_cast<CudaModule>(program.get());
    device.modules[*module] = std::move(program);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuModuleUnload(CudaModule module) {
  return InContext([&]() -> CudaResult {
    RunAll();  // what was launched of it
    return device.modules.erase(module) == 1 ? device.lost : kCudaInvalidHandle;
  });
}
ATHANOR_DRIVER cuModuleGetFunction(CudaFunction* function, CudaModule module, const char* name) {
  return InContext([&]() -> CudaResult {
    const auto found = device.modules.find(module);
    if (found == device.modules.end()) return kCudaInvalidHandle;
    Kernel* const kernel = found->second->Find(name);
    if (kernel == nullptr) return kCudaNotFound;
    *function = reinterpret_cast<CudaFunction>(kernel);
    return kCudaSuccess;
  });
}
// Counts what the emulated machines are short of. Registers are not: no thread has more than 255,
// and a multiprocessor has so many for each of its threads.
ATHANOR_DRIVER cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CudaFunction function,
                                                           int block_threads, size_t shared_bytes) {
  return InContext([&]() -> CudaResult {
    const auto* const kernel = reinterpret_cast<const Kernel*>(function);
    if (kernel == nullptr) return kCudaInvalidHandle;
    const auto of_machine = [](int attribute) {
      return static_cast<size_t>(TheMachine().attribute(attribute));
    };
    if (block_threads <= 0 || size_t(block_threads) > of_machine(kCudaMaxThreadsPerBlock)) {
      return kCudaInvalidValue;
    }
    size_t most = of_machine(kCudaThreadsPerMultiprocessor) / block_threads;
    if (const size_t shared = kernel->shared_bytes + shared_bytes; shared > 0) {
      most = std::min(most, of_machine(kCudaSharedBytesPerMultiprocessor) / shared);
    }
    *blocks = static_cast<int>(most);
    return kCudaSuccess;
  });
}
ATHANOR_DRIVER cuLaunchKernel(CudaFunction function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, CudaStream handle, void** arguments,
                              void** extra) {
  return InContext([&]() -> CudaResult {
    auto* const kernel = reinterpret_cast<Kernel*>(function);
    Stream* const stream = FindStream(handle);
    if (stream == nullptr || kernel == nullptr) return kCudaInvalidHandle;
    const uint64_t threads = uint64_t{block_x} * block_y * block_z;
    const uint64_t blocks = uint64_t{grid_x} * grid_y * grid_z;
    constexpr uint64_t kMostThreads = 1024;
    constexpr unsigned kMostOutside = 65535;  // of blocks in y and z
    if (threads == 0 || threads > kMostThreads || blocks == 0 || grid_x > INT32_MAX ||
        grid_y > kMostOutside || grid_z > kMostOutside) {
      return kCudaInvalidValue;
    }
    std::vector<std::vector<char>> kept;
    if (const CudaResult taken = TakeArguments(*kernel, arguments, extra, &kept);
        taken != kCudaSuccess) {
      return taken;
    }
    return EnqueueKernel(*stream, kernel, {int64_t(blocks), int64_t(threads)}, std::move(kept));
  });
}
