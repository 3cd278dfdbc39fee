// Writes KIR statement by statement: one function for each opcode, in the blocks that BlockWriter
// keeps. Broadcasts scalars where a vector is needed, and never computes the same value twice in a
// block.
//
//   Emitter e;
//   int out = e.Global(DType::kF32, /*written=*/true);
//   e.For(0, n, 16, [&](const Expr& i) {
//     e.Store(out, i + Expr::Symbol(kLane), e.Broadcast(e.Const(one), 16), {});
//   });
//
// Not thread-safe; one per kernel.
#ifndef ATHANOR_COMPILER_CODEGEN_KIR_EMITTER_H_
#define ATHANOR_COMPILER_CODEGEN_KIR_EMITTER_H_

#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/kir/block_writer.h"
#include "compiler/codegen/kir/kir.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::kir {

// Selects the lanes that compute, and whose loads and stores touch memory.
struct Mask {
  std::optional<Expr> count;  // lanes [0, count) of the current vector; all if absent
  Var predicate = kNoVar;
  bool may_be_empty = false;  // count may be 0 or less

  // A scalar has no lanes to count, only to be there for.
  std::optional<Expr> CountFor(int lanes) const {
    return lanes > 1 || may_be_empty ? count : std::nullopt;
  }
};

class Emitter : public BlockWriter {
 public:
  using BlockWriter::BlockWriter;

  int Global(DType dtype, bool written);
  int Launch(DType dtype, int64_t elements);
  int Counters(int64_t elements);  // for LastTicket
  int Scratch(DType dtype, int64_t elements);

  Var Const(const Scalar& value);
  Var Float(DType dtype, double value) { return Const(Scalar::Float(dtype, value)); }
  // i64; `lanes` lanes if the value differs by lane, else 1
  Var Index(const Expr& value, int lanes);
  Var Load(int buffer, const Expr& index, int lanes, const Mask& mask);
  void Store(int buffer, const Expr& index, Var value, const Mask& mask);
  void Prefetch(int buffer, const Expr& index);
  void Gemm(const Matrix& result, const Matrix& left, const Matrix& right, const Expr& rows,
            const Expr& columns, const Expr& sums);
  // Calls a GPU's library; the only statement of its kernel. `bias`: a buffer, or -1.
  void Call(const Matrix& result, const Matrix& left, const Matrix& right, int bias,
            const std::vector<Expr>& extents, const std::vector<int64_t>& ways, int proposal);
  // Sorts the first `count` elements of the buffers `keys` and `places`; the other two are scratch
  // like them.
  void Sort(int keys, int places, int other_keys, int other_places, const Expr& count);
  Var Compute(Op op, DType dtype, std::vector<Var> args, bool shift_left = false);
  Var Cast(Var value, DType dtype);
  Var Add(Var a, Var b);
  Var Fma(Var a, Var b, Var c);
  Var Broadcast(Var value, int lanes);
  Var Reduce(Op op, Var value);
  Var LaneMask(const Expr& count, int lanes);
  Var And(Var a, Var b);  // kNoVar counts as true
  Var CheckIndex(Var index, const Expr& extent, const Mask& mask);
  Var RandomBits(Var index, Var seed);
  // Loads a fragment from scratch; for teams of a block.
  Var Fragment(const Matrix& from, Part part);
  Var Sums(Var scalar);  // a fragment that has the value everywhere
  Var Mma(Var left, Var right, Var sums);
  Var Slot(Var sums, int slot);
  // Lets each thread of a block begin to copy `elements` from its `source`, or zeros where the
  // predicate, if there is one, is false.
  void Copy(int to, const Expr& index, int from, const Expr& source, int elements, Var predicate);
  void Commit();
  // Waits until at most `groups` of copies are under way, and for the team, to which it matters.
  void Wait(int groups);
  // Draws the counter buffer[index], which `teams` teams draw. Returns a bool: is it the last one?
  Var LastTicket(int counters, const Expr& index, int64_t teams);
  Var Mutable(Var value);
  void Assign(Var mutable_var, Var value);
  // Returns `value`, in [0, extent), as a register, so that its users need not divide again.
  Expr Coordinate(const Expr& value, const Expr& extent);
  // Renames dims to s0, s1, ... in order of first use and returns the kernel.
  Kernel Finish(std::string name, const Expr& grid) &&;

 private:
  int AddBuffer(const Buffer& buffer);

  Kernel kernel_;  // without its body until Finish
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_KIR_EMITTER_H_
