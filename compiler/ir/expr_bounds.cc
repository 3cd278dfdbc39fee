// What bounds on symbols prove about expressions.
#include <algorithm>
#include <numeric>

#include "compiler/ir/expr.h"

namespace athanor {
namespace {

using Term = Expr::Term;

constexpr int kMaxDepth = 40;
constexpr int kMaxSteps = 400;    // of one question
constexpr int kMaxSubsetTerms = 5;  // 32 choices of representatives
constexpr int kMaxRewrites = 8;

struct Interval {
  std::optional<int64_t> lo, hi;
};

std::optional<int64_t> Fit(__int128 v) {
  if (v < INT64_MIN || v > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(v);
}

int64_t Floor(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0)); }  // b > 0

Interval Add(const Interval& a, const Interval& b) {
  Interval sum;
  if (a.lo && b.lo) sum.lo = Fit(static_cast<__int128>(*a.lo) + *b.lo);
  if (a.hi && b.hi) sum.hi = Fit(static_cast<__int128>(*a.hi) + *b.hi);
  return sum;
}

Interval Scale(const Interval& a, int64_t by) {
  Interval r;
  if (a.lo) r.lo = Fit(static_cast<__int128>(*a.lo) * by);
  if (a.hi) r.hi = Fit(static_cast<__int128>(*a.hi) * by);
  if (by < 0) std::swap(r.lo, r.hi);
  return r;
}

Interval Times(const Interval& a, const Interval& b) {
  if (a.lo && a.lo == a.hi) return Scale(b, *a.lo);
  if (b.lo && b.lo == b.hi) return Scale(a, *b.lo);
  // Unbounded above is common (a dim without a maximum), unbounded below is not.
  if (!a.lo || !b.lo) return {};
  if (!a.hi || !b.hi) {
    if (*a.lo < 0 || *b.lo < 0) return {};
    return {Fit(static_cast<__int128>(*a.lo) * *b.lo), std::nullopt};
  }
  const auto [lo, hi] = std::minmax({static_cast<__int128>(*a.lo) * *b.lo,
                                     static_cast<__int128>(*a.lo) * *b.hi,
                                     static_cast<__int128>(*a.hi) * *b.lo,
                                     static_cast<__int128>(*a.hi) * *b.hi});
  return {Fit(lo), Fit(hi)};
}

// The divisor is at least 1 wherever the quotient has a value.
Interval Divide(const Interval& a, const Interval& b) {
  const int64_t lo = std::max<int64_t>(b.lo.value_or(1), 1);
  if (b.hi && *b.hi < lo) return {};
  Interval q;
  if (a.lo) q.lo = *a.lo < 0 ? Floor(*a.lo, lo) : b.hi ? *a.lo / *b.hi : 0;
  if (a.hi) q.hi = *a.hi >= 0 ? *a.hi / lo : b.hi ? Floor(*a.hi, *b.hi) : -1;
  return q;
}

std::optional<int64_t> Lesser(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a || !b) return std::nullopt;
  return std::min(*a, *b);
}

std::optional<int64_t> Better(std::optional<int64_t> a, std::optional<int64_t> b) {
  return !a ? b : !b ? a : std::max(*a, *b);
}

// Atoms of the polynomial itself, each once, not those inside other atoms.
std::map<std::string_view, AtomRef> AtomsOf(const Expr& e) {
  std::map<std::string_view, AtomRef> atoms;
  for (const Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) atoms.emplace(atom->key, atom);
  }
  return atoms;
}

bool HasComposite(const Expr& e) {
  for (const Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) {
      if (atom->kind != Atom::Kind::kSymbol) return true;
    }
  }
  return false;
}

