#include <sys/utsname.h>

#include <chrono>

#include "deploy/bazel/libs/status_macros.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

struct Fact {
  const char* name;
  CudaDeviceAttribute attribute;
};
constexpr Fact kFacts[] = {
    {"multiprocessors", kCudaMultiprocessors},
    {"threads_per_multiprocessor", kCudaThreadsPerMultiprocessor},
    {"registers_per_multiprocessor", kCudaRegistersPerMultiprocessor},
    {"shared_bytes_per_multiprocessor", kCudaSharedBytesPerMultiprocessor},
    {"shared_bytes_per_block", kCudaSharedBytesPerBlockOptin},
    {"l2_bytes", kCudaL2Bytes},
    {"clock_khz", kCudaClockKilohertz},
    {"memory_clock_khz", kCudaMemoryClockKilohertz},
    {"memory_bus_bits", kCudaMemoryBusBits},
    {"wave", kCudaWarpSize},
};

}  // namespace

int ChildPresent(const std::string& nvrtc) {
  const absl::Status status = Gpu::Open(nvrtc).status();
  if (status.ok()) return 0;
  PrintObject({{"error", std::string(status.message())}});
  return 1;
}

absl::Status RunEnvironment(PartRun& run) {
  ASSIGN_OR_RETURN(Gpu * gpu, run.gpu());
  const CudaDriver& cuda = gpu->cuda();
  int version = 0;
  RETURN_IF_CUDA_ERROR(cuda, DriverGetVersion(&version));
  char name[256] = {};
  RETURN_IF_CUDA_ERROR(cuda, DeviceGetName(name, sizeof(name) - 1, gpu->device()));
  size_t bytes = 0, free = 0;
  RETURN_IF_CUDA_ERROR(cuda, DeviceTotalMem(&bytes, gpu->device()));
  RETURN_IF_CUDA_ERROR(cuda, MemGetInfo(&free, &bytes));
  Json facts = {{"device", name},
                {"arch", gpu->arch()},
                {"memory_bytes", bytes},
                {"free_bytes", free},
                {"nvrtc", gpu->nvrtc() ? gpu->nvrtc()->version() : "none"}};
  for (const Fact& fact : kFacts) facts[fact.name] = gpu->Attribute(fact.attribute);
  utsname system = {};
  uname(&system);
  facts["system"] = std::string(system.sysname) + " " + system.release;
  run.report().Fact("environment", "device", std::move(facts));
  run.report().Answer("environment.driver", version);
  run.report().Answer("environment.virtual_memory", gpu->Attribute(kCudaVirtualMemory));

  if (gpu->nvrtc() == nullptr) {
    run.report().Failed("environment.compile_ms", "this machine has no compiler (NVRTC)");
    return absl::OkStatus();
  }
  Json each;
  double slowest = 0;
  for (const auto& [file, text] : KernelTexts()) {
    if (!Runs(file, gpu->arch())) continue;
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const Cubin cubin,
                     gpu->nvrtc()->Compile({.source = text, .arch = gpu->arch(), .name = file}));
    each[file] = {{"ms", MsSince(begin)}, {"kernels", cubin.log.kernels.size()}};
    slowest = std::max(slowest, MsSince(begin) / static_cast<double>(cubin.log.kernels.size()));
  }
  run.report().Answer("environment.compile_ms", slowest, std::move(each));
  return absl::OkStatus();
}

}  // namespace athanor
