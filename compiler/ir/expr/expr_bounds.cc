// Proofs about expressions from the bounds on their symbols.
#include <algorithm>

#include "absl/hash/hash.h"
#include "compiler/ir/expr/expr.h"
#include "compiler/ir/expr/expr_internal.h"
#include "compiler/ir/expr/expr_memo.h"

namespace athanor {
namespace {

using expr_internal::Add;
using expr_internal::AtomsOf;
using expr_internal::CommonFactor;
using expr_internal::ExactQuotient;
using expr_internal::Fit;
using expr_internal::FloorDivide;
using expr_internal::HasComposite;
using expr_internal::Interval;
using expr_internal::IsIndependent;
using expr_internal::Isolate;
using expr_internal::Scale;
using Term = Expr::Term;

constexpr int kMaxDepth = 40;
constexpr int kMaxSteps = 250;  // steps for one question
// Steps of the first try at a proof. Sample points may refute what it leaves open before a long one
// is tried.
constexpr int kShortSearch = 10;
// Number of atom intervals computed in one question: ranges that use each other branch.
constexpr int kMaxIntervals = 1 << 14;

Interval Times(const Interval& a, const Interval& b) {
  if (a.lo && a.lo == a.hi) return Scale(b, *a.lo);
  if (b.lo && b.lo == b.hi) return Scale(a, *b.lo);
  // Unbounded above is common (a dim without a maximum), unbounded below is not.
  if (!a.lo || !b.lo) return {};
  if (!a.hi || !b.hi) {
    if (*a.lo < 0 || *b.lo < 0) return {};
    return {Fit(static_cast<__int128>(*a.lo) * *b.lo), std::nullopt};
  }
  const auto [lo, hi] =
      std::minmax({static_cast<__int128>(*a.lo) * *b.lo, static_cast<__int128>(*a.lo) * *b.hi,
                   static_cast<__int128>(*a.hi) * *b.lo, static_cast<__int128>(*a.hi) * *b.hi});
  return {Fit(lo), Fit(hi)};
}

// The divisor is at least 1 at every point where the quotient has a value.
Interval Divide(const Interval& a, const Interval& b) {
  const int64_t lo = std::max<int64_t>(b.lo.value_or(1), 1);
  if (b.hi && *b.hi < lo) return {};
  Interval q;
  if (a.lo) q.lo = *a.lo < 0 ? FloorDivide(*a.lo, lo) : b.hi ? *a.lo / *b.hi : 0;
  if (a.hi) q.hi = *a.hi >= 0 ? *a.hi / lo : b.hi ? FloorDivide(*a.hi, *b.hi) : -1;
  return q;
}

std::optional<int64_t> Lesser(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a || !b) return std::nullopt;
  return std::min(*a, *b);
}

std::optional<int64_t> Better(std::optional<int64_t> a, std::optional<int64_t> b) {
  return !a ? b : !b ? a : std::max(*a, *b);
}

// Order of elimination among composites of which neither is inside the other: the one with the
// longest text first, or the quotient by the largest number, which then becomes quotients by its
// divisors.
enum class Order : uint8_t { kLongest, kCoarsest };

// Returns the divisor of a quotient, if it is a number.
std::optional<int64_t> DivisorOf(const Atom& atom) {
  if (atom.kind != Atom::Kind::kFloorDiv) return std::nullopt;
  return atom.args[1].constant();
}

bool IsWithin(const Atom& inner, const Atom& outer) {
  return outer.key.find(inner.key) != std::string::npos;
}

}  // namespace

// Answers one question. Counts its steps, so that every question ends soon.
class BoundsProver {
 public:
  explicit BoundsProver(const Bounds& bounds, Order order = Order::kLongest)
      : ranges_(bounds.ranges_), order_(order) {}

  bool Proves(const Expr& e, int steps) {
    steps_left_ = steps;
    const std::optional<int64_t> lower = Lower(e, 0);
    return lower && *lower >= 0;
  }
  bool exhausted() const { return steps_left_ < 0; }
  // Reports whether Order made a difference.
  bool had_choice() const { return had_choice_; }

  // Returns a lower bound of `e`; the search stops at the first bound that reaches `goal`.
  std::optional<int64_t> Lower(const Expr& e, std::optional<int64_t> goal, int depth = 0);
  Interval Of(const Expr& e, int depth = 0);

 private:
  using Range = Bounds::Range;
  using Goal = std::optional<int64_t>;

