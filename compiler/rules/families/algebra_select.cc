// Algebra of selects and casts.
#include "compiler/rules/families/algebra.h"
#include "compiler/rules/families/row_terms.h"

namespace athanor {
namespace {

using egraph::Match;
using Specs = std::vector<egraph::RuleSpec>;

Specs SelectSame(const TermLanguage&, const FactsAnalysis&) {
  return {{.premises = {"(Select ?_ ?x ?x)"}, .conclusions = {"?x"}}};
}

void SelectSameExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size();
  const NodeId c = e.Input({rows, columns}, DType::kBool), x = e.Input({rows, columns});
  e.Output(e.x().Add(Op::kSelect, {c, x, x}));
}

Specs SelectByNot(const TermLanguage&, const FactsAnalysis&) {
  return {{.premises = {"(Select (Not ?c) ?x ?y)"}, .conclusions = {"(Select ?c ?y ?x)"}}};
}

void SelectByNotExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size();
  const NodeId c = e.Input({rows, columns}, DType::kBool);
  const NodeId x = e.Input({rows, columns}), y = e.Input({rows, columns});
  e.Output(e.x().Add(Op::kSelect, {e.x().Add(Op::kNot, {c}), x, y}));
}

// Returns the bits of the significand, including the hidden bit, for floats that hold negative
// numbers and zero; 0 for others.
int Digits(DType dtype) {
  switch (dtype) {
    case DType::kF8E5M2:
      return 3;
    case DType::kF8E4M3:
      return 4;
    case DType::kBF16:
      return 8;
    case DType::kF16:
      return 11;
    case DType::kF32:
      return 24;
    case DType::kF64:
      return 53;
    default:
      return 0;
  }
}

// Reports whether `to` can hold every value of `from`, and a Cast keeps it.
bool Holds(DType to, DType from) {
  if (from == to) return true;
  if (!Computes(to) || to == DType::kBool) return false;
  if (from == DType::kBool) return true;
  const int bits = 8 * DTypeBytes(from);
  if (IsInteger(from)) {
    const int magnitude = IsSigned(from) ? bits - 1 : bits;
    if (IsFloat(to)) return magnitude <= Digits(to);
    return (IsSigned(to) || !IsSigned(from)) &&
           magnitude <= 8 * DTypeBytes(to) - (IsSigned(to) ? 1 : 0);
  }
  if (!IsFloat(to) || Digits(from) == 0) return false;
  // The exponent range grows with the digits, except that bf16 has the range of f32, and e5m2 that
  // of f16.
  if (from == DType::kBF16) return to == DType::kF32 || to == DType::kF64;
  return Digits(from) < Digits(to);
}

// A float outside the integer dtype saturates, but an integer keeps its low bits.
bool CastsAlike(DType from, DType through, DType to) {
  if (!Holds(through, from)) return false;
  return !(IsInteger(from) && IsFloat(through) && IsInteger(to)) || Holds(to, from);
}

Specs CastOfCast(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const DType to = GetAttr<DType>(t.AttrsOf(m, "to"), "dtype");
    const DType through = GetAttr<DType>(t.AttrsOf(m, "through"), "dtype");
    const NodeId x = e.Operand(m.Class("x"));
    if (!CastsAlike(e.Type(x).dtype, through, to)) return std::nullopt;
    return e.x().Add(Op::kCast, {x}, {{"dtype", to}});
  };
  return {{.premises = {"?y = (Cast[?to] (Cast[?through] ?x))"}, .apply = t.Equal("y", build)}};
}

void CastOfCastExample(ExampleBuilder& e) {
  struct Casts {
    DType from, through, to;
  };
  constexpr Casts kCasts[] = {
      {DType::kF32, DType::kF64, DType::kF16},  {DType::kF16, DType::kF32, DType::kI8},
      {DType::kBF16, DType::kF32, DType::kF16}, {DType::kI32, DType::kI64, DType::kI8},
      {DType::kI16, DType::kF32, DType::kI32},  {DType::kU8, DType::kBF16, DType::kF32},
      {DType::kBool, DType::kI32, DType::kF32}, {DType::kF16, DType::kF32, DType::kBool},
      {DType::kU8, DType::kI16, DType::kU8},
  };
  for (const Casts& c : kCasts) {
    const NodeId x = e.Input({e.Size()}, c.from);
    e.Output(e.x().Cast(e.x().Cast(x, c.through), c.to));
  }
}

Specs CastToItself(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const egraph::Condition same("is of its dtype", {"to", "x"}, [t](const Match& m) {
    return GetAttr<DType>(t.AttrsOf(m, "to"), "dtype") == t.Type(m, "x").dtype;
  });
  return {{.premises = {"(Cast[?to] ?x)"}, .conclusions = {"?x"}, .conditions = {same}}};
}

void CastToItselfExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()});
  e.Output(e.x().Add(Op::kCast, {x}, {{"dtype", e.dtype()}}));
}

}  // namespace

std::vector<RuleRow> SelectionRows() {
  constexpr std::string_view kFamily = "algebra";
  constexpr RuleClass kExact = RuleClass::kExact;
  return {
      {"select_same", kFamily, kExact, "select(c, x, x) = x", SelectSame, nullptr, nullptr,
       SelectSameExample},
      {"select_by_not", kFamily, kExact, "select(not(c), x, y) = select(c, y, x)", SelectByNot,
       nullptr, nullptr, SelectByNotExample},
      {"cast_of_cast", kFamily, kExact,
       "cast(cast(x)) = cast(x) where the dtype between holds every value of x's", CastOfCast,
       nullptr, nullptr, CastOfCastExample},
      {"cast_to_itself", kFamily, kExact, "cast(x) = x where x has that dtype", CastToItself,
       nullptr, nullptr, CastToItselfExample},
  };
}

}  // namespace athanor
