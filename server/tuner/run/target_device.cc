#include "server/tuner/run/target_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/device.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/device.h"

namespace athanor {
namespace {

constexpr char kShortOfMemoryUrl[] = "athanor/short_of_memory";
// A job that has more than this share of a GPU's memory when it begins has what there is: drivers
// and contexts take the rest.
constexpr double kAlmostAll = 0.9;

struct Gpu {
  const CudaDriver* driver = nullptr;
  int ordinal = 0;
  CudaDevice* device = nullptr;
} gpu;

}  // namespace

absl::Status UseGpu(int ordinal) {
  ASSIGN_OR_RETURN(gpu.driver, CudaDriver::Load());
  Cublaslt::Load("").status().IgnoreError();  // plans that call it are refused when they load
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

absl::StatusOr<CudaDevice*> TheGpu() {
  if (gpu.device != nullptr) return gpu.device;
  if (gpu.driver == nullptr) {
    return absl::FailedPreconditionError(
        "a plan for a GPU, but this is no device worker (--worker), or none of a GPU (--gpu=N)");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> made,
                   CudaDevice::Create(*gpu.driver, {.ordinal = gpu.ordinal}));
  return gpu.device = made.release();
}

absl::Status RunOnDevice(const v1::Target& target, int threads,
                         absl::FunctionRef<absl::Status(Device* device)> body) {
  if (RunsOnHost(target)) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                     CpuDevice::Create({.threads = HostThreads(target, threads), .pin = false}));
    return body(device.get());
  }
  ASSIGN_OR_RETURN(CudaDevice* const device, TheGpu());
  const absl::StatusOr<int64_t> free = device->FreeBytes();
  absl::Status status = free.ok() ? body(device) : free.status();
  if (absl::IsUnavailable(status) && device->LostByKernel()) {
    return absl::InternalError(status.message());
  }
  const int64_t all = device->properties().memory_bytes;
  if (absl::IsResourceExhausted(status) &&
      static_cast<double>(*free) < kAlmostAll * static_cast<double>(all)) {
    return ShortOfMemory(absl::StrCat(status.message(), "; when it began, ", *free, " of ", all,
                                      " bytes were free"));
  }
  return status;
}

absl::Status ShortOfMemory(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kShortOfMemoryUrl, absl::Cord());
  return status;
}

bool IsShortOfMemory(const absl::Status& status) {
  return status.GetPayload(kShortOfMemoryUrl).has_value();
}

absl::Status RunWhereItIsSafe(absl::string_view what, const IsolationLimits& limits,
                              const v1::Target& target, int threads,
                              absl::FunctionRef<absl::Status(Device* device)> body) {
  if (!RunsOnHost(target)) return RunOnDevice(target, threads, body);
  return RunIsolated(what, limits, [&] { return RunOnDevice(target, threads, body); });
}

bool RunsOnHost(const v1::Target& target) { return target.device() != "cuda"; }

int HostThreads(const v1::Target& target, int threads) {
  return RunsOnHost(target) ? std::max(1, threads) : 1;
}

}  // namespace athanor