  // The expression base + stride * y, with y between two expressions.
  struct Related {
    Expr::Affine affine;
    Expr lower, upper;
  };

  static bool Reached(const std::optional<int64_t>& bound, const Goal& goal) {
    return bound && goal && *bound >= *goal;
  }
  const Range* Find(const Atom& atom) const {
    if (atom.kind != Atom::Kind::kSymbol) return nullptr;
    auto it = ranges_.find(atom.symbol);
    return it == ranges_.end() ? nullptr : &it->second;
  }
  static bool IsSymbolic(const Range& r) { return !r.lower.constant() || !r.upper.constant(); }
  // Reports whether the atom depends on a symbol whose bounds are not integers.
  bool UsesSymbolic(const Atom& atom) const;

  // Interval arithmetic is exact for independent symbols with integer bounds.
  bool IsExact(const Expr& e) const;
  Interval OfAtom(const Atom& atom, int depth);
  bool IsBefore(const Atom& a, const Atom& b);
  AtomRef Choose(const Expr& e, bool symbolic_only);
  std::optional<int64_t> Between(const Expr::Affine& e, const Expr& lower, const Expr& upper,
                                 Goal goal, int depth);
  std::optional<int64_t> LowerMinMax(const Expr::Affine& e, const Atom& atom, Goal goal, int depth);
  std::optional<int64_t> LowerFloorDiv(const Expr::Affine& e, const Atom& atom, Goal goal,
                                       int depth);
  std::optional<int64_t> LowerScaled(const Expr::Affine& e, const Expr& a, const Expr& d, Goal goal,
                                     int depth);
  std::vector<Related> Relate(const Expr::Affine& e, const Atom& atom);
  std::optional<Expr> Extreme(Expr e, bool maximum);
  std::optional<int64_t> FromLowest(const Expr& e);

  const std::map<std::string, Range, std::less<>>& ranges_;
  const Order order_;
  bool had_choice_ = false;
  int steps_left_ = kMaxSteps;
  int intervals_ = 0;
};

Interval BoundsProver::OfAtom(const Atom& atom, int depth) {
  if (depth > kMaxDepth || ++intervals_ > kMaxIntervals) return {};
  if (const Range* range = Find(atom)) {
    return {Of(range->lower, depth + 1).lo, Of(range->upper, depth + 1).hi};
  }
  if (atom.kind == Atom::Kind::kSymbol) return {};
  const Interval a = Of(atom.args[0], depth + 1), b = Of(atom.args[1], depth + 1);
  if (atom.kind == Atom::Kind::kFloorDiv) return Divide(a, b);
  Interval result;
  if (atom.kind == Atom::Kind::kMax) {
    result.lo = Better(a.lo, b.lo);
    if (a.hi && b.hi) result.hi = std::max(*a.hi, *b.hi);
  } else {
    result.lo = Lesser(a.lo, b.lo);
    result.hi = a.hi && b.hi ? std::min(*a.hi, *b.hi) : a.hi ? a.hi : b.hi;
  }
  return result;
}

bool BoundsProver::IsExact(const Expr& e) const {
  for (const Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) {
      const Range* range = Find(*atom);
      if (range == nullptr || IsSymbolic(*range)) return false;
    }
  }
  return IsIndependent(e);
}

// Bounds each term by itself, as if the terms were independent.
Interval BoundsProver::Of(const Expr& e, int depth) {
  if (e.overflow()) return {};
  Interval sum{0, 0};
  for (const Term& term : e.terms()) {
    Interval product{1, 1};
    for (const AtomRef& atom : term.monomial) product = Times(product, OfAtom(*atom, depth));
    sum = Add(sum, Scale(product, term.coefficient));
    if (!sum.lo && !sum.hi) break;
  }
  return sum;
}

bool BoundsProver::UsesSymbolic(const Atom& atom) const {
  if (const Range* range = Find(atom)) return IsSymbolic(*range);
  return std::any_of(atom.args.begin(), atom.args.end(), [&](const Expr& arg) {
    return std::any_of(arg.terms().begin(), arg.terms().end(), [&](const Term& term) {
      return std::any_of(term.monomial.begin(), term.monomial.end(),
                         [&](const AtomRef& inner) { return UsesSymbolic(*inner); });
    });
  });
}

// An atom inside another one has the shorter key and goes after it.
bool BoundsProver::IsBefore(const Atom& a, const Atom& b) {
  const std::optional<int64_t> d = DivisorOf(a), other = DivisorOf(b);
  const bool differ =
      d && other && *d != *other && *d > 0 && *other > 0 && (*d % *other == 0 || *other % *d == 0);
  if (differ && !IsWithin(a, b) && !IsWithin(b, a)) {
    had_choice_ = true;
    if (order_ == Order::kCoarsest) return *d > *other;
  }
  return a.key.size() > b.key.size();
}

