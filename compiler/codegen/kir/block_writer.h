// Structure of a kernel that is being written: blocks, the registers and loop variables defined in
// them, what is known about their ranges, and the values that a block has computed already.
//
//   writer.For(0, n, 16, [&](const Expr& i) { ... });  // statements written now are the loop's
//
// Emitter (emitter.h) adds the statements, one function for each opcode.
#ifndef ATHANOR_COMPILER_CODEGEN_KIR_BLOCK_WRITER_H_
#define ATHANOR_COMPILER_CODEGEN_KIR_BLOCK_WRITER_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "compiler/codegen/kir/kir.h"

namespace athanor::kir {

class BlockWriter {
 public:
  // `body` gets the index of lane 0 and how many lanes are active; all if absent.
  using VectorBody = absl::FunctionRef<void(const Expr&, const std::optional<Expr>& count)>;
  // It also gets the vector's number within its step.
  using UnrolledBody =
      absl::FunctionRef<void(const Expr&, const std::optional<Expr>& count, int part)>;

  explicit BlockWriter(Bounds bounds) : bounds_(std::move(bounds)) { blocks_.push_back(&body_); }
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  void For(const Expr& begin, const Expr& end, int64_t step,
           absl::FunctionRef<void(const Expr&)> body, AxisRole role = AxisRole::kSerial);
  void If(Var condition, absl::FunctionRef<void()> body);
  // Loops over [begin, end) in vectors of `lanes`: whole vectors, then one masked remainder. `body`
  // is called once or twice. If end - begin is constant and divisible, there is no remainder.
  void VectorFor(const Expr& begin, const Expr& end, int lanes, VectorBody body);
  // Does the same with `unroll` vectors per step, as long as there are so many. The remainder's
  // part is 0.
  void VectorFor(const Expr& begin, const Expr& end, int lanes, int unroll, UnrolledBody body);
  // Runs `body` while the loop variable is known to be in [lower, upper], as inside an If that
  // tests it.
  void Narrow(const std::string& loop, const Expr& lower, const Expr& upper,
              absl::FunctionRef<void()> body);
  // Runs `body` before the outermost loops and conditions that define nothing `e` uses. Its
  // statements must be harmless where those do not run.
  void Hoist(const Expr& e, absl::FunctionRef<void()> body);

  // From here on, statements say which of their index expressions fit into i32.
  void NarrowIndices() { narrows_ = true; }

  const Type& type(Var v) const { return types_[v]; }
  // Returns the part of an index that differs by lane: the lane's number, 0 for a scalar.
  static Expr Lane(int lanes) { return lanes == 1 ? Expr(0) : Expr::Symbol(kLane); }
  static Expr Symbol(Var v) { return Expr::Symbol("v" + std::to_string(v)); }
  bool UsesLane(const Expr& e) const { return Pattern(e) != LanePattern::kUniform; }
  LanePattern Pattern(const Expr& e) const { return LanePatternOf(e, vectors_); }
  // Reports whether `e` uses only loops, sizes and places, so that its bounds hold whatever the
  // data.
  bool IsPlace(const Expr& e) const;
  Bounds& bounds() { return bounds_; }
  const Bounds& bounds() const { return bounds_; }
  Expr Simplify(const Expr& e) const { return bounds_.Simplify(e); }

  // Values remembered for the current block and those inside it.
  std::optional<Var> Recall(const std::string& key) const;
  void Remember(const std::string& key, Var value) { memo_.back()[key] = value; }

 protected:
  void Append(Stmt stmt);
  // Gives the statement a new register for its result.
  Var Result(Stmt stmt, Type type);
  // Returns the value remembered as `key`, or the statement's new result.
  Var Once(const std::string& key, Stmt stmt, Type type);
  // Declares that a register holds a place, in [0, extent).
  void SetPlace(Var v, const Expr& extent);
  // Moves what was written into `kernel`, and returns the names of its registers and loops.
  std::set<std::string> MoveInto(Kernel* kernel);

 private:
  // Runs `body` in a new block. Blocks are built apart and appended when they close, because
  // statements move as the block around them grows.
  std::vector<Stmt> Block(absl::FunctionRef<void()> body);

  std::vector<Stmt> body_;
  Bounds bounds_;
  std::vector<std::vector<Stmt>*> blocks_;
  std::vector<std::map<std::string, Var>> memo_{1};
  std::vector<Type> types_;
  std::vector<std::string> vectors_;  // i64 registers that differ by lane
  // Number of blocks around all uses of a loop variable or register.
  std::map<std::string, size_t, std::less<>> depth_;
  std::set<std::string> places_;
  int loops_ = 0;
  bool narrows_ = false;
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_KIR_BLOCK_WRITER_H_
