// Division in normal form: takes multiples of the divisor out of a quotient and makes equal
// quotients identical.
#include <numeric>

#include "compiler/ir/expr/expr.h"
#include "compiler/ir/expr/expr_internal.h"

namespace athanor {
namespace {

using expr_internal::Compare;
using expr_internal::FloorDivide;
using expr_internal::Magnitude;
using Term = Expr::Term;
using Monomial = Expr::Monomial;

constexpr size_t kMaxDivisionWork = 1 << 14;  // number of terms read
constexpr int kMaxRounds = 64;

// Returns a / b if every factor of b is a factor of a.
std::optional<Monomial> Quotient(const Monomial& a, const Monomial& b) {
  if (b.size() > a.size()) return std::nullopt;
  Monomial quotient;
  size_t j = 0;
  for (const AtomRef& atom : a) {
    if (j < b.size() && Compare(atom, b[j]) == 0) {
      ++j;
    } else {
      quotient.push_back(atom);
    }
  }
  if (j != b.size()) return std::nullopt;
  return quotient;
}

// Returns the quotient that leaves a remainder in [0, |b|), or, if `balanced`, in (-|b|/2, |b|/2],
// which keeps the small negative coefficients of mods and reversals. Returns nullopt if it is zero.
std::optional<int64_t> TakeOut(int64_t a, int64_t b, bool balanced) {
  if (b == INT64_MIN) return std::nullopt;
  __int128 remainder = a % b;
  const __int128 size = b < 0 ? -static_cast<__int128>(b) : b;
  if (remainder < 0) remainder += size;
  if (balanced && 2 * remainder > size) remainder -= size;
  const __int128 q = (a - remainder) / b;
  if (q == 0 || q > INT64_MAX || q < INT64_MIN) return std::nullopt;
  return static_cast<int64_t>(q);
}

Expr DivideCoefficients(const Expr& e, int64_t by) {
  Expr result = 0;
  for (const Term& term : e.terms()) {
    result += Expr::Of(Term{FloorDivide(term.coefficient, by), term.monomial});
  }
  return result;
}

// floordiv(g*a + k, g*b) == floordiv(a + floordiv(k, g), b) for integers g > 0 and k.
bool CancelContent(Division* d) {
  uint64_t g = 0;
  for (const Term& term : d->divisor.terms()) g = std::gcd(g, Magnitude(term.coefficient));
  for (const Term& term : d->remainder.terms()) {
    if (!term.monomial.empty()) g = std::gcd(g, Magnitude(term.coefficient));
  }
  if (g <= 1 || g > INT64_MAX) return false;
  d->remainder = DivideCoefficients(d->remainder, static_cast<int64_t>(g));
  d->divisor = DivideCoefficients(d->divisor, static_cast<int64_t>(g));
  return true;
}

// floordiv(floordiv(a, b) + x, c) == floordiv(a + b*x, b*c).
bool Unnest(Division* d) {
  for (const Term& term : d->remainder.terms()) {
    if (term.coefficient != 1 || term.monomial.size() != 1) continue;
    const Atom& atom = *term.monomial[0];
    if (atom.kind != Atom::Kind::kFloorDiv) continue;
    const Expr& b = atom.args[1];
    if (b.constant().value_or(1) <= 0) continue;
    const Expr rest = d->remainder - Expr::Of(term.monomial[0]);
    const Expr numerator = atom.args[0] + b * rest, divisor = b * d->divisor;
    if (numerator.overflow() || divisor.overflow()) return false;
    d->remainder = numerator;
    d->divisor = divisor;
    return true;
  }
  return false;
}

}  // namespace

bool expr_internal::TakeOutMultiples(Division* d) {
  const Term& lead = d->divisor.terms()[0];
  Expr quotient = 0, rest = d->remainder;
  size_t i = 0;
  for (size_t work = 0; i < rest.terms().size();) {
    const Term& term = rest.terms()[i];
    std::optional<Monomial> m = Quotient(term.monomial, lead.monomial);
    std::optional<int64_t> q;
    if (m) q = TakeOut(term.coefficient, lead.coefficient, !term.monomial.empty());
    if (!q) {
      ++i;
      continue;
    }
    const Expr step = Expr::Of(Term{*q, *std::move(m)});
    quotient += step;
    // Terms before `i` are larger than any term of step * divisor.
    rest = rest - step * d->divisor;
    work += rest.terms().size() + quotient.terms().size();
    if (rest.overflow() || quotient.overflow() || work > kMaxDivisionWork) return false;
  }
  if (quotient.IsConstant(0)) return false;
  const Expr total = d->quotient + quotient;
  if (total.overflow()) return false;
  d->quotient = total;
  d->remainder = rest;
  return true;
}

Division Divide(const Expr& a, const Expr& b) {
  Division d{0, a, b};
  if (a.overflow() || b.overflow()) return {0, Expr::Overflowed(), b};
  std::optional<int64_t> divisor = b.constant();
  if (divisor && *divisor <= 0) return d;
  for (int round = 0; round < kMaxRounds; ++round) {
    bool changed = expr_internal::TakeOutMultiples(&d);
    changed |= CancelContent(&d);
    changed |= Unnest(&d);
    if (!changed) break;
  }
  // The remainder is a proper fraction of the divisor.
  const std::optional<int64_t> n = d.remainder.constant(), m = d.divisor.constant();
  if (n && m && *n >= 0 && *n < *m) d.remainder = 0;
  return d;
}

Expr FloorDiv(const Expr& a, const Expr& b) {
  Division d = Divide(a, b);
  if (d.remainder.IsConstant(0)) return d.quotient;
  if (d.remainder.overflow()) return d.remainder;
  return d.quotient + Expr::Composite(Atom::Kind::kFloorDiv, d.remainder, d.divisor);
}

Expr CeilDiv(const Expr& a, const Expr& b) { return FloorDiv(a + b - 1, b); }

}  // namespace athanor
