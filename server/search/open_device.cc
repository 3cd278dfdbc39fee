#include "server/search/open_device.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "deploy/bazel/libs/status_macros.h"
#include "runtime/cpu/device.h"
#include "server/base/log.h"
#include "server/base/options.h"

namespace athanor {
namespace {

OpenedDevice Opened(std::unique_ptr<CudaDevice> gpu, std::string reason = "") {
  OpenedDevice opened = {.name = gpu->full_name(), .gpu = gpu.get(), .reason = std::move(reason)};
  opened.device = std::move(gpu);
  return opened;
}

absl::StatusOr<std::unique_ptr<CudaDevice>> OpenUsable(const CudaDriver& driver, int ordinal,
                                                       const GpuSupport& support) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> gpu,
                   CudaDevice::Create(driver, {.ordinal = ordinal}));
  ASSIGN_OR_RETURN(const int64_t free, gpu->FreeBytes());
  if (free < kLeastFreeOnGpu) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "device ", gpu->full_name(), ": ", free, " of ", gpu->properties().memory_bytes,
        " bytes are free, fewer than ", kLeastFreeOnGpu));
  }
  if (absl::Status compiler = support.compiler(ordinal); !compiler.ok()) {
    return absl::Status(compiler.code(),
                        absl::StrCat("device ", gpu->full_name(), ": ", compiler.message()));
  }
  return gpu;
}

// Returns the first GPU that is usable, null if none is; adds to `reasons` why not those before it.
std::unique_ptr<CudaDevice> FindGpu(const GpuSupport& support, std::vector<std::string>* reasons) {
  const absl::StatusOr<const CudaDriver*> driver = support.driver();
  if (!driver.ok()) {
    reasons->emplace_back(driver.status().message());
    return nullptr;
  }
  const absl::StatusOr<int> gpus = CountGpus(**driver);
  if (!gpus.ok()) {
    reasons->emplace_back(gpus.status().message());
    return nullptr;
  }
  for (int i = 0; i < *gpus; ++i) {
    auto gpu = OpenUsable(**driver, i, support);
    if (gpu.ok()) {
      if (i + 1 < *gpus) reasons->push_back(absl::StrCat("cuda:", i + 1, " on: not tried"));
      return *std::move(gpu);
    }
    reasons->emplace_back(gpu.status().message());
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<OpenedDevice> OpenDevice(absl::string_view asked, const ThreadPoolOptions& threads,
                                        const GpuSupport& gpus) {
  if (const std::optional<int> ordinal = GpuOrdinal(asked)) {
    ASSIGN_OR_RETURN(const CudaDriver* loaded, gpus.driver());
    ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> gpu,
                     CudaDevice::Create(*loaded, {.ordinal = *ordinal}));
    return Opened(std::move(gpu));
  }
  OpenedDevice opened = {.name = "cpu"};
  if (asked == "auto") {
    std::vector<std::string> reasons;
    std::unique_ptr<CudaDevice> gpu = FindGpu(gpus, &reasons);
    opened.reason = absl::StrJoin(reasons, "; ");
    if (gpu != nullptr) return Opened(std::move(gpu), std::move(opened.reason));
  }
  ASSIGN_OR_RETURN(opened.device, CpuDevice::Create(threads));
  return opened;
}

absl::StatusOr<std::vector<OpenedDevice>> OpenDevices(absl::string_view asked,
                                                      const ThreadPoolOptions& threads,
                                                      const GpuSupport& gpus) {
  std::vector<OpenedDevice> opened;
  for (absl::string_view name : absl::StrSplit(asked, ',')) {
    ASSIGN_OR_RETURN(opened.emplace_back(), OpenDevice(name, threads, gpus));
    if (name != "auto") continue;
    LogInfo("device chosen", {{"device", opened.back().name}, {"reason", opened.back().reason}});
  }
  return opened;
}

std::optional<internal::MachineReply> LimitsOf(const CudaProperties& gpu) {
  if (gpu.core_hertz <= 0 || gpu.memory_hertz <= 0 || gpu.memory_bits <= 0) return std::nullopt;
  // f32 lanes of a multiprocessor: 64 of GA100, 128 of all since.
  const double lanes = gpu.compute == 80 ? 64 : 128;
  const double read = 2 * gpu.memory_hertz * gpu.memory_bits / 8;
  internal::MachineReply limits;
  limits.set_read_bytes_per_second(read);
  // No driver tells these: the proportions are those of the compiler's typical GPU.
  limits.set_cache_bytes_per_second(2 * read);
  limits.set_near_bytes_per_second(7 * read);
  limits.set_f32_flops_per_second(2 * lanes * gpu.multiprocessors * gpu.core_hertz);
  return limits;
}

}  // namespace athanor
