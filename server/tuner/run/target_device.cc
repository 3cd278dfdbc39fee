#include "server/tuner/run/target_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include "absl/status/statusor.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/device.h"
#include "runtime/cuda/device.h"

namespace athanor {
namespace {

struct Gpu {
  const CudaDriver* driver = nullptr;
  int ordinal = 0;
} gpu;

absl::StatusOr<std::unique_ptr<Device>> DeviceFor(const v1::Target& target, int threads) {
  if (RunsOnHost(target)) {
    if (gpu.driver != nullptr && !GpuIsEmulated()) {
      return absl::FailedPreconditionError(
          "a plan for the CPU, but this tuner was started for a GPU (--gpu=N), without walls");
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                     CpuDevice::Create({.threads = HostThreads(target, threads), .pin = false}));
    return device;
  }
  if (gpu.driver == nullptr) {
    return absl::FailedPreconditionError(
        "a plan for a GPU, but this tuner was started for the CPU (no --gpu=N)");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                   CudaDevice::Create(*gpu.driver, {.ordinal = gpu.ordinal}));
  return device;
}

}  // namespace

absl::Status UseGpu(int ordinal) {
  ASSIGN_OR_RETURN(gpu.driver, CudaDriver::Load());
  gpu.ordinal = ordinal;
  return absl::OkStatus();
}

bool GpuIsEmulated() {
  void* const library = dlopen(kCudaDriverFile, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const bool emulated = dlsym(library, "athanor_emulator") != nullptr;
  dlclose(library);
  return emulated;
}

absl::Status RunOnDevice(const v1::Target& target, int threads,
                         absl::FunctionRef<absl::Status(Device* device)> body) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, DeviceFor(target, threads));
  absl::Status status = body(device.get());
  if (RunsOnHost(target) || !absl::IsUnavailable(status)) return status;
  return absl::InternalError(status.message());
}

bool RunsOnHost(const v1::Target& target) { return target.device() != "cuda"; }

int HostThreads(const v1::Target& target, int threads) {
  return RunsOnHost(target) ? std::max(1, threads) : 1;
}

}  // namespace athanor
