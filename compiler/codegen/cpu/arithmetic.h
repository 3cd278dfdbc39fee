// Spells types, constants and the op table's elementwise ops in C, for scalars and vectors of every
// dtype.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_ARITHMETIC_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_ARITHMETIC_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "compiler/codegen/cpu/prelude.h"
#include "compiler/codegen/print/printer.h"

namespace athanor::kir {

class CpuArithmetic : public Arithmetic {
 public:
  // Defines the helpers it calls in `prelude`, which must outlive it.
  explicit CpuArithmetic(Prelude* prelude) : prelude_(*prelude) {}

  std::string TypeName(Type type) override;
  std::string Constant(const Scalar& value) override;
  std::string Compute(const Stmt& stmt, absl::Span<const Operand> args) override;
  std::string Fma(Type type, absl::Span<const Operand> args) override;
  std::string Broadcast(Type type, const Operand& scalar) override;
  std::string Reduce(Op op, const Operand& vector) override;
  std::string LaneMask(const std::string& count, int lanes) override;
  std::string RandomBits(const Operand& index, const Operand& seed) override;
  std::string Lane(int lanes) override;
  std::string FloorDivide(const std::string& a, const std::string& b, int lanes,
                          std::optional<int64_t> divisor, bool natural) override;
  std::string Extreme(bool max, const std::string& a, const std::string& b, int lanes) override;

 private:
  // Applies `op` to registers of `type`.
  std::string Apply(Op op, Type type, absl::Span<const Operand> args);
  std::string FloatOp(Op op, const std::string& element, int lanes, absl::Span<const Operand> args);
  std::string IntegerOp(Op op, const std::string& element, int lanes,
                        absl::Span<const Operand> args);
  std::string Shift(const std::string& element, int lanes, bool left,
                    absl::Span<const Operand> args);
  std::string LessThan(const Operand& a, const Operand& b);

  Prelude& prelude_;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_ARITHMETIC_H_
