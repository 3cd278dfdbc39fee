#include "compiler/codegen/cuda/dialect.h"

#include <vector>

#include "compiler/codegen/gpu/arithmetic.h"
#include "compiler/codegen/gpu/frame.h"
#include "compiler/codegen/gpu/memory.h"
#include "compiler/codegen/print/printer.h"
#include "compiler/codegen/print/spelling.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/sha256.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace kir {
namespace {

constexpr char kDeviceHeader[] =
#include "compiler/codegen/cuda/device.inc"
    ;
constexpr char kArithmeticHeader[] =
#include "compiler/codegen/gpu/arithmetic.inc"
    ;
constexpr char kMemoryHeader[] =
#include "compiler/codegen/gpu/memory.inc"
    ;
constexpr char kTeamHeader[] =
#include "compiler/codegen/cuda/team.inc"
    ;

// Shared memory that a block has without asking for more.
constexpr int64_t kMostSharedBytes = 48 << 10;

// Names the arguments: sN, and bN, of which scratch is laid out as Kernel::ScratchBytes counts it.
// `team`: what functions of teams have behind their name.
void NameArguments(const Kernel& kernel, const std::string& team, CodeText* code) {
  for (size_t i = 0; i < kernel.sizes.size(); ++i) code->Line("const i64 s", i, " = a.s", i, ";");
  const bool shared = SharesScratch(kernel, kMostSharedBytes);
  int64_t offset = shared ? ReservedBytes(kernel) : 0;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& b = kernel.buffers[i];
    if (IsArgument(b)) {
      code->Line("const Buffer b", i, " = a.b", i, ";");
      continue;
    }
    code->Line("const Buffer b", i, " = ", shared ? "shared" : "scratch", team,
               shared ? "(" : "(a, ", offset, ", ", b.elements * DTypeBytes(b.dtype), ");");
    offset += b.ScratchBytes();
  }
}

}  // namespace
}  // namespace kir

absl::Status VerifyCuda(const kir::Kernel& kernel) {
  if (kir::CallOf(kernel) != nullptr) return absl::OkStatus();
  const std::string name = Cat("kernel ", Quoted(kernel.name), ": ");
  if (kir::HasMatrices(kernel.body) && !kir::SharesScratch(kernel, kir::kMostSharedBytes)) {
    return absl::InternalError(Cat(name, "fragments and copies of ", kernel.ScratchBytes(),
                                   " bytes of scratch; a block has ", kir::kMostSharedBytes,
                                   " of shared memory, ", kir::ReservedBytes(kernel),
                                   " of them for reductions"));
  }
  return Prefixed(name, kir::VerifyTeam(kernel, "CUDA"));
}

int64_t CudaWorkspaceBytes(const kir::Kernel& kernel) {
  return kir::SharesScratch(kernel, kir::kMostSharedBytes) ? 0 : kernel.ScratchBytes();
}

std::string PrintCudaKernel(const kir::Kernel& kernel, const v1::Target&) {
  if (kir::CallOf(kernel) != nullptr) return kir::ToText(kernel);
  kir::GpuArithmetic arithmetic(kernel.team);
  kir::GpuMemory memory(kernel);
  kir::CodeText code;
  code.Directive("#include \"athanor/device.h\"");
  kir::DefineArguments(kernel, "", &code);
  const std::string team = kernel.team > 1 ? Cat("<", kernel.team, ">") : "";
  if (kernel.team > 1) {
    code.Open("TEAM_KERNEL(athanor_kernel, ", kernel.team, ", ",
              kir::SharedBytes(kernel, kir::kMostSharedBytes), ")");
  } else {
    code.Open("KERNEL(athanor_kernel)");
  }
  kir::NameArguments(kernel, team, &code);
  if (kernel.team > 1) code.Line("const i64 lane = lane_of", team, "();");
  code.Open("for (i64 g = first", team, "(a); g < a.items; g += teams", team, "(a))");
  kir::PrintBody(kernel, {arithmetic, memory, kir::UnrollHint}, &code);
  code.Close();
  code.Close();
  return code.text();
}

CudaSource CudaSourceOf(std::string_view text, std::string_view arch) {
  return {.source = std::string(text),
          .headers = {{"athanor/device.h", kir::kDeviceHeader},
                      {"athanor/arithmetic.h", kir::kArithmeticHeader},
                      {"athanor/memory.h", kir::kMemoryHeader},
                      {"athanor/team.h", kir::kTeamHeader}},
          .arch = std::string(arch),
          // Warning 177 is of registers that nothing reads; KIR may have them.
          .options = {"--fmad=false", "--diag-suppress=177"}};
}

std::string CudaHeadersHash() {
  const CudaSource added = CudaSourceOf("", "");
  std::string all;
  for (const CudaSource::Header& header : added.headers) {
    all += Cat(header.name.size(), " ", header.name, header.text.size(), " ", header.text);
  }
  for (const std::string& option : added.options) all += Cat(option.size(), " ", option);
  constexpr size_t kDigits = 16;
  return Sha256Hex(all).substr(0, kDigits);
}

}  // namespace athanor
