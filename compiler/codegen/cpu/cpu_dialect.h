// The CPU's spelling of KIR; private to dialect.cc and compute.cc.
//
//   CpuDialect dialect(CpuFeatures::Of(target), &kernel);
//   std::string body = PrintBody(kernel, &dialect, 4);
//   // dialect.prelude() now has the helpers that `body` calls
//
// Registers hold what memory holds: f16, bf16 and f8 are their bits (u16, u8) and are widened to
// f32 for arithmetic, so that copies, Select and Bitcast keep every bit. A bool is an i32: 0 or 1,
// in vectors 0 or -1, as comparisons of f32 return and selections take.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_CPU_DIALECT_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_CPU_DIALECT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compiler/codegen/cpu/prelude.h"
#include "compiler/codegen/printer.h"

namespace athanor::kir {

// Return the C element of a register, and of memory.
std::string RegisterElement(DType dtype);
std::string MemoryElement(DType dtype);
inline bool IsNarrow(DType dtype) { return IsFloat(dtype) && DTypeBytes(dtype) < 4; }

class CpuDialect : public Dialect {
 public:
  CpuDialect(const CpuFeatures& features, const Kernel* kernel)
      : kernel_(*kernel), prelude_(features) {}

  std::string TypeName(Type type) override;
  std::string Constant(const Scalar& value) override;
  std::string Compute(const Stmt& stmt, absl::Span<const Operand> args) override;
  std::string Fma(Type type, absl::Span<const Operand> args) override;
  std::string Broadcast(Type type, const Operand& scalar) override;
  std::string Reduce(Op op, const Operand& vector) override;
  std::string Load(const Access& access) override;
  std::string Store(const Access& access, const Operand& value) override;
  std::string Prefetch(int buffer, const std::string& index) override;
  std::string Sort(Type key, absl::Span<const MatrixOperand> rows,
                   const std::string& elements) override;
  std::string Gemm(Type type, absl::Span<const MatrixOperand> matrices,
                   absl::Span<const std::string> extents) override;
  std::string LaneMask(const std::string& count, int lanes) override;
  std::string CheckIndex(const Operand& index, const std::string& extent, const std::string& count,
                         const std::optional<Operand>& predicate) override;
  std::string RandomBits(const Operand& index, const Operand& seed) override;
  std::string Lane(int lanes) override;
  std::string FloorDivide(const std::string& a, const std::string& b, int lanes,
                          std::optional<int64_t> divisor, bool natural) override;
  std::string Extreme(bool max, const std::string& a, const std::string& b, int lanes) override;
  std::string LoopHint(AxisRole role, bool vectors) override;

  const Prelude& prelude() const { return prelude_; }

 private:
  // Active lanes of an access, in the cheapest form.
  struct Active {
    enum { kAll, kScalar, kCount, kMask } kind = kAll;
    std::string text;  // an i32, an i64 or an i32xN
  };
  Active ActiveOf(const std::string& count, const std::optional<Operand>& predicate, int lanes);
  std::string MaskOf(const Active& active, int lanes);
  std::string LoadVector(const Access& access, const std::string& element);
  std::string StoreVector(const Access& access, const std::string& element,
                          const std::string& value);

  // Applies `op` of dtype to registers.
  std::string Binary(Op op, DType dtype, int lanes, absl::Span<const Operand> args);
  std::string FloatOp(Op op, const std::string& element, int lanes, absl::Span<const Operand> args);
  std::string IntegerOp(Op op, const std::string& element, int lanes,
                        absl::Span<const Operand> args);
  std::string BoolOp(Op op, int lanes, absl::Span<const Operand> args);
  std::string Shift(const std::string& element, int lanes, bool left,
                    absl::Span<const Operand> args);
  std::string LessThan(const Operand& a, const Operand& b);
  std::string Select(const Stmt& stmt, absl::Span<const Operand> args);
  std::string Bitcast(DType to, const Operand& arg);
  std::string Cast(DType to, const Operand& arg);
  std::string CastFromBool(DType to, int lanes, const std::string& x);
  std::string CastToBool(const Operand& arg);
  std::string CastToFloat(DType to, const Operand& arg);
  std::string Convert(const std::string& to, int lanes, const std::string& x);
  // Converts a comparison's result with lanes of `bits` to a bool register, and back.
  std::string AsBool(int bits, int lanes, const std::string& comparison);
  std::string AsMask(int bits, int lanes, const std::string& condition);
  // Widens an operand to f32 or f64; narrows such a result to `dtype`.
  std::string Widened(const Operand& arg);
  std::string Narrowed(DType dtype, int lanes, const std::string& x);

  const Kernel& kernel_;
  Prelude prelude_;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_CPU_DIALECT_H_
