#include "runtime/cuda/clocks.h"

#include <dlfcn.h>

#include <map>

#include "deploy/bazel/libs/mutex.h"

namespace athanor {
namespace {

// NVML's, as its documentation declares them; all functions return 0 for success.
using NvmlDevice = struct NvmlDeviceRecord*;
constexpr int kClockOfMultiprocessors = 1;  // NVML_CLOCK_SM
constexpr int kClockOfMemory = 2;           // NVML_CLOCK_MEM

struct Nvml {
  int (*init)() = nullptr;
  int (*device)(const char* bus_id, NvmlDevice* device) = nullptr;
  int (*clock)(NvmlDevice device, int kind, unsigned* mhz) = nullptr;
};

// Returns functions that are null where there is no library that starts.
Nvml Open(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  const auto find = [library]<typename F>(F* function, const char* symbol) {
    *function = reinterpret_cast<F>(dlsym(library, symbol));
    return *function != nullptr;
  };
  Nvml nvml;
  if (!find(&nvml.init, "nvmlInit_v2") || !find(&nvml.device, "nvmlDeviceGetHandleByPciBusId_v2") ||
      !find(&nvml.clock, "nvmlDeviceGetClockInfo") || nvml.init() != 0) {
    dlclose(library);
    return {};
  }
  return nvml;
}

Nvml Loaded(const std::string& file) {
  static Mutex mu;
  static auto& loaded = *new std::map<std::string, Nvml>;
  MutexLock lock(mu);
  const auto found = loaded.find(file);
  return found != loaded.end() ? found->second : loaded[file] = Open(file.c_str());
}

}  // namespace

CudaClocks ReadClocks(const std::string& bus_id, const char* file) {
  const Nvml nvml = Loaded(file);
  NvmlDevice device = nullptr;
  if (nvml.device == nullptr || nvml.device(bus_id.c_str(), &device) != 0) return {};
  const auto read = [&](int kind) {
    unsigned mhz = 0;
    return nvml.clock(device, kind, &mhz) == 0 ? static_cast<int>(mhz) : 0;
  };
  return {.core_mhz = read(kClockOfMultiprocessors), .memory_mhz = read(kClockOfMemory)};
}

}  // namespace athanor