// Chooses the atom to eliminate next. First come composites of symbols with symbolic bounds, from
// the outside in, and those symbols, each before the symbols that its bounds use. A quotient of
// dims counts as a dim until then, because bounds may be made of it. Then (unless `symbolic_only`)
// come other composites and symbols with integer bounds. Returns null if none can be eliminated.
AtomRef BoundsProver::Choose(const Expr& e, bool symbolic_only) {
  AtomRef outer, inner, best;
  const auto atoms = AtomsOf(e);
  for (const auto& [key, atom] : atoms) {
    if (atom->kind == Atom::Kind::kSymbol) continue;
    AtomRef& first = UsesSymbolic(*atom) ? outer : inner;
    if (!first || IsBefore(*atom, *first)) first = atom;
  }
  if (outer) return outer;
  for (const auto& [key, atom] : atoms) {
    const Range* range = Find(*atom);
    if (range == nullptr || ((symbolic_only || inner) && !IsSymbolic(*range))) continue;
    if (!Isolate(e, atom)) continue;
    const Range* other = best ? Find(*best) : nullptr;
    if (other == nullptr || (IsSymbolic(*range) && !IsSymbolic(*other)) ||
        range->lower.Uses(best->symbol) || range->upper.Uses(best->symbol)) {
      best = atom;
    }
  }
  return best || symbolic_only ? best : inner;
}

// Returns the least value of base + stride * x for x between two expressions, which is at one of
// the two ends.
std::optional<int64_t> BoundsProver::Between(const Expr::Affine& e, const Expr& lower,
                                             const Expr& upper, Goal goal, int depth) {
  const Interval sign = Of(e.stride);
  if (sign.lo && *sign.lo >= 0) return Lower(e.base + e.stride * lower, goal, depth);
  if (sign.hi && *sign.hi <= 0) return Lower(e.base + e.stride * upper, goal, depth);
  std::optional<int64_t> low = Lower(e.base + e.stride * lower, goal, depth);
  if (!low || (goal && *low < *goal)) return std::nullopt;
  return Lesser(low, Lower(e.base + e.stride * upper, goal, depth));
}

std::optional<int64_t> BoundsProver::LowerMinMax(const Expr::Affine& e, const Atom& atom, Goal goal,
                                                 int depth) {
  const Interval sign = Of(e.stride);
  // Towards its own extreme, either argument bounds the atom; otherwise the atom may be either of
  // the two.
  const bool either =
      atom.kind == Atom::Kind::kMin ? sign.hi && *sign.hi <= 0 : sign.lo && *sign.lo >= 0;
  std::optional<int64_t> a = Lower(e.base + e.stride * atom.args[0], goal, depth);
  if (either ? Reached(a, goal) : !a || (goal && *a < *goal)) return a;
  std::optional<int64_t> b = Lower(e.base + e.stride * atom.args[1], goal, depth);
  return either ? Better(a, b) : Lesser(a, b);
}

// k * floordiv(a, k*m) is in [floordiv(a, m) - (k - 1), floordiv(a, m)]. This is exact for a mod,
// and for the rest of a mod after another division. Tries as k: the whole divisor, the k that makes
// m the divisor of another atom, and the common factor of the stride and the divisor.
std::vector<BoundsProver::Related> BoundsProver::Relate(const Expr::Affine& e, const Atom& atom) {
  std::vector<Related> related;
  if (atom.kind != Atom::Kind::kFloorDiv || e.stride.IsConstant(0)) return related;
  const Expr &a = atom.args[0], &d = atom.args[1];
  if (d.constant() && *d.constant() <= 0) return related;
  std::vector<Expr> tried = {1};
  auto attempt = [&](const Expr& k) {
    if (std::find(tried.begin(), tried.end(), k) != tried.end()) return;
    tried.push_back(k);
    const std::optional<Expr> stride = ExactQuotient(e.stride, k), m = ExactQuotient(d, k);
    if (!stride || !m) return;
    // k*m >= 1 wherever the quotient has a value, so proving k >= 0 is enough for k >= 1.
    if (k != d && Of(k).lo.value_or(-1) < 0) return;
    Expr upper = FloorDiv(a, *m);
    related.push_back({{e.base, *stride}, upper - k + 1, upper});
  };
  attempt(d);
  for (const Expr* part : {&e.base, &e.stride}) {
    for (const auto& [key, other] : AtomsOf(*part)) {
      if (other->kind != Atom::Kind::kFloorDiv) continue;
      if (std::optional<Expr> k = ExactQuotient(d, other->args[1])) attempt(*k);
    }
  }
  attempt(CommonFactor(e.stride, d));
  return related;
}

