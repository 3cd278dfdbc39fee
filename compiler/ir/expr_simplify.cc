// Rewriting of FloorDiv, Min and Max atoms that bounds decide.
#include <algorithm>

#include "compiler/ir/expr.h"
#include "compiler/ir/expr_internal.h"

namespace athanor {
namespace {

using expr_internal::Add;
using expr_internal::AtomsOf;
using expr_internal::CommonFactor;
using expr_internal::ExactQuotient;
using expr_internal::FloorDivide;
using expr_internal::HasComposite;
using expr_internal::Interval;
using expr_internal::Isolate;
using expr_internal::IsIndependent;
using expr_internal::Scale;
using Term = Expr::Term;

constexpr size_t kMaxSubsetTerms = 5;   // 32 choices of representatives
constexpr size_t kMaxRelatedTerms = 3;  // 8 choices, each a question
constexpr int kMaxRewrites = 8;

}  // namespace

class BoundsSimplifier {
 public:
  explicit BoundsSimplifier(const Bounds& bounds) : bounds_(bounds) {}

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
    if (bounds_.Proves(b - a - 1)) {
      if (bounds_.Proves(a)) return Expr(0);
      if (bounds_.Proves(-1 - a) && bounds_.Proves(a + b)) return Expr(-1);
    }
    if (std::optional<int64_t> d = b.constant(); d && *d > 0) {
      const std::optional<int64_t> lo = bounds_.Minimum(a), hi = bounds_.Maximum(a);
      if (lo && hi && FloorDivide(*lo, *d) == FloorDivide(*hi, *d)) return Expr(FloorDivide(*lo, *d));
      return DecideByRepresentatives(a, *d);
    }
    return std::nullopt;
  }

  // The normal form keeps coefficients in (-d/2, d/2]. With some of them moved by d the range may
  // fit between two multiples of d: floordiv(-4*x + y, 12) is floordiv(8*x + y, 12) - x, which is
  // -x for x in [0, 1] and y in [0, 3].
  std::optional<Expr> DecideByRepresentatives(const Expr& a, int64_t d) {
    std::vector<const Term*> parts;
    std::vector<Interval> ranges;
    int64_t constant = 0;
    for (const Term& term : a.terms()) {
      if (term.monomial.empty()) {
        constant = term.coefficient;
        continue;
      }
      const Expr monomial = Expr::Of(Term{1, term.monomial});
      const Interval range{bounds_.Minimum(monomial), bounds_.Maximum(monomial)};
      if (!range.lo || !range.hi || parts.size() == kMaxSubsetTerms) return std::nullopt;
      parts.push_back(&term);
      ranges.push_back(range);
    }
    const bool related = !IsIndependent(a) || HasComposite(a);
    for (uint32_t mask = 1; mask < 1u << parts.size(); ++mask) {
      Interval sum{constant, constant};
      Expr moved = 0;
      for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t c = parts[i]->coefficient;
        const int64_t by = mask >> i & 1 ? (c > 0 ? -1 : 1) : 0;
        sum = Add(sum, Scale(ranges[i], c + by * d));
        if (by != 0) moved += Expr::Of(Term{by, parts[i]->monomial});
      }
      if (related && parts.size() <= kMaxRelatedTerms) {
        const Expr b = a + d * moved;
        sum = {bounds_.Minimum(b), bounds_.Maximum(b)};
      }
      if (sum.lo && sum.hi && FloorDivide(*sum.lo, d) == FloorDivide(*sum.hi, d)) {
        return FloorDivide(*sum.lo, d) - moved;
      }
    }
    return std::nullopt;
  }

  // floordiv(c*x + y, c*z) == floordiv(x, z) where 0 <= y < c is proved.
  bool CancelFactor(Expr* a, Expr* b) const {
    const Term common = CommonFactor(*b);
    std::vector<Expr> tried = {1};
    auto attempt = [&](const Expr& c, auto split) {
      if (std::find(tried.begin(), tried.end(), c) != tried.end()) return false;
      tried.push_back(c);
      const auto [x, y] = split(c);
      // c*z >= 1 wherever the quotient has a value, so c >= 0 is enough for c > 0.
      const bool proper = y.IsConstant(0) ? bounds_.Proves(c)
                                          : bounds_.Proves(y) && bounds_.Proves(c - y - 1);
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

  // x and y of e == c*x + y, where c divides no term of y.
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
  std::map<std::string, Expr, std::less<>> rewritten_;
};

Expr Bounds::SimplifyAtoms(const Expr& e) const { return BoundsSimplifier(*this).Simplify(e); }

}  // namespace athanor
