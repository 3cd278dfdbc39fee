// Rewrites FloorDiv, Min and Max atoms that bounds decide.
#include <algorithm>

#include "compiler/ir/expr/expr.h"
#include "compiler/ir/expr/expr_internal.h"

namespace athanor {
namespace {

using expr_internal::AtomsOf;
using expr_internal::CommonFactor;
using expr_internal::ExactQuotient;
using expr_internal::HasComposite;
using expr_internal::Isolate;
using Term = Expr::Term;

constexpr size_t kMaxSubsetTerms = 5;  // gives 32 choices of representatives
constexpr int kMaxRewrites = 8;

}  // namespace

class BoundsSimplifier {
 public:
  BoundsSimplifier(const Bounds& bounds, const Expr& whole) : bounds_(bounds), whole_(whole) {}

  Expr Simplify() { return Simplify(whole_); }

 private:
  using Search = Bounds::Search;

  Expr Simplify(const Expr& e) {
    Expr result = e;
    for (int round = 0; round < kMaxRewrites && HasComposite(result); ++round) {
      Expr next = Once(result);
      if (next == result || next.overflow()) break;
      result = std::move(next);
    }
    return result;
  }

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
      if (bounds_.Proves(b - a)) {
        result = min ? a : b;
      } else if (bounds_.Proves(a - b)) {
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
    // A cancelled factor may let the rest be divided further.
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
    if (bounds_.Proves(a, Search::kShort) && bounds_.Proves(b - a - 1, Search::kShort)) return 0;
    // Without a sample point, 0 is the best guess.
    const std::vector<std::optional<int64_t>> values = Sample(FloorDiv(a, b));
    std::optional<int64_t> k;
    if (AgreeOn(values, &k) && IsProper(a - k.value_or(0) * b, b)) return k.value_or(0);
    const std::optional<int64_t> d = b.constant();
    return d && *d > 0 ? DecideByRepresentatives(a, *d, values) : std::nullopt;
  }

  bool IsProper(const Expr& a, const Expr& b) const {
    return bounds_.Proves(a) && bounds_.Proves(b - a - 1);
  }

  // The normal form keeps coefficients in (-d/2, d/2]. After moving some of them by d, the range
  // may fit between two multiples of d: floordiv(-4*x + y, 12) is floordiv(8*x + y, 12) - x, which
  // is -x for x in [0, 1] and y in [0, 3].
  std::optional<Expr> DecideByRepresentatives(const Expr& a, int64_t d,
                                              const std::vector<std::optional<int64_t>>& values) {
    struct Part {
      Expr moved;
      std::vector<std::optional<int64_t>> values;
    };
    std::vector<Part> parts;
    for (const Term& term : a.terms()) {
      if (term.monomial.empty()) continue;
      if (parts.size() == kMaxSubsetTerms) return std::nullopt;
      const Expr moved = Expr::Of(Term{term.coefficient > 0 ? -1 : 1, term.monomial});
      parts.push_back({moved, Sample(moved)});
    }
    for (uint32_t mask = 1; mask < 1u << parts.size(); ++mask) {
      std::vector<std::optional<int64_t>> sums = values;
      Expr moved = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (!(mask >> i & 1)) continue;
        moved += parts[i].moved;
        for (size_t j = 0; j < sums.size(); ++j) {
          if (!sums[j] || !parts[i].values[j] ||
              __builtin_add_overflow(*sums[j], *parts[i].values[j], &*sums[j])) {
            sums[j].reset();
          }
        }
      }
      std::optional<int64_t> k;
      // A few points refute most choices, which is much cheaper than a failing proof.
      if (!AgreeOn(sums, &k) || !k) continue;
      if (IsProper(a + d * moved - *k * Expr(d), d)) return *k - moved;
    }
    return std::nullopt;
  }

  // Returns the values at a few points within the bounds.
  std::vector<std::optional<int64_t>> Sample(const Expr& e) {
    if (!points_) points_ = bounds_.Points(whole_);
    std::vector<std::optional<int64_t>> values;
    for (const Expr::Env& point : *points_) values.push_back(e.Evaluate(point));
    return values;
  }

  // Sets `value` to the one value that all known values share; leaves it if none is known. Returns
  // false if they differ.
  static bool AgreeOn(const std::vector<std::optional<int64_t>>& values,
                      std::optional<int64_t>* value) {
    for (const std::optional<int64_t>& v : values) {
      if (!v) continue;
      if (*value && *value != v) return false;
      *value = v;
    }
    return true;
  }

  bool IsProperAtPoints(const Expr& a, const Expr& b) {
    for (const std::optional<int64_t>& v : Sample(a)) {
      if (v && *v < 0) return false;
    }
    for (const std::optional<int64_t>& v : Sample(b - a - 1)) {
      if (v && *v < 0) return false;
    }
    return true;
  }

  // floordiv(c*x + y, c*z) == floordiv(x, z) if 0 <= y < c is proved.
  bool CancelFactor(Expr* a, Expr* b) {
    const Term common = CommonFactor(*b);
    std::vector<Expr> tried = {1};
    auto attempt = [&](const Expr& c, auto split) {
      if (std::find(tried.begin(), tried.end(), c) != tried.end()) return false;
      tried.push_back(c);
      const auto [x, y] = split(c);
      // c*z >= 1 wherever the quotient has a value, so proving c >= 0 is enough for c > 0.
      const bool proper =
          y.IsConstant(0) ? bounds_.Proves(c) : IsProperAtPoints(y, c) && IsProper(y, c);
      const std::optional<Expr> z = ExactQuotient(*b, c);
      if (!proper || !z) return false;
      *a = x;
      *b = *z;
      return true;
    };
    for (const Term& term : a->terms()) {
      if (attempt(Expr::Of(CommonFactor(common, term)),
                  [&](const Expr& c) { return TermsDividedBy(*a, c); })) {
        return true;
      }
    }
    if (b->terms().size() == 1) return false;
    for (const auto& [key, atom] : AtomsOf(*a)) {
      const std::optional<Expr::Affine> affine = Isolate(*a, atom);
      if (!affine || affine->stride.terms().size() == 1) continue;
      if (attempt(CommonFactor(affine->stride, *b), [&](const Expr& c) {
            Division d{0, *a, c};
            expr_internal::TakeOutMultiples(&d);
            return std::pair(d.quotient, d.remainder);
          })) {
        return true;
      }
    }
    return false;
  }

  // Splits e into c*x + y, where c divides no term of y. Returns x and y.
  static std::pair<Expr, Expr> TermsDividedBy(const Expr& e, const Expr& c) {
    Expr x = 0, y = 0;
    for (const Term& term : e.terms()) {
      const Expr whole = Expr::Of(term);
      const std::optional<Expr> quotient = ExactQuotient(whole, c);
      (quotient ? x : y) += quotient ? *quotient : whole;
    }
    return {x, y};
  }

  const Bounds& bounds_;
  const Expr& whole_;
  std::optional<std::vector<Expr::Env>> points_;
  std::map<std::string, Expr, std::less<>> rewritten_;
};

Expr Bounds::SimplifyAtoms(const Expr& e) const { return BoundsSimplifier(*this, e).Simplify(); }

}  // namespace athanor
