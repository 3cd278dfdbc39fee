#include "compiler/codegen/cuda/dialect.h"

#include <vector>

#include "compiler/codegen/cuda/arithmetic.h"
#include "compiler/codegen/cuda/memory.h"
#include "compiler/codegen/printer.h"
#include "compiler/codegen/spelling.h"
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
#include "compiler/codegen/cuda/arithmetic.inc"
    ;
constexpr char kMemoryHeader[] =
#include "compiler/codegen/cuda/memory.inc"
    ;

// Bytes of arguments that a launch takes from compute capability 7.0 on.
constexpr int64_t kMostArgumentBytes = 32764;

std::string LoopHint(AxisRole role, bool) {
  return role == AxisRole::kUnroll ? "#pragma unroll" : "";
}

absl::Status OneLane(const std::vector<Stmt>& body) {
  for (const Stmt& s : body) {
    if (s.opcode == Opcode::kGemm) {
      return absl::InternalError("a CUDA kernel calls no library: lower the contraction to loops");
    }
    if (s.type.lanes != 1) {
      return absl::InternalError(
          Cat("v", s.result, " has ", s.type.lanes, " lanes; a CUDA kernel's registers have one"));
    }
    RETURN_IF_ERROR(OneLane(s.body));
  }
  return absl::OkStatus();
}

bool IsGlobal(const Buffer& b) { return b.space == Space::kGlobal; }

void DefineArguments(const Kernel& kernel, CodeText* code) {
  code->Line("struct Arguments {");
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    if (IsGlobal(kernel.buffers[i])) code->Line("  Buffer b", i, ";");
  }
  for (size_t i = 0; i < kernel.sizes.size(); ++i) code->Line("  i64 s", i, ";");
  for (const char* member : {"i64 items", "u8* workspace", "i64 stride", "ErrorSlot* error"}) {
    code->Line("  ", member, ";");
  }
  code->Line("};");
}

// Names the arguments: sN, and bN, of which scratch is laid out as Kernel::ScratchBytes counts it.
void NameArguments(const Kernel& kernel, CodeText* code) {
  for (size_t i = 0; i < kernel.sizes.size(); ++i) code->Line("const i64 s", i, " = a.s", i, ";");
  int64_t offset = 0;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& b = kernel.buffers[i];
    if (IsGlobal(b)) {
      code->Line("const Buffer b", i, " = a.b", i, ";");
      continue;
    }
    code->Line("const Buffer b", i, " = scratch(a, ", offset, ", ",
               b.elements * DTypeBytes(b.dtype), ");");
    offset += b.ScratchBytes();
  }
}

}  // namespace
}  // namespace kir

absl::Status VerifyCuda(const kir::Kernel& kernel) {
  int64_t words = 4 + static_cast<int64_t>(kernel.sizes.size());
  for (const kir::Buffer& b : kernel.buffers) words += kir::IsGlobal(b) ? 2 : 0;
  if (8 * words > kir::kMostArgumentBytes) {
    return absl::FailedPreconditionError(Cat("kernel ", Quoted(kernel.name), ": ", 8 * words,
                                             " bytes of arguments; a CUDA launch takes ",
                                             kir::kMostArgumentBytes));
  }
  return Prefixed(Cat("kernel ", Quoted(kernel.name), ": "), kir::OneLane(kernel.body));
}

std::string PrintCudaKernel(const kir::Kernel& kernel, const v1::Target&) {
  kir::CudaArithmetic arithmetic;
  kir::CudaMemory memory(kernel);
  kir::CodeText code;
  code.Directive("#include \"athanor/device.h\"");
  kir::DefineArguments(kernel, &code);
  code.Open("KERNEL(athanor_kernel)");
  kir::NameArguments(kernel, &code);
  code.Open("for (i64 g = first(a); g < a.items; g += teams(a))");
  kir::PrintBody(kernel, {arithmetic, memory, kir::LoopHint}, &code);
  code.Close();
  code.Close();
  return code.text();
}

CudaSource CudaSourceOf(std::string_view text, std::string_view arch) {
  return {.source = std::string(text),
          .headers = {{"athanor/device.h", kir::kDeviceHeader},
                      {"athanor/arithmetic.h", kir::kArithmeticHeader},
                      {"athanor/memory.h", kir::kMemoryHeader}},
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
