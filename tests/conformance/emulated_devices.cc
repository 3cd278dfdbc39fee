#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "compiler/codegen/cpu/clang.h"
#include "compiler/codegen/cuda/dialect.h"
#include "compiler/codegen/cuda/nvrtc_testing.h"
#include "deploy/bazel/libs/status_macros.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/verdicts.h"
#include "tests/emulator/testing.h"

namespace athanor {

namespace {

std::string& Library() {
  static auto& library = *new std::string;
  return library;
}

}  // namespace

std::string TestGpuLibrary() { return Library(); }

absl::StatusOr<std::shared_ptr<CudaDevice>> TestGpu() {
  static auto& device = *new std::shared_ptr<CudaDevice>;
  if (device != nullptr && device->Enter().ok()) return device;
  ASSIGN_OR_RETURN(const CudaDriver* driver, emulator::NewDevice(&Library()));
  // The emulator fills the workspace before each launch, so that a small one saves time.
  ASSIGN_OR_RETURN(device,
                   CudaDevice::Create(*driver, {.workspace_bytes = 1 << 16,
                                                .library_folder = emulator::kLibraryFolder}));
  return device;
}

namespace {

// Returns the architectures whose compiler is asked: those of ATHANOR_TEST_NVRTC_ARCHS, with commas
// in between, or the two that CI has time for.
std::vector<std::string> AskedArchitectures() {
  const char* const archs = std::getenv("ATHANOR_TEST_NVRTC_ARCHS");
  return absl::StrSplit(archs != nullptr ? archs : "sm_80,sm_90a", ',');
}

// Asks NVIDIA's compiler whether it takes a text for every architecture, and has registers for all
// values. Where that is `asked`, one that lacks them is refused as a search refuses it.
absl::Status CheckByNvrtc(const std::string& text, absl::string_view asked) {
  ASSIGN_OR_RETURN(const Nvrtc* nvrtc, TestNvrtc("tests/conformance/devices.h"));
  static const auto& verdicts =
      *new absl::StatusOr<std::unique_ptr<Verdicts>>(Verdicts::Open(*nvrtc, VerdictFolder()));
  RETURN_IF_ERROR(verdicts.status());
  for (const std::string& arch : AskedArchitectures()) {
    ASSIGN_OR_RETURN(const Verdict verdict, (*verdicts)->Of(text, arch));
    if (asked != "refuses" && asked != "registers") {
      return absl::InvalidArgumentError(
          absl::StrCat("ATHANOR_TEST_NVRTC=", asked, " is neither \"refuses\" nor \"registers\""));
    }
    if (verdict.spill_bytes == 0) continue;
    return absl::Status(
        asked == "refuses" ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
        absl::StrCat("spills on ", arch, ": ", verdict.spill_bytes, " bytes stored and loaded"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> GpuCode(const std::string& text) {
  ASSIGN_OR_RETURN(const std::shared_ptr<CudaDevice> device, TestGpu());
  ASSIGN_OR_RETURN(const Nvrtc* compiler, emulator::Compiler());
  absl::StatusOr<Cubin> cubin = compiler->Compile(CudaSourceOf(text, device->target().cpu()));
  absl::Status status = cubin.status();
  const char* const asked = std::getenv("ATHANOR_TEST_NVRTC");
  if (status.ok() && asked != nullptr) status = CheckByNvrtc(text, asked);
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