// e == base + stride * atom with neither using it outside of composite atoms.
std::optional<Expr::Affine> Isolate(const Expr& e, const AtomRef& atom) {
  Expr::Affine affine{0, 0};
  for (const Term& term : e.terms()) {
    Expr::Monomial rest;
    for (const AtomRef& factor : term.monomial) {
      if (factor->key != atom->key) rest.push_back(factor);
    }
    const size_t power = term.monomial.size() - rest.size();
    if (power > 1) return std::nullopt;
    (power == 0 ? affine.base : affine.stride) += Expr::Of(Term{term.coefficient, std::move(rest)});
  }
  return affine;
}

uint64_t Magnitude(int64_t v) {
  return v < 0 ? -static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
}

// The largest term that divides both; its coefficient is positive.
Term CommonFactor(const Term& a, const Term& b) {
  const uint64_t gcd = std::gcd(Magnitude(a.coefficient), Magnitude(b.coefficient));
  Term common{gcd > INT64_MAX ? 1 : static_cast<int64_t>(gcd), {}};
  size_t j = 0;
  for (const AtomRef& atom : a.monomial) {
    while (j < b.monomial.size() && b.monomial[j]->key < atom->key) ++j;
    if (j == b.monomial.size()) break;
    if (b.monomial[j]->key == atom->key) {
      common.monomial.push_back(atom);
      ++j;
    }
  }
  return common;
}

// The largest term that divides all terms of `e`, which is not zero.
Term CommonFactor(const Expr& e) {
  Term common = e.terms()[0];
  for (const Term& term : e.terms()) common = CommonFactor(common, term);
  return common;
}

// a / b if that is a polynomial.
std::optional<Expr> ExactQuotient(const Expr& a, const Expr& b) {
  Expr quotient = Divide(a, b).quotient;
  if (quotient * b == a) return quotient;
  return std::nullopt;
}

// A common factor of two expressions that are not zero; its leading coefficient is positive.
Expr CommonFactor(const Expr& a, const Expr& b) {
  const Expr x = a.terms()[0].coefficient < 0 ? -1 * a : a;
  const Expr y = b.terms()[0].coefficient < 0 ? -1 * b : b;
  if (ExactQuotient(x, y)) return y;
  if (ExactQuotient(y, x)) return x;
  return Expr::Of(CommonFactor(CommonFactor(a), CommonFactor(b)));
}

// Every atom occurs once in `e`, so that treating terms and factors as independent loses nothing.
bool IsIndependent(const Expr& e) {
  absl::InlinedVector<const std::string*, 16> seen;
  for (const Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) {
      for (const std::string* key : seen) {
        if (*key == atom->key) return false;
      }
      seen.push_back(&atom->key);
    }
  }
  return true;
}

}  // namespace

// Answers one question; counts its steps, so that every question ends soon.
class BoundsProver {
 public:
  explicit BoundsProver(const Bounds& bounds) : ranges_(bounds.ranges_) {}

  // A number `e` is never below; the search stops at the first that reaches `goal`.
  std::optional<int64_t> Lower(const Expr& e, std::optional<int64_t> goal, int depth = 0);
  Interval Of(const Expr& e, int depth = 0);

 private:
  using Range = Bounds::Range;
  using Goal = std::optional<int64_t>;

  // base + stride * y with y between two expressions.
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

  // Interval arithmetic is exact for independent symbols with integer bounds.
  bool IsExact(const Expr& e) const;
  Interval OfAtom(const Atom& atom, int depth);
  AtomRef Choose(const Expr& e, bool symbolic_only) const;
  std::optional<int64_t> Between(const Expr::Affine& e, const Expr& lower, const Expr& upper,
                                 Goal goal, int depth);
  std::optional<int64_t> LowerMinMax(const Expr::Affine& e, const Atom& atom, Goal goal, int depth);
  std::optional<int64_t> LowerFloorDiv(const Expr::Affine& e, const Atom& atom, Goal goal,
                                       int depth);
  std::optional<Related> Relate(const Expr::Affine& e, const Atom& atom);
  std::optional<Expr> Extreme(Expr e, bool maximum);
  std::optional<int64_t> FromLowest(const Expr& e);

