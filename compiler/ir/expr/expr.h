// Integer expressions over symbols, always in normal form: a polynomial with int64 coefficients
// whose atoms are symbols, FloorDiv, Min and Max of expressions. Shapes are expressions over dims;
// index maps and kernel addresses are expressions over dims, axes and loop variables.
//
//   Expr b = Expr::Symbol("b"), f = Expr::Symbol("f");
//   FloorDiv(f, b) * b + Mod(f, b) == f          // Mod is a - b*FloorDiv(a, b): it cancels
//   (2 * b + 3).Evaluate({{"b", 4}}) == 11
//
// Equal normal forms are equal values; different normal forms prove nothing (`ProvablyEqual` says
// "proved" or "unknown", never guesses). Values are immutable and cheap to copy; thread-safe.
//
// FloorDiv by a value that is not positive has no value. A divisor may be a dim that is 0 (an empty
// tensor): such an expression may be built, simplified and printed, but is never evaluated, since
// there is no element to evaluate it for. Every rewriting here holds where all divisors are >= 1.
#ifndef ATHANOR_COMPILER_IR_EXPR_EXPR_H_
#define ATHANOR_COMPILER_IR_EXPR_EXPR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"

namespace athanor {

class Expr;

// An indivisible factor of a monomial. FloorDiv rounds towards minus infinity.
struct Atom {
  enum class Kind : uint8_t { kSymbol, kFloorDiv, kMin, kMax };
  Kind kind;
  std::string symbol;      // kSymbol
  std::vector<Expr> args;  // the two arguments of kFloorDiv, kMin and kMax
  std::string key;         // canonical text: the order and the identity of atoms
  size_t hash = 0;         // of the key
  uint64_t uses = 0;       // a bit for each symbol in it, by its name's hash; symbols may share one
};
using AtomRef = std::shared_ptr<const Atom>;

class Expr {
 public:
  // A product of atoms, ordered by key, with repetition for powers; empty is 1.
  using Monomial = absl::InlinedVector<AtomRef, 2>;
  struct Term {
    int64_t coefficient;
    Monomial monomial;
  };

  Expr() : Expr(0) {}
  Expr(int64_t value);                                    // NOLINT: integers are expressions
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}  // NOLINT
  // `name` must satisfy IsSymbolName; anything else gives an overflowed expression.
  static Expr Symbol(std::string_view name);
  // Accepts a letter, '_' or '$', then letters, digits, '_', '$' and '.'; at most 256 bytes.
  static bool IsSymbolName(std::string_view name);
  // Returns the coordinate of output axis `i` of an index map: the symbol "$i".
  static Expr Axis(int i);

  static Expr Of(AtomRef atom);
  static Expr Of(Term term);

  // Returns the terms, ordered by monomial (higher degree first, then by atom keys), without zero
  // coefficients.
  const std::vector<Term>& terms() const { return *terms_; }
  // True if a coefficient left the int64 range, or the expression passed a size limit (4096 terms,
  // degree 64, 64 KiB of text in one atom). The value is then meaningless, and every expression
  // made from it overflows too. Validation refuses such expressions.
  bool overflow() const { return overflow_; }

  std::optional<int64_t> constant() const;  // nullopt unless the polynomial is a constant
  bool IsConstant(int64_t value) const { return constant() == value; }
  // Returns the symbol's name if the expression is exactly one symbol.
  std::optional<std::string> symbol() const;
  void CollectSymbols(std::set<std::string>* symbols) const;
  bool Uses(std::string_view symbol) const;

  // Returns nullopt if a symbol is missing, a divisor is not positive, or a product of atoms or the
  // result is outside int64.
  using Env = std::map<std::string, int64_t, std::less<>>;
  std::optional<int64_t> Evaluate(const Env& env) const;
  // Substitutes all symbols simultaneously.
  Expr Substitute(const std::map<std::string, Expr, std::less<>>& values) const;

  // Returns a and b of `a + b*symbol`, which are free of `symbol`; nullopt if the expression has
  // another form.
  struct Affine;
  std::optional<Affine> AsAffine(std::string_view symbol) const;

  // Parse reads what ToString prints ("2*b + 3", "floordiv($0, 4)", axes as $i) and also accepts
  // parentheses, mod(a, b) and ceildiv(a, b). It takes at most 16 KiB of text and 64 levels of
  // nesting.
  std::string ToString() const;
  static absl::StatusOr<Expr> Parse(std::string_view text);

  friend Expr operator+(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a, const Expr& b);
  friend Expr operator*(const Expr& a, const Expr& b);
  friend Expr FloorDiv(const Expr& a, const Expr& b);
  friend Expr MinOf(const Expr& a, const Expr& b);
  friend Expr MaxOf(const Expr& a, const Expr& b);
  friend bool operator==(const Expr& a, const Expr& b);
  friend bool operator<(const Expr& a, const Expr& b);  // any total order, stable across runs

 private:
  friend struct Division Divide(const Expr& a, const Expr& b);

