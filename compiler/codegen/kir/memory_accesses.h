// The accesses of a kernel's statements to what it writes, and which two of them may meet at one
// element.
#ifndef ATHANOR_COMPILER_CODEGEN_KIR_MEMORY_ACCESSES_H_
#define ATHANOR_COMPILER_CODEGEN_KIR_MEMORY_ACCESSES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "compiler/codegen/kir/kir.h"

namespace athanor::kir {

inline constexpr int kItems = 0;  // the loop over items
// Not carried: both accesses are in one iteration of all common loops.
inline constexpr int kNoLoop = -1;

// An access of a buffer that the kernel writes. Accesses and loops are numbered in program order;
// barriers do not count.
struct MemoryAccess {
  int buffer;
  bool store, vector;
  bool one_thread;          // only thread 0 does it
  Expr index;               // over sizes, loops' counters, lane and registers
  Expr expanded;            // the same, without registers that are an index
  std::vector<Expr> known;  // expressions that are not negative where it is done
  std::vector<int> loops;   // around it, from the outermost
  std::string text;
  std::optional<Expr> count;  // of active lanes
  bool whole = false;         // a fragment's: of any element of the buffer
  int64_t elements = 1;       // of each lane, from its index on: a copy's
};

// A symbol's first and last value.
struct Range {
  std::string symbol;
  Expr lower, upper;
};

struct Loop {
  std::string name;                // as the kernel calls it
  std::string counter;             // symbol of the iteration's number; none if there is but one
  Expr last;                       // the counter's last value
  bool runs = false;               // at least once
  int end_loop = 0;                // loops in it are (this, end_loop)
  int access = 0, end_access = 0;  // accesses in it
};

// Reports whether a statement accesses a buffer that the kernel writes.
bool IsAccess(const Kernel& kernel, const Stmt& s);

// The accesses of a kernel, and which of them may meet at one element. Borrows the kernel.
class Accesses {
 public:
  explicit Accesses(const Kernel& kernel);

  const MemoryAccess& access(int a) const { return accesses_[a]; }
  const Loop& loop(int l) const { return loops_[l]; }
  int loops() const { return static_cast<int>(loops_.size()); }
  int size() const { return static_cast<int>(accesses_.size()); }

  bool IsIn(int access, int loop) const;

  // Reports whether each lane of a vector's store has an element of its own: proved of a multiple
  // of the lane, tried of others, such as columns that are split into heads. A stride over sizes
  // counts as 1 or more if it is not negative: lowerings multiply the extents of axes, and store
  // nothing to a tensor of which one is 0.
  bool LanesDiffer(int access) const;

  // Reports whether `earlier`, carried by `carrier`, and `later` may touch one element in two
  // threads, at least one of them writing. `pending`: in one thread neither, since `earlier` is a
  // copy that may be under way.
  bool Race(int earlier, int carrier, int later, bool pending);
  // Reports whether `earlier` of an item and `later` of a later one may touch one element, at least
  // one of them writing. REQUIRES: there may be several items.
  bool ItemsMeet(int earlier, int later) { return Race(earlier, kItems, later, /*pending=*/true); }

 private:
  using Values = std::map<std::string, Expr, std::less<>>;

  void AddLoop(const std::string& name, const std::string& counter, const Expr& last);
  void Close(int loop);
  void Collect(const std::vector<Stmt>& block);

  // Adds the access to scratch of a fragment's load or of a copy.
  void Matrices(const Stmt& s);

  // Adds that `e` is not negative, and what follows for the arguments of its quotients and minima.
  void Know(const Expr& e, int depth = 4);
  void Deduce(const Expr& e, int depth = 4);

  // Returns a limit of a loop, with symbols of their own for what the loop may change.
  Expr AtEntry(const Expr& limit, const std::string& counter);

  // Adds to what is known what a true `condition` says of index registers.
  void Assume(Var condition);

  // Remembers an i64 register: its index, unless that may change while the register does not.
  void Define(const Stmt& s);

  // Says what the earlier access's symbols are to the later one, and holds the ranges of the
  // symbols of both, inner loops first.
  struct Relation {
    Values values;
    std::vector<Range> ranges;
  };
  Relation Relate(const MemoryAccess& earlier, int carrier, const MemoryAccess& later) const;
  bool Decide(const MemoryAccess& earlier, int carrier, const MemoryAccess& later,
              bool pending) const;

  // Returns the lanes of both accesses, without thread 0 if the other access is only its.
  // `counted`: up to the count of active lanes, else up to the team.
  std::vector<Range> LaneRanges(const MemoryAccess& earlier, const MemoryAccess& later,
                                const Values& values, bool counted) const;

  // Reports whether an index differs by lane where all else is large, and so no multiple of what
  // divides the lane; with it the `count` elements from there on.
  bool LanesDifferWhereTried(const Expr& index, int64_t count = 1) const;

  // Reports whether `e` is proved to be 1 or more. `known`: expressions that are not negative; one
  // of them is used, if that takes a symbol out of `e`.
  bool Positive(const Expr& e, const std::vector<Range>& ranges,
                const std::vector<Expr>& known) const;
  bool Positive(const Expr& e, const std::vector<Range>& ranges) const;

  // Few expressions are left of many pairs of accesses.
  bool NonNegative(const Expr& e) const;

  // Returns what `e` is at least: puts the end of its range that makes `e` least for each symbol.
  std::optional<Expr> Least(Expr e, const std::vector<Range>& ranges) const;

  // Reports whether two vectors meet only where the lanes, and so the threads, are the same: at one
  // stride their bases are apart by less than the stride, or by multiples of all lanes together.
  bool OwnElements(const Expr& a, const Expr& b, const std::vector<Range>& ranges,
                   const std::vector<Expr>& known) const;

  // Reports whether `e` is proved not to be 0: it is a multiple of some divisor, and a rest in
  // whose range there is no multiple.
  bool NeverZero(const Expr& e, const std::vector<Range>& ranges) const;

  const Kernel& kernel_;
  std::vector<MemoryAccess> accesses_;
  std::vector<Loop> loops_;
  std::map<Var, const Stmt*> conditions_;  // computed registers
  std::vector<Expr> known_;                // where the collected statement is
  std::vector<int> around_;                // loops around the statement being collected
  Bounds bounds_;
  Values values_;                     // of loop variables, and of simple indices
  Values indices_;                    // of registers that are an index
  Values expanded_;                   // the same, without such registers
  std::map<std::string, int> owner_;  // the loop in whose iteration a symbol has one value
  std::set<std::string> varying_;     // registers whose value differs by thread or may change
  std::set<std::string> vectors_;     // registers that differ by lane and are no index
  std::set<std::string> mutables_;
  std::map<std::tuple<int, int, int, bool>, bool> races_;
  mutable std::map<Expr, bool> signs_;  // is it proved not to be negative?
};

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_KIR_MEMORY_ACCESSES_H_
