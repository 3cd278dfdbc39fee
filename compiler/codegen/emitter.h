// Writes KIR statement by statement. Allocates registers and loop variables, tracks what is known
// about their ranges, broadcasts scalars where a vector is needed, and never computes the same
// value twice within a scope.
//
//   Emitter e;
//   int out = e.Global(DType::kF32, /*written=*/true);
//   e.For(0, n, 16, [&](const Expr& i) {
//     e.Store(out, i + Expr::Symbol(kLane), e.Broadcast(e.Const(one), 16), {});
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

// Selects the lanes that compute, and whose loads and stores touch memory.
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
  // i64; `lanes` lanes if the value differs by lane, else 1
  Var Index(const Expr& value, int lanes);
  Var Load(int buffer, const Expr& index, int lanes, const Mask& mask);
  void Store(int buffer, const Expr& index, Var value, const Mask& mask);
  void Prefetch(int buffer, const Expr& index);
  void Gemm(const Matrix& result, const Matrix& left, const Matrix& right, const Expr& rows,
            const Expr& columns, const Expr& sums);
  // Sorts the first `count` elements of the buffers `keys` and `places`; the other two are scratch
  // like them.
  void Sort(int keys, int places, int other_keys, int other_places, const Expr& count);
  Var Compute(Op op, DType dtype, std::vector<Var> args, bool shift_left = false);
  Var Cast(Var value, DType dtype);
  Var Fma(Var a, Var b, Var c);
  Var Broadcast(Var value, int lanes);
  Var Reduce(Op op, Var value);
  Var LaneMask(const Expr& count, int lanes);
  Var And(Var a, Var b);  // kNoVar counts as true
  Var CheckIndex(Var index, const Expr& extent, const Mask& mask);
  Var RandomBits(Var index, Var seed);
  Var Mutable(Var value);
  void Assign(Var mutable_var, Var value);
  void For(const Expr& begin, const Expr& end, int64_t step,
           absl::FunctionRef<void(const Expr&)> body, AxisRole role = AxisRole::kSerial);
  void If(Var condition, absl::FunctionRef<void()> body);
  // Runs `body` while the loop variable is known to be in [lower, upper], as inside an If that
  // tests it.
  void Narrow(const std::string& loop, const Expr& lower, const Expr& upper,
              absl::FunctionRef<void()> body);
  // Runs `body` before the outermost loops and conditions that define nothing `e` uses. Its
  // statements must be harmless where those do not run.
  void Hoist(const Expr& e, absl::FunctionRef<void()> body);
  // Returns `value`, in [0, extent), as a register, so that its users need not divide again.
  Expr Coordinate(const Expr& value, const Expr& extent);
  // Reports whether `e` uses only loops, sizes and Coordinates, so that its bounds hold whatever
  // the data.
  bool IsPlace(const Expr& e) const;

  // Loops over [begin, end) in vectors of `lanes`: whole vectors, then one masked remainder. `body`
  // gets the index of lane 0 and the mask; it is called once or twice. If end - begin is constant
  // and divisible, there is no remainder.
  void VectorFor(const Expr& begin, const Expr& end, int lanes,
                 absl::FunctionRef<void(const Expr&, const std::optional<Expr>& count)> body);
  // Does the same with `unroll` vectors per step, as long as there are so many. `body` also gets
  // the vector's number within its step, 0 in the remainder.
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

  // Renames dims to s0, s1, ... in order of first use and returns the kernel.
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
  // Number of blocks around all uses of a loop variable or register.
  std::map<std::string, size_t, std::less<>> depth_;
  std::set<std::string> coordinates_;
  int loops_ = 0;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_EMITTER_H_