  const std::map<std::string, Range, std::less<>>& ranges_;
  int steps_ = 0;
};

Interval BoundsProver::OfAtom(const Atom& atom, int depth) {
  if (depth > kMaxDepth) return {};
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

// Treats the terms as independent.
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

// The atom to eliminate next: composites from the outside in, then symbols before those their
// bounds use, then (unless `symbolic_only`) those with integer bounds. Null if none can go.
AtomRef BoundsProver::Choose(const Expr& e, bool symbolic_only) const {
  AtomRef best;
  const auto atoms = AtomsOf(e);
  for (const auto& [key, atom] : atoms) {
    // An atom inside another has the shorter key.
    if (atom->kind != Atom::Kind::kSymbol && (!best || key.size() > best->key.size())) best = atom;
  }
  if (best) return best;
  for (const auto& [key, atom] : atoms) {
    const Range* range = Find(*atom);
    if (range == nullptr || (symbolic_only && !IsSymbolic(*range))) continue;
    if (!Isolate(e, atom)) continue;
    const Range* other = best ? Find(*best) : nullptr;
    if (other == nullptr || (IsSymbolic(*range) && !IsSymbolic(*other)) ||
        range->lower.Uses(best->symbol) || range->upper.Uses(best->symbol)) {
      best = atom;
    }
  }
  return best;
}

// The least value of base + stride * x for x between two expressions: at one of the two ends.
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
  // Towards its own extreme either argument bounds the atom; otherwise it may be any of the two.
  const bool either = atom.kind == Atom::Kind::kMin ? sign.hi && *sign.hi <= 0
                                                    : sign.lo && *sign.lo >= 0;
  std::optional<int64_t> a = Lower(e.base + e.stride * atom.args[0], goal, depth);
  if (either ? Reached(a, goal) : !a || (goal && *a < *goal)) return a;
  std::optional<int64_t> b = Lower(e.base + e.stride * atom.args[1], goal, depth);
  return either ? Better(a, b) : Lesser(a, b);
}

// k * floordiv(a, k*m) is in [floordiv(a, m) - (k - 1), floordiv(a, m)]: exact for mod, and for what
// is left of a mod after another division. Here k is what the stride and the divisor share.
std::optional<BoundsProver::Related> BoundsProver::Relate(const Expr::Affine& e, const Atom& atom) {
  if (atom.kind != Atom::Kind::kFloorDiv || e.stride.IsConstant(0)) return std::nullopt;
  const Expr &a = atom.args[0], &d = atom.args[1];
  if (d.constant() && *d.constant() <= 0) return std::nullopt;
  const Expr k = CommonFactor(e.stride, d);
  if (k.overflow() || k.IsConstant(1)) return std::nullopt;
  if (k != d) {
    // k*m >= 1 wherever the quotient has a value, so k >= 0 is enough for k >= 1.
    const Interval range = Of(k);
    if (!range.lo || *range.lo < 0) return std::nullopt;
  }
  const std::optional<Expr> stride = ExactQuotient(e.stride, k), m = ExactQuotient(d, k);
  if (!stride || !m) return std::nullopt;
  Expr upper = FloorDiv(a, *m);
  return Related{{e.base, *stride}, upper - k + 1, upper};
}

