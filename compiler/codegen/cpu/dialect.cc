#include "compiler/codegen/cpu/dialect.h"

#include "compiler/codegen/cpu/arithmetic.h"
#include "compiler/codegen/cpu/memory.h"
#include "compiler/codegen/cpu/prelude.h"
#include "compiler/codegen/print/printer.h"

namespace athanor {
namespace kir {
namespace {

std::string LoopHint(AxisRole role, bool vectors) {
  if (role == AxisRole::kUnroll) return "#pragma clang loop unroll(full)";
  // Unrolling a loop over many accumulators would spill them.
  return vectors ? "#pragma clang loop unroll(disable)" : "";
}

// Names the arguments: sN, and bN, of which scratch is laid out as Kernel::ScratchBytes counts it.
void DeclareArguments(const Kernel& kernel, CodeText* code) {
  for (size_t i = 0; i < kernel.sizes.size(); ++i) {
    code->Line("const i64 s", i, " = sizes[", i, "];");
    code->Line("__builtin_assume(s", i, " >= 0);");
  }
  int64_t offset = 0;
  int global = 0;
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const Buffer& b = kernel.buffers[i];
    const std::string element = Cat(MemoryElement(b.dtype), "u");
    if (b.space == Space::kGlobal) {
      code->Line(b.written ? "" : "const ", element, "* const b", i, " = buffers[", global++, "];");
    } else {
      code->Line(element, "* const b", i, " = (", element, "*)((u8*)scratch + ", offset, ");");
      offset += b.ScratchBytes();
    }
  }
}

}  // namespace
}  // namespace kir

std::string PrintCpuKernel(const kir::Kernel& kernel, const v1::Target& target) {
  kir::Prelude prelude(kir::CpuFeatures::Of(target));
  kir::CpuArithmetic arithmetic(&prelude);
  kir::CpuMemory memory(kernel, &prelude);
  kir::CodeText code;
  code.Open(
      "void athanor_kernel(void* const* buffers, const i64* sizes, i64 begin, i64 end, void* "
      "scratch,\n"
      "                    struct KernelError* error)");
  kir::DeclareArguments(kernel, &code);
  code.Directive("#pragma clang loop unroll(disable)");
  code.Open("for (i64 g = begin; g < end; ++g)");
  kir::PrintBody(kernel, {arithmetic, memory, kir::LoopHint}, &code);
  code.Close();
  code.Close();
  const std::string text = Cat("#define FN static inline __attribute__((always_inline))\n",
                               "struct KernelError {\n  i64 code, index, extent, item;\n};\n",
                               prelude.text(), code.text());
  return Cat(kir::Typedefs(text), text);
}

}  // namespace athanor
