#include "compiler/ir/expr/coordinate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::StatusOr<Coordinate> Coordinate::Compile(const Expr& e, const Expr::Env& dims, int rank) {
  Coordinate coordinate;
  for (const Expr::Term& term : e.terms()) {
    Term compiled{term.coefficient, {}};
    for (const AtomRef& atom : term.monomial) {
      ASSIGN_OR_RETURN(Factor factor, CompileAtom(*atom, dims, rank));
      const bool constant = factor.kind == Atom::Kind::kSymbol && factor.axis < 0;
      int64_t product;
      if (constant && !__builtin_mul_overflow(compiled.coefficient, factor.value, &product)) {
        compiled.coefficient = product;
        continue;
      }
      compiled.factors.push_back(std::move(factor));
    }
    coordinate.terms_.push_back(std::move(compiled));
  }
  return coordinate;
}

std::optional<int64_t> Coordinate::Evaluate(absl::Span<const int64_t> axes) const {
  int64_t sum = 0;
  for (const Term& term : terms_) {
    int64_t product = term.coefficient;
    for (const Factor& factor : term.factors) {
      const std::optional<int64_t> value = EvaluateFactor(factor, axes);
      if (!value || __builtin_mul_overflow(product, *value, &product)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
  }
  return sum;
}

bool Coordinate::Uses(int axis) const {
  return std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    return std::any_of(term.factors.begin(), term.factors.end(),
                       [&](const Factor& factor) { return FactorUses(factor, axis); });
  });
}

bool Coordinate::FactorUses(const Factor& factor, int axis) {
  if (factor.kind == Atom::Kind::kSymbol) return factor.axis == axis;
  return factor.args[0].Uses(axis) || factor.args[1].Uses(axis);
}

std::optional<int64_t> Coordinate::SlopeAlong(int axis) const {
  int64_t slope = 0;
  for (const Term& term : terms_) {
    const bool uses = std::any_of(term.factors.begin(), term.factors.end(),
                                  [&](const Factor& factor) { return FactorUses(factor, axis); });
    if (!uses) continue;
    const bool alone = term.factors.size() == 1 && term.factors[0].kind == Atom::Kind::kSymbol;
    if (!alone || __builtin_add_overflow(slope, term.coefficient, &slope)) return std::nullopt;
  }
  return slope;
}

absl::StatusOr<Coordinate::Factor> Coordinate::CompileAtom(const Atom& atom, const Expr::Env& dims,
                                                           int rank) {
  Factor factor{atom.kind};
  if (atom.kind == Atom::Kind::kSymbol) {
    const auto dim = dims.find(atom.symbol);
    for (int i = 0; i < rank; ++i) {
      if (Expr::Axis(i).symbol() == atom.symbol) factor.axis = i;
    }
    if (factor.axis < 0 && dim == dims.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "index map uses ", atom.symbol, ", which is neither a dim nor an axis below $", rank));
    }
    if (factor.axis < 0) factor.value = dim->second;
    return factor;
  }
  for (const Expr& arg : atom.args) {
    ASSIGN_OR_RETURN(Coordinate compiled, Compile(arg, dims, rank));
    factor.args.push_back(std::move(compiled));
  }
  return factor;
}

std::optional<int64_t> Coordinate::EvaluateFactor(const Factor& factor,
                                                  absl::Span<const int64_t> axes) {
  if (factor.kind == Atom::Kind::kSymbol) {
    return factor.axis < 0 ? factor.value : axes[factor.axis];
  }
  const std::optional<int64_t> a = factor.args[0].Evaluate(axes);
  const std::optional<int64_t> b = factor.args[1].Evaluate(axes);
  if (!a || !b) return std::nullopt;
  if (factor.kind == Atom::Kind::kMin) return std::min(*a, *b);
  if (factor.kind == Atom::Kind::kMax) return std::max(*a, *b);
  if (*b <= 0) return std::nullopt;
  return *a / *b - (*a % *b < 0);
}

}  // namespace athanor
