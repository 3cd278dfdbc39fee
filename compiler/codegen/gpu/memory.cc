#include "compiler/codegen/gpu/memory.h"

#include <vector>

#include "compiler/codegen/print/spelling.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

// Returns a condition that holds if both do; empty: always.
std::string Both(const std::string& a, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : Infix(a, "&", b);
}

// Returns the condition under which a thread's lane is active.
std::string ActiveOf(int lanes, const std::string& count, const std::optional<Operand>& predicate) {
  const std::string counted = count.empty() ? ""
                              : lanes > 1   ? Infix("lane", "<", count)
                                            : Infix(count, ">", "0");
  return Both(counted, predicate ? predicate->text : "");
}

// Returns the element that a thread's lane accesses.
std::string IndexOf(const Access& access) {
  switch (access.pattern) {
    case Access::Pattern::kContiguous:
      return Infix(access.index, "+", "lane");
    case Access::Pattern::kStrided:
      return Infix(access.index, "+", Infix("lane", "*", access.stride));
    default:
      return access.index;
  }
}

}  // namespace

std::string GpuMemory::Load(const Access& access) {
  const bool is_bool = access.type.dtype == DType::kBool;
  const std::string value = Cat(Call(Cat("load<", MemoryElement(access.type.dtype), ">"),
                                     {BufferName(access.buffer), IndexOf(access)}),
                                is_bool ? " != 0" : "");
  const std::string active = ActiveOf(access.type.lanes, access.count, access.predicate);
  return active.empty() ? value : Cat(active, " ? ", value, " : 0");
}

std::string GpuMemory::Store(const Access& access, const Operand& value) {
  const std::string store = Call(Cat("store<", MemoryElement(access.type.dtype), ">"),
                                 {BufferName(access.buffer), IndexOf(access), value.text});
  const std::string active = Both(FirstOnly(access.type.lanes),
                                  ActiveOf(access.type.lanes, access.count, access.predicate));
  return active.empty() ? store : Cat("if (", active, ") ", store);
}

std::string GpuMemory::Prefetch(int buffer, const std::string& index) {
  const std::string first = FirstOnly(1);
  return Cat(first.empty() ? "" : Cat("if (", first, ") "),
             Call(Cat("prefetch<", MemoryElement(kernel_.buffers[buffer].dtype), ">"),
                  {BufferName(buffer), index}));
}

// Names a function that no device has, so that the kernel does not compile.
std::string GpuMemory::Gemm(Type, absl::Span<const MatrixOperand>, absl::Span<const std::string>) {
  return "no_library_multiplies_inside_kernels()";
}

std::string GpuMemory::Sort(Type key, absl::Span<const MatrixOperand> rows,
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

std::string GpuMemory::CheckIndex(const Operand& index, const std::string& extent,
                                  const std::string& count,
                                  const std::optional<Operand>& predicate) {
  const int lanes = index.type.lanes;
  const std::string active = Both(FirstOnly(lanes), ActiveOf(lanes, count, predicate));
  return Call(OfTeam("check"), {"a.error", "g", index.text, extent, active.empty() ? "1" : active});
}

std::string GpuMemory::Barrier() { return Call(OfTeam("barrier"), {}); }

std::string GpuMemory::Fragment(Type type, const MatrixOperand& from) {
  return Call(Cat(type.part == Part::kLeft ? "load_left" : "load_right",
                  from.transposed ? "_transposed<" : "<", MemoryElement(type.dtype), ">"),
              {BufferName(from.buffer), from.index, from.stride});
}

std::string GpuMemory::Copy(const Access& to, const MatrixOperand& from, int64_t elements) {
  return Call(Cat("copy<", MemoryElement(to.type.dtype), ", ", elements, ">"),
              {BufferName(to.buffer), to.index, BufferName(from.buffer), from.index,
               to.predicate ? to.predicate->text : "1"});
}

std::string GpuMemory::Ticket(int buffer, const std::string& index, int64_t teams) {
  return Call(OfTeam("ticket"), {BufferName(buffer), index, Cat(teams)});
}

std::string GpuMemory::Commit() { return "commit_copies()"; }

std::string GpuMemory::Wait(int64_t groups) { return Cat("wait_copies<", groups, ">()"); }

std::string GpuMemory::OfTeam(const char* name) const {
  return kernel_.team > 1 ? Cat(name, "<", kernel_.team, ">") : name;
}

std::string GpuMemory::FirstOnly(int lanes) const {
  return kernel_.team > 1 && lanes == 1 ? Infix("lane", "==", "0") : "";
}

}  // namespace athanor::kir
