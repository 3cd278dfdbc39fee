// Spells conversions between the representations of values: narrow floats and their f32, bits,
// casts exactly as compiler/ir/value/tensor.h has them.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_CONVERT_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_CONVERT_H_

#include <string>

#include "compiler/codegen/cpu/prelude.h"
#include "compiler/codegen/print/printer.h"

namespace athanor::kir {

std::string Cast(Prelude& p, DType to, const Operand& arg);
std::string Bitcast(Prelude& p, DType to, const Operand& arg);
// Widens an operand to f32 or f64; narrows such a result to `dtype`, to nearest even.
std::string Widened(Prelude& p, const Operand& arg);
std::string Narrowed(Prelude& p, DType dtype, int lanes, const std::string& x);

// Return the names of helpers. Bits: U(T), the same bits of a scalar, both of one width.
std::string Bits(Prelude& p, const std::string& to, const std::string& from);
// u16(u16 a, u16 b, u16 c): a * b + c of f16 or bf16, rounded once.
std::string NarrowFma(Prelude& p, DType dtype, int lanes);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_CONVERT_H_
