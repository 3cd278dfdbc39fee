// Remembers what bounds decide about expressions. Private to expr_*.cc.
//
//   BoundsMemory memory;
//   RememberBounds remember(memory);
//   Expr simple = BoundsMemo::OfThread()->Simplify(bounds, e);
//
// A decision depends on the expression, the ranges of its symbols, and those of the symbols that
// these ranges use: nothing else is part of a key, so that all loops, tiles and kernels of equal
// layers share an entry. Answers are those of Bounds::DecideSimplest, DecideNonNegative and
// TryToProve, which are functions of the key alone.
#ifndef ATHANOR_COMPILER_IR_EXPR_EXPR_MEMO_H_
#define ATHANOR_COMPILER_IR_EXPR_EXPR_MEMO_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/expr/expr.h"

namespace athanor {

// Used by one thread. Starts anew when it holds kMost entries, or texts of kMostBytes, which take
// some 16 MiB.
class BoundsMemo {
 public:
  static constexpr size_t kMost = size_t{1} << 15;
  static constexpr size_t kMostBytes = size_t{4} << 20;

  // Returns the memo of the calling thread, or null.
  static BoundsMemo* OfThread();

  Expr Simplify(const Bounds& bounds, const Expr& e);
  bool NonNegative(const Bounds& bounds, const Expr& e);
  bool Proves(const Bounds& bounds, const Expr& e, Bounds::Search search);

 private:
  using Range = Bounds::Range;
  struct Entry {
    Expr e;
    std::vector<std::pair<std::string, Range>> ranges;
    std::optional<Expr> simple;
    std::optional<bool> non_negative;
    std::optional<bool> proves[2];  // by Bounds::Search
  };
  // The ranges that a decision about an expression depends on, and maybe some more.
  struct Key {
    Key(const Bounds& bounds, const Expr& e);
    bool Is(const Entry& entry) const;

    const Expr& e;
    std::vector<const std::pair<const std::string, Range>*> ranges;
    size_t hash;
  };

  // Returns the entry of the key; null: there is none.
  Entry* Find(const Key& key);
  // Returns the entry of the key, made if there is none. Keys of equal hashes take turns.
  Entry& At(const Key& key);

  absl::flat_hash_map<size_t, Entry> entries_;
  size_t bytes_ = 0;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_EXPR_EXPR_MEMO_H_
