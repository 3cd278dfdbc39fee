// Spells loads, stores and whatever else touches the buffers of a CPU kernel in C.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_MEMORY_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_MEMORY_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "compiler/codegen/cpu/prelude.h"
#include "compiler/codegen/print/printer.h"

namespace athanor::kir {

class CpuMemory : public Memory {
 public:
  // Defines the helpers it calls in `prelude`. Both must outlive it.
  CpuMemory(const Kernel& kernel, Prelude* prelude) : kernel_(kernel), prelude_(*prelude) {}

  std::string Load(const Access& access) override;
  std::string Store(const Access& access, const Operand& value) override;
  std::string Prefetch(int buffer, const std::string& index) override;
  std::string Gemm(Type type, absl::Span<const MatrixOperand> matrices,
                   absl::Span<const std::string> extents) override;
  std::string Sort(Type key, absl::Span<const MatrixOperand> rows,
                   const std::string& elements) override;
  std::string CheckIndex(const Operand& index, const std::string& extent, const std::string& count,
                         const std::optional<Operand>& predicate) override;

 private:
  // Active lanes of an access, in the cheapest form.
  struct Active {
    enum { kAll, kScalar, kCount, kMask } kind = kAll;
    std::string text;  // an i32, an i64 or an i32xN
  };
  Active ActiveOf(const std::string& count, const std::optional<Operand>& predicate, int lanes);
  std::string MaskOf(const Active& active, int lanes);
  std::string LoadVector(const Access& access, const std::string& element);
  std::string LoadUniform(const Access& access, const std::string& element, const Active& active);
  std::string StoreVector(const Access& access, const std::string& element,
                          const std::string& value);

  const Kernel& kernel_;
  Prelude& prelude_;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_MEMORY_H_
