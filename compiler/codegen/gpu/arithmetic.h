// Spells types, constants and the op table's elementwise ops in the C++ of GPUs, for scalars of
// every dtype. The functions that it calls are in arithmetic.h.txt and device.h.txt.
#ifndef ATHANOR_COMPILER_CODEGEN_GPU_ARITHMETIC_H_
#define ATHANOR_COMPILER_CODEGEN_GPU_ARITHMETIC_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "compiler/codegen/print/printer.h"

namespace athanor::kir {

// A register has one element of each thread: a vector of a team's lanes is one too. REQUIRES:
// VerifyTeam.
class GpuArithmetic : public Arithmetic {
 public:
  explicit GpuArithmetic(int team) : team_(team) {}

  std::string TypeName(Type type) override;
  std::string Constant(const Scalar& value) override;
  std::string Compute(const Stmt& stmt, absl::Span<const Operand> args) override;
  std::string Fma(Type type, absl::Span<const Operand> args) override;
  std::string Broadcast(Type type, const Operand& scalar) override;
  std::string Reduce(Op op, const Operand& vector) override;
  std::string LaneMask(const std::string& count, int lanes) override;
  std::string RandomBits(const Operand& index, const Operand& seed) override;
  std::string Mma(absl::Span<const Operand> args) override;
  std::string Slot(const Operand& sums, int64_t slot) override;
  std::string Lane(int lanes) override;
  std::string FloorDivide(const std::string& a, const std::string& b, int lanes,
                          std::optional<int64_t> divisor, bool natural) override;
  std::string Extreme(bool max, const std::string& a, const std::string& b, int lanes) override;

 protected:
  // Spells what `op` makes of x and y, each a register of the dtype.
  static std::string Combine(Op op, DType dtype);

  const int team_;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_GPU_ARITHMETIC_H_
