#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/cuda/nvrtc_testing.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/conformance/devices.h"
#include "tests/emulator/testing.h"

namespace athanor {

absl::StatusOr<std::shared_ptr<CudaDevice>> TestGpu() {
  static auto& device = *new std::shared_ptr<CudaDevice>;
  if (device != nullptr && device->Enter().ok()) return device;
  ASSIGN_OR_RETURN(const CudaDriver* driver, emulator::NewDevice());
  // The emulator fills the workspace before each launch, so that a small one saves time.
  ASSIGN_OR_RETURN(device, CudaDevice::Create(*driver, {.workspace_bytes = 1 << 16}));
  return device;
}

namespace {

// Baseline kernels keep their values in registers, but for a few words of one tile of 2 x 12 sums
// whose columns are merged with its rows.
constexpr int64_t kMostSpilledBytes = 64;

absl::Status CheckByNvrtc(const std::string& text) {
  ASSIGN_OR_RETURN(const Nvrtc* nvrtc, TestNvrtc("tests/conformance/devices.h"));
  for (const char* arch : {"sm_80", "sm_90a"}) {
    ASSIGN_OR_RETURN(const Cubin cubin, nvrtc->Compile(CudaSourceOf(text, arch)));
    for (const KernelResources& kernel : cubin.log.kernels) {
      if (!kernel.spills()) continue;
      std::printf("%s: %lld bytes of spills\n", arch,
                  static_cast<long long>(kernel.spill_store_bytes));
      if (kernel.spill_store_bytes <= kMostSpilledBytes) continue;
      return absl::InternalError(absl::StrCat(kernel.name, " spills on ", arch, ": ",
                                              kernel.spill_store_bytes, " bytes stored, ",
                                              kernel.spill_load_bytes, " loaded"));
    }
  }
  return absl::OkStatus();
}

// Reports whether this text is among those for NVIDIA's compiler; the same in every run.
bool IsForNvrtc(const std::string& text) {
  const char* const share = std::getenv("ATHANOR_TEST_NVRTC");
  uint64_t one_in = 0;
  if (share == nullptr || !absl::SimpleAtoi(share, &one_in) || one_in == 0) return false;
  constexpr size_t kDigits = 8;
  return std::stoul(Sha256Hex(text).substr(0, kDigits), nullptr, 16) % one_in == 0;
}

}  // namespace

absl::StatusOr<std::string> GpuCode(const std::string& text) {
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaDevice> device, TestGpu());
  ASSIGN_OR_RETURN(const Nvrtc* compiler, emulator::Compiler());
  absl::StatusOr<Cubin> cubin = compiler->Compile(CudaSourceOf(text, device->target().cpu()));
  absl::Status status = cubin.status();
  if (status.ok() && IsForNvrtc(text)) status = CheckByNvrtc(text);
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat(status.message(), "\n", text));
  }
  return std::move(cubin->code);
}

std::optional<v1::Target> TestCpu() {
  const CpuTarget host = HostCpuTarget();
  v1::Target target;
  target.set_device("cpu");
  target.set_triple(host.triple);
  target.set_cpu(host.cpu);
  for (const std::string& feature : host.features) target.add_features(feature);
  return target;
}

absl::StatusOr<std::string> CpuCode(const std::string& text, const v1::Target& target,
                                    int opt_level) {
  const CpuTarget cpu{
      target.triple(), target.cpu(), {target.features().begin(), target.features().end()}};
  ClangOptions options;
  options.opt_level = opt_level;
  absl::StatusOr<std::string> object = CompileToSharedObject(text, cpu, options);
  if (object.ok()) return object;
  return absl::Status(object.status().code(), absl::StrCat(object.status().message(), "\n", text));
}

}  // namespace athanor
