// Common factors and exact quotients of expressions.
#include <numeric>

#include "compiler/ir/expr/expr_internal.h"

namespace athanor::expr_internal {

using Term = Expr::Term;

std::map<std::string_view, AtomRef> AtomsOf(const Expr& e) {
  std::map<std::string_view, AtomRef> atoms;
  for (const Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) atoms.emplace(atom->key, atom);
  }
  return atoms;
}

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

bool HasComposite(const Expr& e) {
  for (const Term& term : e.terms()) {
    for (const AtomRef& atom : term.monomial) {
      if (atom->kind != Atom::Kind::kSymbol) return true;
    }
  }
  return false;
}

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

Term CommonFactor(const Expr& e) {
  Term common = e.terms()[0];
  for (const Term& term : e.terms()) common = CommonFactor(common, term);
  return common;
}

std::optional<Expr> ExactQuotient(const Expr& a, const Expr& b) {
  Expr quotient = Divide(a, b).quotient;
  if (quotient * b == a) return quotient;
  return std::nullopt;
}

Expr CommonFactor(const Expr& a, const Expr& b) {
  const Expr x = a.terms()[0].coefficient < 0 ? -1 * a : a;
  const Expr y = b.terms()[0].coefficient < 0 ? -1 * b : b;
  if (ExactQuotient(x, y)) return y;
  if (ExactQuotient(y, x)) return x;
  return Expr::Of(CommonFactor(CommonFactor(a), CommonFactor(b)));
}

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
