#include "tests/gpu/this_gpu.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/cuda/nvrtc.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/conformance/devices.h"
#include "tests/gpu/parts.h"

namespace athanor {
namespace {

// A process's share of the GPU's memory for kernels' scratch; many run side by side.
constexpr int64_t kWorkspaceBytes = 16 << 20;

const Nvrtc* compiler = nullptr;
std::shared_ptr<CudaDevice>& Opened() {
  static auto& device = *new std::shared_ptr<CudaDevice>;
  return device;
}
GpuCompilations compilations;

}  // namespace

absl::Status OpenThisGpu(const std::string& nvrtc_folder) {
  ASSIGN_OR_RETURN(compiler, Nvrtc::Load(nvrtc_folder));
  ASSIGN_OR_RETURN(const CudaDriver* driver, CudaDriver::Load());
  ASSIGN_OR_RETURN(Opened(), CudaDevice::Create(*driver, {.workspace_bytes = kWorkspaceBytes}));
  return absl::OkStatus();
}

const GpuCompilations& Compilations() { return compilations; }

absl::StatusOr<std::shared_ptr<CudaDevice>> TestGpu() {
  if (Opened() == nullptr) return absl::FailedPreconditionError("no test has opened the GPU");
  RETURN_IF_ERROR(Opened()->Enter());
  return Opened();
}

absl::StatusOr<std::string> GpuCode(const std::string& text) {
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaDevice> device, TestGpu());
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<Cubin> cubin = compiler->Compile(CudaSourceOf(text, device->target().cpu()));
  compilations.seconds += MsSince(begin) / 1e3;
  ++compilations.kernels;
  if (!cubin.ok()) {
    return absl::Status(cubin.status().code(), absl::StrCat(cubin.status().message(), "\n", text));
  }
  for (const KernelResources& kernel : cubin->log.kernels) compilations.spilling += kernel.spills();
  return std::move(cubin->code);
}

std::optional<v1::Target> TestCpu() { return std::nullopt; }

absl::StatusOr<std::string> CpuCode(const std::string& text, const v1::Target& target,
                                    int opt_level) {
  return absl::FailedPreconditionError("this program has no compiler for a CPU");
}

}  // namespace athanor
