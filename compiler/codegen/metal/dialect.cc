#include "compiler/codegen/metal/dialect.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/gpu/arithmetic.h"
#include "compiler/codegen/gpu/frame.h"
#include "compiler/codegen/gpu/memory.h"
#include "compiler/codegen/print/printer.h"
#include "compiler/codegen/print/spelling.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace kir {
namespace {

constexpr char kDeviceHeader[] =
#include "compiler/codegen/metal/device.inc"
    ;
constexpr char kArithmeticHeader[] =
#include "compiler/codegen/gpu/arithmetic.inc"
    ;
constexpr char kMemoryHeader[] =
#include "compiler/codegen/gpu/memory.inc"
    ;

// Memory of a threadgroup.
constexpr int64_t kMostSharedBytes = 32 << 10;

// C++14 has no hexadecimal literals of floats, and Metal no expressions of functions: floats are
// their bits, and what a reduction combines is a struct before the kernel.
class MetalArithmetic : public GpuArithmetic {
 public:
  explicit MetalArithmetic(int team) : GpuArithmetic(team) {}

  std::string Constant(const Scalar& value) override {
    if (!IsFloat(value.dtype) || IsNarrow(value.dtype)) return GpuArithmetic::Constant(value);
    return Call("as<f32>", {LiteralOfBits(value)});
  }

  std::string Reduce(Op op, const Operand& vector) override {
    const std::string type = TypeName(vector.type);
    const std::string text = Cat("static FN ", type, " of(", type, " x, ", type, " y) { return ",
                                 Combine(op, vector.type.dtype), "; }");
    size_t i = std::find(combined_.begin(), combined_.end(), text) - combined_.begin();
    if (i == combined_.size()) combined_.push_back(text);
    return Call(Cat("reduce<Combine", i, ", ", team_, ">"), {vector.text, "lane", "memory"});
  }

  // Returns what reductions combine by: number i is that of struct Combine<i>.
  const std::vector<std::string>& combined() const { return combined_; }

 private:
  std::vector<std::string> combined_;
};

absl::Status RefuseF64(const std::string& what) {
  return absl::UnimplementedError(Cat(what, " is f64, which Metal does not have"));
}

absl::Status NoF64(const std::vector<Stmt>& body) {
  for (const Stmt& s : body) {
    if (s.type.dtype == DType::kF64) {
      const std::string op = s.opcode == Opcode::kCompute ? Cat(" (", OpName(s.op), ")") : "";
      if (s.result != kNoVar) return RefuseF64(Cat("v", s.result, op));
      return RefuseF64(Cat("an access to b", s.buffer));
    }
    RETURN_IF_ERROR(NoF64(s.body));
  }
  return absl::OkStatus();
}

absl::Status NoF64(const Kernel& kernel) {
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    if (kernel.buffers[i].dtype == DType::kF64) return RefuseF64(Cat("b", i));
  }
  return NoF64(kernel.body);
}

// Says which team this is, and of how many.
void FindTeam(const Kernel& kernel, CodeText* code) {
  if (kernel.team == 1) return code->Line("const i64 first = place, teams = places;");
  const int64_t bytes = SharedBytes(kernel, kMostSharedBytes);
  const int64_t words = bytes * (kBlockThreads / kernel.team) / 8;
  code->Line("SHARED u64 memory[", std::max<int64_t>(words, 1), "];");
  if (kernel.team == kWaveThreads) {
    code->Line("const i64 lane = at_lane, part = i64(wave) * ", bytes, ";");
    code->Line("const i64 first = i64(block) * waves + wave, teams = i64(blocks) * waves;");
  } else {
    code->Line("const i64 lane = i64(wave) * ", kWaveThreads, " + at_lane, part = 0;");
    code->Line("const i64 first = block, teams = blocks;");
  }
}

// Names the arguments: sN, and bN, of which scratch is laid out as Kernel::ScratchBytes counts it.
void NameArguments(const Kernel& kernel, CodeText* code) {
  for (size_t i = 0; i < kernel.sizes.size(); ++i) code->Line("const i64 s", i, " = a.s", i, ";");
  const bool shared = SharesScratch(kernel, kMostSharedBytes);
  int64_t offset = shared ? ReservedBytes(kernel) : 0;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& b = kernel.buffers[i];
    if (IsArgument(b)) {
      code->Line("const Buffer b", i, " = a.b", i, ";");
      continue;
    }
    code->Line("const ", shared ? "Shared" : "Buffer", " b", i, " = {",
               shared ? "(threadgroup u8*)memory + part" : "a.workspace + first * a.stride", " + ",
               offset, ", ", b.elements * DTypeBytes(b.dtype), "};");
    offset += b.ScratchBytes();
  }
}

}  // namespace
}  // namespace kir

absl::Status VerifyMetal(const kir::Kernel& kernel) {
  const std::string name = Cat("kernel ", Quoted(kernel.name), ": ");
  RETURN_IF_ERROR(Prefixed(name, kir::NoF64(kernel)));
  if (kernel.team > 1 && kernel.team < kir::kWaveThreads) {
    return absl::UnimplementedError(
        Cat(name, "a team of ", kernel.team, " threads is a part of a SIMD-group, for which Metal ",
            "has no barrier; a team has 1, ", kir::kWaveThreads, " or ", kir::kBlockThreads));
  }
  if (kir::HasMatrices(kernel.body)) {
    return absl::UnimplementedError(
        Cat(name, "fragments and copies beside the threads are not printed as Metal; such tiles ",
            "are CUDA's"));
  }
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    if (kernel.buffers[i].space != kir::Space::kLaunch) continue;
    return absl::UnimplementedError(
        Cat(name, "b", i, " is memory of the launch; sums that teams share by tickets are not ",
            "printed as Metal, but as CUDA"));
  }
  return Prefixed(name, kir::VerifyTeam(kernel, "Metal"));
}

int64_t MetalWorkspaceBytes(const kir::Kernel& kernel) {
  return kir::SharesScratch(kernel, kir::kMostSharedBytes) ? 0 : kernel.ScratchBytes();
}

std::string PrintMetalKernel(const kir::Kernel& kernel) {
  kir::MetalArithmetic arithmetic(kernel.team);
  kir::GpuMemory memory(kernel);
  kir::CodeText code;
  code.Open(kernel.team > 1 ? "TEAM_KERNEL" : "KERNEL", "(athanor_kernel)");
  kir::FindTeam(kernel, &code);
  kir::NameArguments(kernel, &code);
  code.Open("for (i64 g = first; g < a.items; g += teams)");
  kir::PrintBody(kernel, {arithmetic, memory, kir::UnrollHint}, &code);
  code.Close();
  code.Close();
  kir::CodeText head;
  head.Directive("#include \"athanor/device.h\"");
  kir::DefineArguments(kernel, "device ", &head);
  for (size_t i = 0; i < arithmetic.combined().size(); ++i) {
    head.Line("struct Combine", i, " {");
    head.Line("  ", arithmetic.combined()[i]);
    head.Line("};");
  }
  return head.text() + code.text();
}

std::string MetalSourceOf(std::string_view text) {
  const std::string device = absl::StrReplaceAll(
      kir::kDeviceHeader, {{"#include \"athanor/arithmetic.h\"\n", kir::kArithmeticHeader},
                           {"#include \"athanor/memory.h\"\n", kir::kMemoryHeader}});
  return absl::StrReplaceAll(std::string(text), {{"#include \"athanor/device.h\"\n", device}});
}

}  // namespace athanor
