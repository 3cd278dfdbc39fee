// Helpers that the sources of expr.h share. Private to expr_*.cc.
//
//   ExactQuotient(4 * b * s, 2 * s)  // 2*b
//   CommonFactor(12 * b, 8 * b * s)  // 4*b
#ifndef ATHANOR_COMPILER_IR_EXPR_EXPR_INTERNAL_H_
#define ATHANOR_COMPILER_IR_EXPR_EXPR_INTERNAL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "compiler/ir/expr/expr.h"

namespace athanor::expr_internal {

inline int Compare(const AtomRef& a, const AtomRef& b) {
  return a == b ? 0 : a->key.compare(b->key);
}

inline size_t HashOfText(std::string_view text) { return std::hash<std::string_view>()(text); }
// Returns the bit that stands for the symbol in `uses`.
inline uint64_t BitOf(std::string_view symbol) { return uint64_t{1} << HashOfText(symbol) % 64; }
// Returns the bits of the symbols that `e` uses, its atoms' `uses`.
uint64_t UsesOf(const Expr& e);
// Equal expressions have equal hashes.
size_t HashOf(const Expr& e);

inline bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

inline uint64_t Magnitude(int64_t v) {
  return v < 0 ? -static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

// REQUIRES: b > 0.
inline int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// Returns the atoms of the polynomial itself by key, each once; atoms inside other atoms are left
// out.
std::map<std::string_view, AtomRef> AtomsOf(const Expr& e);
// Returns base and stride such that e == base + stride * atom. Neither uses the atom, except inside
// composite atoms.
std::optional<Expr::Affine> Isolate(const Expr& e, const AtomRef& atom);
// Reports whether the polynomial has an atom that is no symbol.
bool HasComposite(const Expr& e);
// Reports whether every atom occurs once in `e`, so that treating terms and factors as independent
// loses nothing.
bool IsIndependent(const Expr& e);

// Returns the largest term that divides both; its coefficient is positive.
Expr::Term CommonFactor(const Expr::Term& a, const Expr::Term& b);
// Returns the largest term that divides all terms of `e`. REQUIRES: `e` is not zero.
Expr::Term CommonFactor(const Expr& e);
// Returns a common factor of two expressions; its leading coefficient is positive. REQUIRES:
// neither is zero.
Expr CommonFactor(const Expr& a, const Expr& b);
// Returns a / b if that is a polynomial.
std::optional<Expr> ExactQuotient(const Expr& a, const Expr& b);

// Does one step of Divide: moves multiples of the divisor from the remainder to the quotient by
// long division. Returns true if the quotient changed. Leaves `d` as it was if the step would
// overflow or take too long.
bool TakeOutMultiples(Division* d);

// Integers from lo to hi; a missing end is unbounded or outside int64.
struct Interval {
  std::optional<int64_t> lo, hi;
};

inline std::optional<int64_t> Fit(__int128 v) {
  if (v < INT64_MIN || v > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(v);
}

inline Interval Add(const Interval& a, const Interval& b) {
  Interval sum;
  if (a.lo && b.lo) sum.lo = Fit(static_cast<__int128>(*a.lo) + *b.lo);
  if (a.hi && b.hi) sum.hi = Fit(static_cast<__int128>(*a.hi) + *b.hi);
  return sum;
}

inline Interval Scale(const Interval& a, int64_t by) {
  Interval r;
  if (a.lo) r.lo = Fit(static_cast<__int128>(*a.lo) * by);
  if (a.hi) r.hi = Fit(static_cast<__int128>(*a.hi) * by);
  if (by < 0) std::swap(r.lo, r.hi);
  return r;
}

}  // namespace athanor::expr_internal

#endif  // ATHANOR_COMPILER_IR_EXPR_EXPR_INTERNAL_H_