  static Expr Overflowed();
  static Expr Composite(Atom::Kind kind, const Expr& a, const Expr& b);
  // REQUIRES: `terms` are in normal order and merged.
  static Expr FromSorted(std::vector<Term> terms);
  // Takes terms in any order, with any repetition.
  static Expr FromTerms(std::vector<Term> terms);
  // Computes a + coefficient * monomial * b in one merge, since a monomial keeps the order of
  // terms.
  static Expr AddScaled(const Expr& a, int64_t coefficient, const Monomial& monomial,
                        const Expr& b);

  std::shared_ptr<const std::vector<Term>> terms_;
  bool overflow_ = false;
};

struct Expr::Affine {
  Expr base;
  Expr stride;
};

inline Expr& operator+=(Expr& a, const Expr& b) { return a = a + b; }
inline Expr& operator*=(Expr& a, const Expr& b) { return a = a * b; }
Expr FloorDiv(const Expr& a, const Expr& b);
Expr MinOf(const Expr& a, const Expr& b);
Expr MaxOf(const Expr& a, const Expr& b);
inline Expr Mod(const Expr& a, const Expr& b) { return a - b * FloorDiv(a, b); }
Expr CeilDiv(const Expr& a, const Expr& b);

// floordiv(a, b) == quotient + floordiv(remainder, divisor). No further multiple of the divisor can
// be moved from the remainder to the quotient. The remainder is zero if all of `a` was moved;
// otherwise FloorDiv builds its atom from remainder and divisor.
struct Division {
  Expr quotient, remainder, divisor;
};
Division Divide(const Expr& a, const Expr& b);

// Known bounds of symbols: `lower <= symbol <= upper`, both expressions over other symbols. A loop
// variable or axis of extent e has [0, e - 1]; a dim has its declared integers. Bounds must not be
// circular. Where a symbol's range is empty, every statement holds.
class Bounds {
 public:
  void Set(std::string_view symbol, Expr lower, Expr upper);
  void SetExtent(std::string_view symbol, const Expr& extent) { Set(symbol, 0, extent - 1); }

  // Returns true only if it is proved.
  bool NonNegative(const Expr& e) const;
  bool Less(const Expr& a, const Expr& b) const { return NonNegative(b - a - 1); }
  bool ProvablyEqual(const Expr& a, const Expr& b) const { return Simplify(a - b) == Expr(0); }

  // Rewrites FloorDiv, Min and Max atoms that the bounds decide.
  Expr Simplify(const Expr& e) const;

  // Returns an integer that is a lower (upper) bound of `e` over all symbols' bounds; nullopt if
  // unbounded or outside int64. Exact for expressions of degree one in each symbol, sound for all.
  std::optional<int64_t> Minimum(const Expr& e) const;
  std::optional<int64_t> Maximum(const Expr& e) const;

 private:
  friend class BoundsMemo;
  friend class BoundsProver;
  friend class BoundsSimplifier;
  struct Range {
    Expr lower, upper;
    uint64_t symbol = 0, uses = 0;  // as Atom::uses: of the symbol, and of its bounds
    size_t hash = 0;                // of all
  };
  struct Digits;

  // kShort: without splitting symbols into digits; kLong: with it.
  enum class Search { kShort, kLong };
  bool Proves(const Expr& e, Search search = Search::kLong) const;
  bool TryToProve(const Expr& e, Search search) const;
  bool DecideNonNegative(const Expr& e) const;
  Expr DecideSimplest(const Expr& e) const;
  Expr SimplifyAtoms(const Expr& e) const;
  // Returns null if no quotient of a symbol in `e` can be split, or (unless `even_if_plain`) if all
  // its atoms are symbols and such quotients.
  std::optional<Digits> SplitDigits(const Expr& e, bool even_if_plain) const;

  // Returns a few points within the bounds for the symbols of `e`. A claim that fails at one of
  // them need not be tried by proof.
  std::vector<Expr::Env> Points(const Expr& e) const;
  bool Assign(const Expr& e, uint64_t choice, Expr::Env* env, int depth) const;

  std::map<std::string, Range, std::less<>> ranges_;
};

class BoundsMemo;

// Remembers what Bounds proved and simplified, which changes no answer: kernels ask the same of the
// same expressions for each statement, tile and panel. Used by one thread at a time.
class BoundsMemory {
 public:
  BoundsMemory();
  ~BoundsMemory();
  BoundsMemory(const BoundsMemory&) = delete;
  BoundsMemory& operator=(const BoundsMemory&) = delete;

 private:
  friend class RememberBounds;
  const std::unique_ptr<BoundsMemo> memo_;
};

// While it lives, the Bounds of the calling thread use `memory`, or the one they use already.
class RememberBounds {
 public:
  explicit RememberBounds(const BoundsMemory& memory);
  ~RememberBounds();
  RememberBounds(const RememberBounds&) = delete;
  RememberBounds& operator=(const RememberBounds&) = delete;

 private:
  const bool outermost_;
};

// Symbols as sums of digit symbols (`split`), the digits as expressions over the symbols (`merge`),
// and the digits' bounds.
struct Bounds::Digits {
  std::map<std::string, Expr, std::less<>> split, merge;
  Bounds bounds;
};

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_EXPR_EXPR_H_
