// Rewriting of FloorDiv, Min and Max atoms that bounds decide.
#include <algorithm>

#include "compiler/ir/expr.h"
#include "compiler/ir/expr_internal.h"

namespace athanor {
namespace {

using expr_internal::Add;
using expr_internal::CommonFactor;
using expr_internal::ExactQuotient;
using expr_internal::FloorDivide;
using expr_internal::HasComposite;
using expr_internal::Interval;
using expr_internal::IsIndependent;
using expr_internal::Scale;
using Term = Expr::Term;

constexpr size_t kMaxSubsetTerms = 5;   // 32 choices of representatives
constexpr size_t kMaxRelatedTerms = 3;  // 8 choices, each a question
constexpr size_t kMaxModTerms = 4;
constexpr int kMaxRewrites = 8;

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
    if (std::optional<Expr> value = DecideByMod(a, b)) return value;
    if (std::optional<int64_t> d = b.constant(); d && *d > 0) {
      const std::optional<int64_t> lo = bounds_.Minimum(a), hi = bounds_.Maximum(a);
      if (lo && hi && FloorDivide(*lo, *d) == FloorDivide(*hi, *d)) return Expr(FloorDivide(*lo, *d));
      return DecideByRepresentatives(a, *d);
    }
    return std::nullopt;
  }

  bool IsProper(const Expr& a, const Expr& b) const {
    return bounds_.Less(a, b) && bounds_.NonNegative(a);
  }

  // The normal form takes c*m*floordiv(x, m) out of c*mod(x, m) if the divisor is c*m. Puts it back
  // for one or two terms c*x: floordiv(c*x + y, c*m) == floordiv(x, m) where
  // 0 <= c*mod(x, m) + y < c*m.
  std::optional<Expr> DecideByMod(const Expr& a, const Expr& b) const {
    std::vector<Expr> quotients;
    for (const Term& term : a.terms()) {
      if (term.coefficient < 0 || !HasComposite(Expr::Of(Term{1, term.monomial}))) continue;
      const Expr c = CommonFactor(Expr::Of(term), b);
      if (c.constant() == 1) continue;
      const std::optional<Expr> x = ExactQuotient(Expr::Of(term), c), m = ExactQuotient(b, c);
      if (!x || !m || !HasComposite(*x)) continue;
      const Expr quotient = FloorDiv(*x, *m);
      if (IsProper(a - b * quotient, b)) return quotient;
      if (quotients.size() < kMaxModTerms) quotients.push_back(quotient);
    }
    for (size_t i = 0; i < quotients.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const Expr quotient = quotients[i] + quotients[j];
        if (IsProper(a - b * quotient, b)) return quotient;
      }
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

Expr Bounds::Simplify(const Expr& e) const { return Simplifier(*this).Simplify(e); }

}  // namespace athanor
