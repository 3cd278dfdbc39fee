// Common factors and exact quotients of expressions.
#include <numeric>

#include "compiler/ir/expr_internal.h"

namespace athanor::expr_internal {

using Term = Expr::Term;

bool HasComposite(const Expr& e) {
  for (const Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) {
      if (atom->kind != Atom::Kind::kSymbol) return true;
    }
  }
  return false;
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

}  // namespace athanor::expr_internal
