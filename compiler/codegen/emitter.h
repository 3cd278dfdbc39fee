// Writes KIR statement by statement: allocates registers and loop variables, keeps what is known
// about their ranges, broadcasts scalars where a vector is wanted, and never computes the same
// value twice within a scope.
//
//   Emitter e;
//   int out = e.Global(DType::kF32, /*written=*/true);
//   e.For(0, n, 16, [&](const Expr& i) { e.Store(out, i + Expr::Symbol(kLane), e.Const(one, 16));
//   });
//
// Not thread-safe; one per kernel.
#ifndef ATHANOR_COMPILER_CODEGEN_EMITTER_H_
#define ATHANOR_COMPILER_CODEGEN_EMITTER_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "compiler/codegen/kir.h"
#include "compiler/ir/graph/graph.h"

namespace athanor::kir {

// Which lanes compute, and which loads and stores may touch memory.
struct Mask {
  std::optional<Expr> count;  // lanes [0, count) of the current vector; all if absent
  Var predicate = kNoVar;
};

class Emitter {
 public:
  explicit Emitter(Bounds bounds) : bounds_(std::move(bounds)) { blocks_.push_back(&kernel_.body); }

  int Global(DType dtype, bool written);
  int Scratch(DType dtype, int64_t elements);

  Var Const(const Scalar& value);
  Var Float(DType dtype, double value) { return Const(Scalar::Float(dtype, value)); }
  Var Index(const Expr& value, int lanes);  // i64; `lanes` where the value differs by lane, else 1
  Var Load(int buffer, const Expr& index, int lanes, const Mask& mask);
  void Store(int buffer, const Expr& index, Var value, const Mask& mask);
  void Prefetch(int buffer, const Expr& index);
  void Gemm(const Matrix& result, const Matrix& left, const Matrix& right, const Expr& rows,
            const Expr& columns, const Expr& sums);
  // The first `count` elements of the buffers `keys` and `places` by way of two like them.
  void Sort(int keys, int places, int other_keys, int other_places, const Expr& count);
  Var Compute(Op op, DType dtype, std::vector<Var> args, bool shift_left = false);
  Var Cast(Var value, DType dtype);
  Var Fma(Var a, Var b, Var c);
  Var Broadcast(Var value, int lanes);
  Var Reduce(Op op, Var value);
  Var LaneMask(const Expr& count, int lanes);
  Var And(Var a, Var b);  // kNoVar is true
  Var CheckIndex(Var index, const Expr& extent, const Mask& mask);
  Var RandomBits(Var index, Var seed);
  Var Mutable(Var value);
  void Assign(Var mutable_var, Var value);
  void For(const Expr& begin, const Expr& end, int64_t step,
           absl::FunctionRef<void(const Expr&)> body, AxisRole role = AxisRole::kSerial);
  void If(Var condition, absl::FunctionRef<void()> body);
  // Runs `body` while the loop variable is known to be in [lower, upper]: inside an If that says
  // so.
  void Narrow(const std::string& loop, const Expr& lower, const Expr& upper,
              absl::FunctionRef<void()> body);
  // Runs `body` before the outermost loops and conditions that define nothing `e` uses. What it
  // does must be harmless where they do not run.
  void Hoist(const Expr& e, absl::FunctionRef<void()> body);
  // `value`, in [0, extent), as a register: what uses it divides no more.
  Expr Coordinate(const Expr& value, const Expr& extent);
  // Whether only loops, sizes and Coordinates are in `e`: its bounds hold whatever data says.
  bool IsPlace(const Expr& e) const;

  // A loop over [begin, end) in vectors of `lanes`: whole vectors, then one masked remainder;
  // `body` gets the index of lane 0 and the mask, and is called once or twice. `extent` (end -
  // begin) constant and divisible leaves the remainder out.
  void VectorFor(const Expr& begin, const Expr& end, int lanes,
                 absl::FunctionRef<void(const Expr&, const std::optional<Expr>& count)> body);
  // The same with `unroll` vectors a step, as far as there are so many; `body` also gets which of
  // them it is, 0 in the rest.
  void VectorFor(
      const Expr& begin, const Expr& end, int lanes, int unroll,
      absl::FunctionRef<void(const Expr&, const std::optional<Expr>& count, int part)> body);

  const Type& type(Var v) const { return types_[v]; }
  Expr Symbol(Var v) const { return Expr::Symbol("v" + std::to_string(v)); }
  bool UsesLane(const Expr& e) const;
  LanePattern Pattern(const Expr& e) const { return LanePatternOf(e, vectors_); }
  Bounds& bounds() { return bounds_; }
  const Bounds& bounds() const { return bounds_; }
  Expr Simplify(const Expr& e) const { return bounds_.Simplify(e); }

  // Values remembered for the current scope and those inside it.
  std::optional<Var> Recall(const std::string& key) const;
  void Remember(const std::string& key, Var value) { memo_.back()[key] = value; }

  // Renames dims to s0, s1, ... in order of first use and gives the kernel away.
  Kernel Finish(std::string name, const Expr& grid) &&;

 private:
  Stmt& Add(Opcode opcode, Type type);
  Var AddResult(Stmt stmt, Type type);
  void Scope(std::vector<Stmt>* block, absl::FunctionRef<void()> body);

  Kernel kernel_;
  Bounds bounds_;
  std::vector<std::vector<Stmt>*> blocks_;
  std::vector<std::map<std::string, Var>> memo_{1};
  std::vector<Type> types_;
  std::vector<std::string> vectors_;  // i64 registers that differ by lane
  // How many blocks are around the uses of a loop variable or register.
  std::map<std::string, size_t, std::less<>> depth_;
  std::set<std::string> coordinates_;
  int loops_ = 0;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_EMITTER_H_
