// Spells loads, stores and whatever else touches the buffers of a GPU kernel. The functions that
// it calls are in memory.h.txt and device.h.txt.
#ifndef ATHANOR_COMPILER_CODEGEN_GPU_MEMORY_H_
#define ATHANOR_COMPILER_CODEGEN_GPU_MEMORY_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "compiler/codegen/print/printer.h"

namespace athanor::kir {

// In a team each thread moves its lane of a vector, every thread loads scalars, and the first one
// stores them. REQUIRES: VerifyTeam.
class GpuMemory : public Memory {
 public:
  // `kernel` must outlive it.
  explicit GpuMemory(const Kernel& kernel) : kernel_(kernel) {}

  std::string Load(const Access& access) override;
  std::string Store(const Access& access, const Operand& value) override;
  std::string Prefetch(int buffer, const std::string& index) override;
  std::string Gemm(Type type, absl::Span<const MatrixOperand> matrices,
                   absl::Span<const std::string> extents) override;
  std::string Sort(Type key, absl::Span<const MatrixOperand> rows,
                   const std::string& elements) override;
  std::string CheckIndex(const Operand& index, const std::string& extent, const std::string& count,
                         const std::optional<Operand>& predicate) override;
  std::string Barrier() override;
  std::string Fragment(Type type, const MatrixOperand& from) override;
  std::string Copy(const Access& to, const MatrixOperand& from, int64_t elements) override;
  std::string Ticket(int buffer, const std::string& index, int64_t teams) override;
  std::string Commit() override;
  std::string Wait(int64_t groups) override;

 private:
  // Returns `name`, with the team's threads behind it if they are several.
  std::string OfTeam(const char* name) const;
  // Returns the condition under which a thread does what its team does once; empty: always.
  std::string FirstOnly(int lanes) const;
  const Kernel& kernel_;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_GPU_MEMORY_H_