std::optional<int64_t> BoundsProver::LowerFloorDiv(const Expr::Affine& e, const Atom& atom,
                                                   Goal goal, int depth) {
  const Expr &a = atom.args[0], &d = atom.args[1];
  std::optional<int64_t> best;
  for (const Related& r : Relate(e, atom)) {
    best = Better(best, Between(r.affine, r.lower, r.upper, goal, depth));
    if (Reached(best, goal)) return best;
  }
  const std::optional<Expr> low = Extreme(a, false), high = Extreme(a, true);
  if (low && high && !(*low == a && *high == a)) {
    best = Better(best, Between(e, FloorDiv(*low, d), FloorDiv(*high, d), goal, depth));
    if (Reached(best, goal)) return best;
  }
  const Interval range = OfAtom(atom, 0);
  if (range.lo && range.hi) {
    best = Better(best, Between(e, *range.lo, *range.hi, goal, depth));
  }
  if (!Reached(best, goal)) best = Better(best, LowerScaled(e, a, d, goal, depth));
  return best;
}

// d * e has no division by d, and e is at least the ceiling of its minimum over d. Including the
// part that the division rounds away, floordiv(a, d) is in [(a - d + 1) / d, a / d]. If the divisor
// is not an integer, this only answers whether the goal is reached: e >= goal if d * e > d * (goal
// - 1). For a stride of 1 or -1 the two are equivalent: floordiv(a, d) < b if and only if a < b *
// d.
std::optional<int64_t> BoundsProver::LowerScaled(const Expr::Affine& e, const Expr& a,
                                                 const Expr& d, Goal goal, int depth) {
  const std::optional<int64_t> divisor = d.constant(), stride = e.stride.constant();
  if ((divisor && *divisor < 1) || !stride) return std::nullopt;
  const Expr scaled = d * e.base + e.stride * (*stride < 0 ? a : a - d + 1);
  if (!divisor) {
    if (!goal) return std::nullopt;
    const Expr above = scaled - d * (Expr(*goal) - 1) - 1;
    return Reached(Lower(above, 0, depth), 0) ? goal : std::nullopt;
  }
  Goal scaled_goal;
  if (goal)
    scaled_goal = Fit(static_cast<__int128>(*divisor) * (static_cast<__int128>(*goal) - 1) + 1);
  const std::optional<int64_t> bound = Lower(scaled, scaled_goal, depth);
  if (!bound) return std::nullopt;
  const int64_t whole = FloorDivide(*bound, *divisor);
  return whole * *divisor == *bound ? whole : whole + 1;
}

// Returns an upper bound (`maximum`) or lower bound of `e` over integer-bounded symbols and
// composites of them.
std::optional<Expr> BoundsProver::Extreme(Expr e, bool maximum) {
  while (const AtomRef atom = Choose(e, /*symbolic_only=*/true)) {
    if (--steps_left_ < 0) return std::nullopt;
    const std::optional<Expr::Affine> affine = Isolate(e, atom);
    if (!affine) return std::nullopt;
    std::vector<Related> related;
    if (const Range* range = Find(*atom)) {
      related.push_back({*affine, range->lower, range->upper});
    } else {
      related = Relate(*affine, *atom);
    }
    if (related.empty()) return std::nullopt;
    const Related& r = related[0];
    const Interval sign = Of(r.affine.stride);
    const bool rising = sign.lo && *sign.lo >= 0;
    if (!rising && !(sign.hi && *sign.hi <= 0)) return std::nullopt;
    e = r.affine.base + r.affine.stride * (rising == maximum ? r.upper : r.lower);
  }
  return e;
}

