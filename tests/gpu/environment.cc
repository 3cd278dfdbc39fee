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

// Is a program of one kernel, as the tuner compiles candidates.
constexpr char kOneKernel[] = R"cuda(
extern "C" __global__ void tile(const unsigned* left, const unsigned* right, float* sum, int steps) {
  float d[4] = {};
  for (int step = 0; step < steps; ++step) {
    const unsigned* a = left + ((blockIdx.x * steps + step) * 32 + threadIdx.x) * 4;
    const unsigned* b = right + ((blockIdx.x * steps + step) * 32 + threadIdx.x) * 2;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
                 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  for (int i = 0; i < 4; ++i) sum[(blockIdx.x * 32 + threadIdx.x) * 4 + i] = d[i];
}
)cuda";

// Times the first compilation of this process, and later ones.
absl::Status Compile(PartRun& run, const Nvrtc& nvrtc, const std::string& arch) {
  const auto compile = [&](const std::string& text,
                           const std::string& name) -> absl::StatusOr<Json> {
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const Cubin cubin,
                     nvrtc.Compile({.source = text, .arch = arch, .name = name}));
    const double ms = MsSince(begin);
    return Json{{"ms", ms}, {"kernels", cubin.log.kernels.size()}};
  };
  ASSIGN_OR_RETURN(const Json cold, compile(kOneKernel, "tile.cu"));
  std::vector<double> warm;
  for (int i = 0; i < 9; ++i) {
    ASSIGN_OR_RETURN(const Json one, compile(kOneKernel, "tile.cu"));
    warm.push_back(one["ms"]);
  }
  Json details = {{"first_ms", cold["ms"]}};
  for (const auto& [file, text] : KernelTexts()) {
    if (!CanRun(file, arch)) continue;
    ASSIGN_OR_RETURN(details[file], compile(text, file));
  }
  run.report().Answer("environment.compile_ms", MedianOf(std::move(warm)), std::move(details));
  return absl::OkStatus();
}

}  // namespace

int ChildPresent(const std::string& nvrtc) {
  const absl::StatusOr<std::unique_ptr<Gpu>> gpu = Gpu::Open(nvrtc);
  const absl::Status status = gpu.ok() ? (*gpu)->HasKernels() : gpu.status();
  if (status.ok()) return 0;
  PrintObject({{"error", std::string(status.message())}, {"device", gpu.ok()}});
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
  const absl::StatusOr<const Nvrtc*> nvrtc = gpu->nvrtc();
  Json facts = {{"device", name},
                {"arch", gpu->arch()},
                {"memory_bytes", bytes},
                {"free_bytes", free},
                {"nvrtc", nvrtc.ok() ? (*nvrtc)->version() : "none"}};
  for (const Fact& fact : kFacts) facts[fact.name] = gpu->Attribute(fact.attribute);
  utsname system = {};
  uname(&system);
  facts["system"] = std::string(system.sysname) + " " + system.release;
  run.report().Fact("environment", "device", std::move(facts));
  run.report().Answer("environment.driver", version);
  run.report().Answer("environment.virtual_memory", gpu->Attribute(kCudaVirtualMemory));

  if (!nvrtc.ok()) {
    run.report().Failed("environment.compile_ms", nvrtc.status().message());
    return absl::OkStatus();
  }
  return Compile(run, **nvrtc, gpu->arch());
}

}  // namespace athanor
