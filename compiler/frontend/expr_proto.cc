#include "compiler/frontend/expr_proto.h"

#include <string>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

class Reader {
 public:
  explicit Reader(const ExprLimits& limits) : limits_(limits), left_(limits.max_size) {}

  absl::StatusOr<Expr> Sum(const v1::SizeExpr& message, int depth) {
    if (depth > limits_.max_depth) {
      return Invalid("size expression is nested deeper than ", limits_.max_depth,
                     " levels (--max_nesting)");
    }
    Expr sum;
    for (const v1::SizeExpr::Term& term : message.terms()) {
      absl::StatusOr<Expr> product = Product(term, depth);
      if (!product.ok()) return product;
      sum += *product;
      if (IsTooLarge(sum)) return Overflow();
    }
    return sum;
  }

 private:
  bool IsTooLarge(const Expr& e) const {
    return e.overflow() || static_cast<int64_t>(e.terms().size()) > limits_.max_size;
  }

  absl::Status Overflow() const {
    return Invalid(
        "size expression overflows: its coefficients must fit in 64 bits, and multiplied "
        "out it must have at most ",
        limits_.max_size, " terms (--max_expr_size)");
  }

  absl::Status Spend() {
    if (--left_ >= 0) return absl::OkStatus();
    return Invalid("size expression has more than ", limits_.max_size,
                   " terms and factors (--max_expr_size)");
  }

  absl::StatusOr<Expr> Product(const v1::SizeExpr::Term& term, int depth) {
    RETURN_IF_ERROR(Spend());
    Expr product = term.coefficient();
    for (const v1::SizeExpr::Factor& message : term.factors()) {
      RETURN_IF_ERROR(Spend());
      absl::StatusOr<Expr> factor = Factor(message, depth);
      if (!factor.ok()) return factor;
      product *= *factor;
      if (IsTooLarge(product)) return Overflow();
    }
    return product;
  }

  absl::StatusOr<Expr> Factor(const v1::SizeExpr::Factor& factor, int depth) {
    switch (factor.kind_case()) {
      case v1::SizeExpr::Factor::kSymbol:
        if (!Expr::IsSymbolName(factor.symbol())) {
          return Invalid("symbol ", Quoted(factor.symbol()),
                         " must be a letter, '_' or '$', then letters, digits, '_', '$' or '.'");
        }
        return Expr::Symbol(factor.symbol());
      case v1::SizeExpr::Factor::kFloorDiv:
        return Apply(FloorDiv, factor.floor_div(), depth);
      case v1::SizeExpr::Factor::kMin:
        return Apply(MinOf, factor.min(), depth);
      case v1::SizeExpr::Factor::kMax:
        return Apply(MaxOf, factor.max(), depth);
      case v1::SizeExpr::Factor::KIND_NOT_SET:
        break;
    }
    return Invalid(
        "size expression has a factor without a kind; "
        "it must be symbol, floor_div, min or max");
  }

  absl::StatusOr<Expr> Apply(Expr (*function)(const Expr&, const Expr&),
                             const v1::SizeExpr::Pair& pair, int depth) {
    if (!pair.has_a() || !pair.has_b()) {
      return Invalid("size expression has a floor_div, min or max without both of its operands");
    }
    absl::StatusOr<Expr> a = Sum(pair.a(), depth + 1);
    if (!a.ok()) return a;
    absl::StatusOr<Expr> b = Sum(pair.b(), depth + 1);
    if (!b.ok()) return b;
    Expr result = function(*a, *b);
    if (IsTooLarge(result)) return Overflow();
    return result;
  }

  const ExprLimits limits_;
  int64_t left_;
};

v1::SizeExpr::Pair PairOf(const Atom& atom) {
  v1::SizeExpr::Pair pair;
  *pair.mutable_a() = ExprToProto(atom.args[0]);
  *pair.mutable_b() = ExprToProto(atom.args[1]);
  return pair;
}

}  // namespace

absl::StatusOr<Expr> ExprFromProto(const v1::SizeExpr& message, const ExprLimits& limits) {
  return Reader(limits).Sum(message, 0);
}

v1::SizeExpr ExprToProto(const Expr& expr) {
  v1::SizeExpr message;
  for (const Expr::Term& term : expr.terms()) {
    v1::SizeExpr::Term* out = message.add_terms();
    out->set_coefficient(term.coefficient);
    for (const AtomRef& atom : term.monomial) {
      v1::SizeExpr::Factor* factor = out->add_factors();
      switch (atom->kind) {
        case Atom::Kind::kSymbol:
          factor->set_symbol(atom->symbol);
          break;
        case Atom::Kind::kFloorDiv:
          *factor->mutable_floor_div() = PairOf(*atom);
          break;
        case Atom::Kind::kMin:
          *factor->mutable_min() = PairOf(*atom);
          break;
        case Atom::Kind::kMax:
          *factor->mutable_max() = PairOf(*atom);
          break;
      }
    }
  }
  return message;
}

}  // namespace athanor