std::optional<int64_t> BoundsProver::LowerFloorDiv(const Expr::Affine& e, const Atom& atom,
                                                   Goal goal, int depth) {
  const Expr &a = atom.args[0], &d = atom.args[1];
  std::optional<int64_t> best;
  if (const std::optional<Related> r = Relate(e, atom)) {
    best = Between(r->affine, r->lower, r->upper, goal, depth);
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
  return best;
}

// An expression over integer-bounded symbols that `e` never passes.
std::optional<Expr> BoundsProver::Extreme(Expr e, bool maximum) {
  while (const AtomRef atom = Choose(e, /*symbolic_only=*/true)) {
    if (++steps_ > kMaxSteps) return std::nullopt;
    const std::optional<Expr::Affine> affine = Isolate(e, atom);
    if (!affine) return std::nullopt;
    std::optional<Related> r;
    if (const Range* range = Find(*atom)) {
      r = Related{*affine, range->lower, range->upper};
    } else {
      r = Relate(*affine, *atom);
    }
    if (!r) return std::nullopt;
    const Interval sign = Of(r->affine.stride);
    const bool rising = sign.lo && *sign.lo >= 0;
    if (!rising && !(sign.hi && *sign.hi <= 0)) return std::nullopt;
    e = r->affine.base + r->affine.stride * (rising == maximum ? r->upper : r->lower);
  }
  return e;
}

// Writes every symbol as its integer minimum plus something not negative: if no coefficient is
// negative then, the constant term is the minimum. Needs no upper bounds and takes powers.
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
  if (depth > kMaxDepth || ++steps_ > kMaxSteps) return best;
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

namespace {

class Simplifier {
 public:
  explicit Simplifier(const Bounds& bounds) : bounds_(bounds) {}

  Expr Simplify(const Expr& e) {
    Expr result = e;
    for (int round = 0; round < kMaxRewrites && HasComposite(result); ++round) {
      Expr next = Once(result);
      if (next == result || next.overflow()) break;
      result = std::move(next);
    }
    return result;
  }

 private:
  Expr Once(const Expr& e) {
    Expr sum = 0;
    for (const Term& term : e.terms()) {
      Expr::Monomial symbols;
      Expr product = 1;
      for (const AtomRef& atom : term.monomial) {
        if (atom->kind == Atom::Kind::kSymbol) {
          symbols.push_back(atom);
        } else {
          product *= Rewrite(*atom);
        }
      }
      sum += Expr::Of(Term{term.coefficient, std::move(symbols)}) * product;
    }
    return sum;
  }

  Expr Rewrite(const Atom& atom) {
    auto known = rewritten_.find(atom.key);
    if (known != rewritten_.end()) return known->second;
    const Expr a = Simplify(atom.args[0]), b = Simplify(atom.args[1]);
    Expr result;
    if (atom.kind == Atom::Kind::kFloorDiv) {
      result = Quotient(a, b);
    } else {
      const bool min = atom.kind == Atom::Kind::kMin;
      if (bounds_.NonNegative(b - a)) {
        result = min ? a : b;
      } else if (bounds_.NonNegative(a - b)) {
        result = min ? b : a;
      } else {
        result = min ? MinOf(a, b) : MaxOf(a, b);
      }
    }
    rewritten_.emplace(atom.key, result);
    return result;
  }

  Expr Quotient(Expr a, Expr b) {
    Expr quotient = 0;
    if (b.constant() && *b.constant() <= 0) return FloorDiv(a, b);
    for (int round = 0; round < kMaxRewrites; ++round) {
      const Division d = athanor::Divide(a, b);
      if (d.remainder.overflow()) return d.remainder;
      quotient += d.quotient;
      if (d.remainder.IsConstant(0)) return quotient;
      a = d.remainder;
      b = d.divisor;
      if (std::optional<Expr> value = Decide(a, b)) return quotient + *value;
      if (!CancelFactor(&a, &b)) break;
    }
    return quotient + FloorDiv(a, b);
  }

  std::optional<Expr> Decide(const Expr& a, const Expr& b) {
    if (bounds_.Less(a, b)) {
      if (bounds_.NonNegative(a)) return Expr(0);
      if (bounds_.NonNegative(-1 - a) && bounds_.NonNegative(a + b)) return Expr(-1);
    }
    if (std::optional<int64_t> d = b.constant(); d && *d > 0) {
      const std::optional<int64_t> lo = bounds_.Minimum(a), hi = bounds_.Maximum(a);
      if (lo && hi && Floor(*lo, *d) == Floor(*hi, *d)) return Expr(Floor(*lo, *d));
      return DecideByRepresentatives(a, *d);
    }
    return std::nullopt;
  }

  // The normal form keeps coefficients in [0, d). With some of them in [-d, 0) instead the range
  // may fit between two multiples of d: floordiv(11*x + 11, 12) is x + floordiv(11 - x, 12) == x.
  std::optional<Expr> DecideByRepresentatives(const Expr& a, int64_t d) {
    struct Part {
      const Term* term;
      Interval range;
    };
    std::vector<Part> parts;
    int64_t constant = 0;
    for (const Term& term : a.terms()) {
      if (term.monomial.empty()) {
        constant = term.coefficient;
        continue;
      }
      const Expr monomial = Expr::Of(Term{1, term.monomial});
      const Interval range{bounds_.Minimum(monomial), bounds_.Maximum(monomial)};
      if (!range.lo || !range.hi || parts.size() == kMaxSubsetTerms) return std::nullopt;
      parts.push_back({&term, range});
    }
    for (uint32_t mask = 1; mask < 1u << parts.size(); ++mask) {
      Interval sum{constant, constant};
      for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t c = parts[i].term->coefficient;
        sum = Add(sum, Scale(parts[i].range, mask >> i & 1 ? c - d : c));
      }
      if (!sum.lo || !sum.hi || Floor(*sum.lo, d) != Floor(*sum.hi, d)) continue;
      Expr value = Floor(*sum.lo, d);
      for (size_t i = 0; i < parts.size(); ++i) {
        if (mask >> i & 1) value += Expr::Of(Term{1, parts[i].term->monomial});
      }
      return value;
    }
    return std::nullopt;
  }

  // floordiv(c*x + y, c*z) == floordiv(x, z) where 0 <= y < c is proved.
  bool CancelFactor(Expr* a, Expr* b) {
    const Term common = CommonFactor(*b);
    std::vector<Expr> tried = {1};
    for (const Term& term : a->terms()) {
      const Expr c = Expr::Of(CommonFactor(common, term));
      if (std::find(tried.begin(), tried.end(), c) != tried.end()) continue;
      tried.push_back(c);
      Expr x = 0, y = 0;
      for (const Term& part : a->terms()) {
        const Expr whole = Expr::Of(part);
        const std::optional<Expr> quotient = ExactQuotient(whole, c);
        (quotient ? x : y) += quotient ? *quotient : whole;
      }
      // c*z >= 1 wherever the quotient has a value, so c >= 0 is enough for c > 0.
      const bool proper = y.IsConstant(0) ? bounds_.NonNegative(c)
                                          : bounds_.NonNegative(y) && bounds_.Less(y, c);
      const std::optional<Expr> z = ExactQuotient(*b, c);
      if (!proper || !z) continue;
      *a = x;
      *b = *z;
      return true;
    }
    return false;
  }

  const Bounds& bounds_;
  std::map<std::string, Expr, std::less<>> rewritten_;
};

}  // namespace

void Bounds::Set(std::string_view symbol, Expr lower, Expr upper) {
  ranges_.insert_or_assign(std::string(symbol), Range{std::move(lower), std::move(upper)});
}

bool Bounds::NonNegative(const Expr& e) const {
  const std::optional<int64_t> lower = BoundsProver(*this).Lower(e, 0);
  return lower && *lower >= 0;
}

std::optional<int64_t> Bounds::Minimum(const Expr& e) const {
  return BoundsProver(*this).Lower(e, std::nullopt);
}

std::optional<int64_t> Bounds::Maximum(const Expr& e) const {
  const std::optional<int64_t> lower = Minimum(-1 * e);
  if (!lower || *lower == INT64_MIN) return std::nullopt;
  return -*lower;
}

Expr Bounds::Simplify(const Expr& e) const { return Simplifier(*this).Simplify(e); }

}  // namespace athanor