// Writes every symbol as its integer minimum plus a non-negative term. If no coefficient is then
// negative, the constant term is the minimum. Needs no upper bounds and handles powers.
std::optional<int64_t> BoundsProver::FromLowest(const Expr& e) {
  std::map<std::string, Expr, std::less<>> shifted;
  for (const auto& [key, atom] : AtomsOf(e)) {
    const std::optional<int64_t> lo = OfAtom(*atom, 0).lo;
    if (!lo) return std::nullopt;
    if (atom->kind == Atom::Kind::kSymbol) {
      shifted.emplace(atom->symbol, Expr::Of(atom) + *lo);
    } else if (*lo < 0) {
      return std::nullopt;
    }
  }
  int64_t constant = 0;
  Expr polynomial = 0;
  for (const Term& term : e.terms()) {
    Expr product = term.coefficient;
    for (const AtomRef& atom : term.monomial) {
      product *= atom->kind == Atom::Kind::kSymbol ? shifted.at(atom->symbol) : Expr::Of(atom);
    }
    polynomial += product;
  }
  if (polynomial.overflow()) return std::nullopt;
  for (const Term& term : polynomial.terms()) {
    if (term.monomial.empty()) {
      constant = term.coefficient;
    } else if (term.coefficient < 0) {
      return std::nullopt;
    }
  }
  return constant;
}

std::optional<int64_t> BoundsProver::Lower(const Expr& e, Goal goal, int depth) {
  if (e.overflow()) return std::nullopt;
  std::optional<int64_t> best = Of(e).lo;
  if (e.constant() || Reached(best, goal) || IsExact(e)) return best;
  if (depth > kMaxDepth || --steps_left_ < 0) return best;
  const AtomRef atom = Choose(e, /*symbolic_only=*/false);
  const std::optional<Expr::Affine> affine = atom ? Isolate(e, atom) : std::nullopt;
  if (affine) {
    std::optional<int64_t> bound;
    if (const Range* range = Find(*atom)) {
      bound = Between(*affine, range->lower, range->upper, goal, depth + 1);
    } else if (atom->kind == Atom::Kind::kFloorDiv) {
      bound = LowerFloorDiv(*affine, *atom, goal, depth + 1);
    } else {
      bound = LowerMinMax(*affine, *atom, goal, depth + 1);
    }
    best = Better(best, bound);
  }
  if ((!affine || depth == 0) && !Reached(best, goal)) best = Better(best, FromLowest(e));
  return best;
}

void Bounds::Set(std::string_view symbol, Expr lower, Expr upper) {
  const size_t hash = absl::HashOf(expr_internal::HashOfText(symbol), expr_internal::HashOf(lower),
                                   expr_internal::HashOf(upper));
  const uint64_t uses = expr_internal::UsesOf(lower) | expr_internal::UsesOf(upper);
  ranges_.insert_or_assign(std::string(symbol), Range{std::move(lower), std::move(upper),
                                                      expr_internal::BitOf(symbol), uses, hash});
}

bool Bounds::Proves(const Expr& e, Search search) const {
  if (const auto constant = e.constant()) return *constant >= 0;
  BoundsMemo* memo = BoundsMemo::OfThread();
  return memo != nullptr ? memo->Proves(*this, e, search) : TryToProve(e, search);
}

bool Bounds::TryToProve(const Expr& e, Search search) const {
  BoundsProver prover(*this);
  if (prover.Proves(e, kShortSearch)) return true;
  if (search == Search::kShort || !(prover.exhausted() || prover.had_choice())) return false;
  for (const Expr::Env& point : Points(e)) {
    if (e.Evaluate(point).value_or(0) < 0) return false;
  }
  if (prover.exhausted() && prover.Proves(e, kMaxSteps)) return true;
  return prover.had_choice() && BoundsProver(*this, Order::kCoarsest).Proves(e, kMaxSteps);
}

bool Bounds::NonNegative(const Expr& e) const {
  if (const auto constant = e.constant()) return *constant >= 0;
  BoundsMemo* memo = BoundsMemo::OfThread();
  return memo != nullptr ? memo->NonNegative(*this, e) : DecideNonNegative(e);
}

bool Bounds::DecideNonNegative(const Expr& e) const {
  if (Proves(e)) return true;
  if (!HasComposite(e)) return false;
  const std::optional<Digits> digits = SplitDigits(e, /*even_if_plain=*/true);
  if (!digits) return false;
  return digits->bounds.Proves(digits->bounds.SimplifyAtoms(e.Substitute(digits->split)));
}

std::optional<int64_t> Bounds::Minimum(const Expr& e) const {
  return BoundsProver(*this).Lower(e, std::nullopt);
}

std::optional<int64_t> Bounds::Maximum(const Expr& e) const {
  const std::optional<int64_t> lower = Minimum(-1 * e);
  if (!lower || *lower == INT64_MIN) return std::nullopt;
  return -*lower;
}

}  // namespace athanor
