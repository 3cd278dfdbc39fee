#include "compiler/codegen/cuda/memory.h"

#include <vector>

#include "compiler/codegen/spelling.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

// Returns the condition under which an access takes place; empty: always.
std::string ActiveOf(const std::string& count, const std::optional<Operand>& predicate) {
  if (count.empty()) return predicate ? predicate->text : "";
  const std::string counted = Infix(count, ">", "0");
  return predicate ? Infix(counted, "&", predicate->text) : counted;
}

}  // namespace

std::string CudaMemory::Load(const Access& access) {
  const bool is_bool = access.type.dtype == DType::kBool;
  const std::string value = Cat(Call(Cat("load<", MemoryElement(access.type.dtype), ">"),
                                     {BufferName(access.buffer), access.index}),
                                is_bool ? " != 0" : "");
  const std::string active = ActiveOf(access.count, access.predicate);
  return active.empty() ? value : Cat(active, " ? ", value, " : 0");
}

std::string CudaMemory::Store(const Access& access, const Operand& value) {
  const std::string store = Call(Cat("store<", MemoryElement(access.type.dtype), ">"),
                                 {BufferName(access.buffer), access.index, value.text});
  const std::string active = ActiveOf(access.count, access.predicate);
  return active.empty() ? store : Cat("if (", active, ") ", store);
}

std::string CudaMemory::Prefetch(int buffer, const std::string& index) {
  return Call(Cat("prefetch<", MemoryElement(kernel_.buffers[buffer].dtype), ">"),
              {BufferName(buffer), index});
}

// Names a function that no device has, so that the kernel does not compile.
std::string CudaMemory::Gemm(Type, absl::Span<const MatrixOperand>, absl::Span<const std::string>) {
  return "no_library_multiplies_inside_kernels()";
}

std::string CudaMemory::Sort(Type key, absl::Span<const MatrixOperand> rows,
                             const std::string& elements) {
  std::vector<std::string> args;
  for (const MatrixOperand& row : rows) {
    args.push_back(Cat("Row{", BufferName(row.buffer), ", ", row.index, "}"));
  }
  args.push_back(elements);
  return Call(Cat("sort<", MemoryElement(key.dtype), ", ",
                  MemoryElement(kernel_.buffers[rows[1].buffer].dtype), ">"),
              args);
}

std::string CudaMemory::CheckIndex(const Operand& index, const std::string& extent,
                                   const std::string& count,
                                   const std::optional<Operand>& predicate) {
  const std::string active = ActiveOf(count, predicate);
  return Call("check", {"a.error", "g", index.text, extent, active.empty() ? "1" : active});
}

}  // namespace athanor::kir
