// Prints the body of a kernel as text of the C family. This walk knows statements, loops, scopes
// and index arithmetic, which are alike in C, CUDA C++ and MSL; a dialect spells what is computed
// on registers (Arithmetic) and what touches buffers (Memory).
//
//   PrintBody(kernel, {arithmetic, memory, LoopHint}, &code);
//
// The text names register N "vN", buffer N "bN", size N "sN", the work item "g" and loop variable
// iN "xN". It depends on the kernel and the dialect alone.
#ifndef ATHANOR_COMPILER_CODEGEN_PRINT_PRINTER_H_
#define ATHANOR_COMPILER_CODEGEN_PRINT_PRINTER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/codegen/print/c_text.h"

namespace athanor::kir {

// An argument of a statement.
struct Operand {
  std::string text;
  Type type;
  const Scalar* constant = nullptr;  // its value in every lane, if known
};

// A load or store.
struct Access {
  Type type;  // of the register
  int buffer = -1;
  enum class Pattern : uint8_t {
    kUniform,     // all lanes at `index`
    kContiguous,  // lane l at index + l
    kStrided,     // lane l at index + l * stride
    kScattered,   // lane l at index[l]
  } pattern = Pattern::kUniform;
  std::string index;   // i64: a vector if scattered, else a scalar
  std::string stride;  // i64 scalar
  int64_t step = 0;    // the stride, if known; else 0
  std::string count;   // i64 scalar: lanes below it are active; empty: all
  std::optional<Operand> predicate;
};

// A matrix of a product, or a row of a sort; see kir::Matrix.
struct MatrixOperand {
  int buffer = -1;
  std::string index, stride;  // i64 scalars
  bool transposed = false;
};

// The spellings of one language. Functions return expressions unless said otherwise. Operands are
// names of registers or expressions in parentheses, safe to repeat.

// Spells types, and what is computed on registers.
class Arithmetic {
 public:
  virtual ~Arithmetic() = default;

  virtual std::string TypeName(Type type) = 0;
  virtual std::string Constant(const Scalar& value) = 0;  // a scalar
  virtual std::string Compute(const Stmt& stmt, absl::Span<const Operand> args) = 0;
  virtual std::string Fma(Type type, absl::Span<const Operand> args) = 0;
  virtual std::string Broadcast(Type type, const Operand& scalar) = 0;
  virtual std::string Reduce(Op op, const Operand& vector) = 0;
  virtual std::string LaneMask(const std::string& count, int lanes) = 0;
  virtual std::string RandomBits(const Operand& index, const Operand& seed) = 0;
  // Spells fragments: products and sums of operands, and a thread's element. Only devices with
  // matrix instructions have them; elsewhere they name functions that there are not.
  virtual std::string Mma(absl::Span<const Operand>) { return "no_matrix_is_multiplied_here()"; }
  virtual std::string Slot(const Operand&, int64_t) { return "no_fragment_has_slots_here()"; }

  // Index arithmetic, in i64 with `lanes` lanes, or in i32 if the statement is narrow. Lane is 0,
  // 1, 2, ... by lane.
  virtual std::string Lane(int lanes) = 0;
  // `divisor`: the value of `b`, if known. `natural`: `a` is never negative.
  virtual std::string FloorDivide(const std::string& a, const std::string& b, int lanes,
                                  std::optional<int64_t> divisor, bool natural) = 0;
  virtual std::string Extreme(bool max, const std::string& a, const std::string& b, int lanes) = 0;
};

// Spells what reads and writes buffers and the error record.
class Memory {
 public:
  virtual ~Memory() = default;

  virtual std::string Load(const Access& access) = 0;
  // Return statements without ';'.
  virtual std::string Store(const Access& access, const Operand& value) = 0;
  // The address may lie outside the buffer.
  virtual std::string Prefetch(int buffer, const std::string& index) = 0;
  // `matrices`: the result and the operands. `extents`: rows, columns and sums as i64 scalars.
  virtual std::string Gemm(Type type, absl::Span<const MatrixOperand> matrices,
                           absl::Span<const std::string> extents) = 0;
  // `rows`: keys, positions that move with them, and scratch for as many of each; see
  // kir::Opcode::kSort.
  virtual std::string Sort(Type key, absl::Span<const MatrixOperand> rows,
                           const std::string& elements) = 0;
  // Returns an expression. `extent` is an i64 with as many lanes as the index; active lanes as in
  // Access.
  virtual std::string CheckIndex(const Operand& index, const std::string& extent,
                                 const std::string& count,
                                 const std::optional<Operand>& predicate) = 0;
  // Returns a statement without ';'. Only devices whose kernels have teams of several threads have
  // barriers; elsewhere it names a function that there is not.
  virtual std::string Barrier() { return "no_team_meets_here()"; }
  // Likewise. Fragment returns an expression, the others statements without ';'. `from`: a buffer
  // and an index of each thread.
  virtual std::string Fragment(Type, const MatrixOperand&) { return "no_fragments_here()"; }
  virtual std::string Copy(const Access&, const MatrixOperand& /*from*/, int64_t /*elements*/) {
    return "nothing_copies_here()";
  }
  // Returns an expression: the same number in all threads.
  virtual std::string Ticket(int /*buffer*/, const std::string& /*index*/, int64_t /*teams*/) {
    return "nothing_is_drawn_here()";
  }
  virtual std::string Commit() { return "nothing_copies_here()"; }
  virtual std::string Wait(int64_t) { return "nothing_copies_here()"; }
};

struct Dialect {
  Arithmetic& arithmetic;
  Memory& memory;
  // Returns the line before a loop, or nothing. `vectors`: the loop's body computes with vectors.
  std::string (*loop_hint)(AxisRole role, bool vectors);
};

// REQUIRES: Verify(kernel).ok().
void PrintBody(const Kernel& kernel, const Dialect& dialect, CodeText* code);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_PRINT_PRINTER_H_
