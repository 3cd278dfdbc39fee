#include "compiler/codegen/kir/index_bits.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace athanor::kir {
namespace {

bool InRange(const Expr& e, const Bounds& bounds) {
  const std::optional<int64_t> least = bounds.Minimum(e), most = bounds.Maximum(e);
  return least && most && *least >= -INT32_MAX && *most <= INT32_MAX;
}

bool Fits(const Expr& e, const Bounds& bounds) {
  Expr sum;
  for (const Expr::Term& term : e.terms()) {
    Expr product = term.coefficient;
    if (!InRange(product, bounds)) return false;
    for (const AtomRef& atom : term.monomial) {
      const Expr factor = Expr::Of(atom);
      product *= factor;
      if (!InRange(factor, bounds) || !InRange(product, bounds)) return false;
      if (!std::all_of(atom->args.begin(), atom->args.end(),
                       [&](const Expr& arg) { return Fits(arg, bounds); })) {
        return false;
      }
    }
    sum += product;
    if (!InRange(sum, bounds)) return false;
  }
  return !e.overflow();
}

}  // namespace

bool FitsI32(const Stmt& stmt, const Bounds& bounds) {
  std::vector<Expr> computed = {stmt.begin, stmt.end};
  if (stmt.count) computed.push_back(*stmt.count);
  if (stmt.type.lanes == 1 || !stmt.index.Uses(kLane)) {
    computed.push_back(stmt.index);
  } else if (const std::optional<Expr::Affine> affine = stmt.index.AsAffine(kLane)) {
    computed.insert(computed.end(), {affine->base, affine->stride});
  } else {
    return false;
  }
  std::erase_if(computed, [](const Expr& e) { return e.constant() || e.symbol(); });
  return !computed.empty() && stmt.matrices.empty() &&
         std::all_of(computed.begin(), computed.end(),
                     [&](const Expr& e) { return Fits(e, bounds); });
}

}  // namespace athanor::kir
