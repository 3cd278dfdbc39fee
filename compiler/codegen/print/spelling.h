// Spellings that all dialects share: names of elements, numbers, operands.
//
// Registers hold what memory holds: f16, bf16 and f8 are their bits (u16, u8) and are widened to
// f32 for arithmetic, so that copies, Select and Bitcast keep every bit. A bool is a u8 in memory
// and an i32 in registers.
#ifndef ATHANOR_COMPILER_CODEGEN_PRINT_SPELLING_H_
#define ATHANOR_COMPILER_CODEGEN_PRINT_SPELLING_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compiler/codegen/print/printer.h"

namespace athanor::kir {

// Return the C element of a register, and of memory.
std::string RegisterElement(DType dtype);
std::string MemoryElement(DType dtype);
inline bool IsNarrow(DType dtype) { return IsFloat(dtype) && DTypeBytes(dtype) < 4; }

// Returns the literal of a constant as a register holds it; nullopt for f32 and f64 that are not
// finite, which have none.
std::optional<std::string> Literal(const Scalar& value);
// Returns the literal of the bits of an f32 or f64.
std::string LiteralOfBits(const Scalar& value);

std::vector<std::string> Texts(absl::Span<const Operand> args);
// Reports whether the operand is known to be a float that is no NaN.
bool NeverNan(const Operand& x);
// Spells the operand for which the comparison holds with the other.
std::string Pick(const std::string& a, const char* comparison, const std::string& b);
// Spells an op of integers of the C type `type`, whose sums and products wrap once they are cast by
// `wrap`: "(u32)"; nullopt for divisions.
std::optional<std::string> IntegerText(Op op, const std::string& type, const std::string& wrap,
                                       absl::Span<const Operand> args);
// Returns "b2", the name of a buffer.
std::string BufferName(int buffer);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_PRINT_SPELLING_H_
