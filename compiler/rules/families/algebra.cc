// Algebra of elementwise ops and reductions. Rows about contractions are in algebra_contract.cc and
// algebra_share.cc.
#include "compiler/rules/families/algebra.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compiler/rules/families/row_terms.h"

namespace athanor {
namespace {

using egraph::Match;
using Specs = std::vector<egraph::RuleSpec>;

constexpr double kInf = std::numeric_limits<double>::infinity();

// --- Neutral elements and inverses ---

Specs TimesOne(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const egraph::Condition one = t.UniformIs("s", 1);
  return Joined({Orders({.name = "times_one",
                         .premises = {"(Mul~ ?x ?s)"},
                         .conclusions = {"?x"},
                         .conditions = {one}}),
                 {{.name = "times_one.div",
                   .premises = {"(Div ?x ?s)"},
                   .conclusions = {"?x"},
                   .conditions = {one}}}});
}

void TimesOneExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()});
  const NodeId one = e.x().FillLike(x, 1);
  const int form = static_cast<int>(e.Pick(0, 2));
  e.Output(form == 0   ? e.x().Add(Op::kDiv, {x, one})
           : form == 1 ? e.x().Add(Op::kMul, {x, one})
                       : e.x().Add(Op::kMul, {one, x}));
}

// +0 is not neutral, because -0 + 0 is +0.
Specs PlusZero(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const egraph::Condition neutral("is neutral", {"s"}, [t](const Match& m) {
    const std::optional<double> s = t.Uniform(m, "s");
    return s == 0.0 && (std::signbit(*s) || !IsFloat(t.Type(m, "s").dtype));
  });
  return Orders({.name = "plus_zero",
                 .premises = {"(Add~ ?x ?s)"},
                 .conclusions = {"?x"},
                 .conditions = {neutral}});
}

void PlusZeroExample(ExampleBuilder& e) {
  const bool integer = e.Coin();
  const NodeId x = e.Input({e.Size(), e.Size()}, integer ? DType::kI32 : e.dtype());
  e.Output(e.x().Add(Op::kAdd, {x, e.x().FillLike(x, integer ? 0.0 : -0.0)}));
}

Specs DoubleNegation(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  return Orders({.name = "double_negation",
                 .premises = {"(Mul~ (Mul~ ?x ?s) ?t)"},
                 .conclusions = {"?x"},
                 .conditions = {t.UniformIs("s", -1), t.UniformIs("t", -1)}});
}

void DoubleNegationExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()});
  const NodeId minus = e.x().FillLike(x, -1);
  e.Output(e.x().Add(Op::kMul, {e.x().Add(Op::kMul, {x, minus}), minus}));
}

Specs DoubleNot(const TermLanguage&, const FactsAnalysis&) {
  return {{.premises = {"(Not (Not ?x))"}, .conclusions = {"?x"}}};
}

void DoubleNotExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size()}, e.Coin() ? DType::kBool : DType::kU8);
  e.Output(e.x().Add(Op::kNot, {e.x().Add(Op::kNot, {x})}));
}

Specs Idempotent(const TermLanguage&, const FactsAnalysis&) {
  Specs specs;
  for (const std::string op : {"And", "Or", "Min", "Max"}) {
    specs.push_back(
        {.name = "idempotent." + op, .premises = {"(" + op + " ?x ?x)"}, .conclusions = {"?x"}});
    for (egraph::RuleSpec& spec :
         Orders({.name = "idempotent.again." + op,
                 .premises = {"?z = (" + op + "~ ?y ?x)", "?y = (" + op + "~ ?x ?_)"},
                 .conclusions = {"?y"}})) {
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

void IdempotentExample(ExampleBuilder& e) {
  const Op op = e.Coin() ? Op::kMax : Op::kMin;
  const Expr rows = e.Size(), columns = e.Size();
  const NodeId x = e.Input({rows, columns}), y = e.Input({rows, columns});
  e.Output(e.x().Add(op, {x, x}));
  e.Output(e.x().Add(op, {x, e.x().Add(op, {y, x})}));
}

Specs IntegralOnce(const TermLanguage&, const FactsAnalysis&) {
  Specs specs;
  for (const std::string outer : {"Floor", "Round"}) {
    for (const std::string inner : {"Floor", "Round"}) {
      specs.push_back({.name = "integral_once." + outer + inner,
                       .premises = {"?z = (" + outer + " ?y)", "?y = (" + inner + " ?_)"},
                       .conclusions = {"?y"}});
    }
  }
  return specs;
}

void IntegralOnceExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()});
  e.Output(e.x().Add(e.Coin() ? Op::kFloor : Op::kRound,
                     {e.x().Add(e.Coin() ? Op::kFloor : Op::kRound, {x})}));
}

// --- Bounds by constants ---

// Returns the neutral element of `op` (Min or Max) in a dtype.
double Extreme(Op op, DType dtype) {
  const bool max = op == Op::kMax;
  if (IsFloat(dtype)) return max ? -kInf : kInf;
  const int bits = 8 * DTypeBytes(dtype);
  if (dtype == DType::kBool) return max ? 0 : 1;
  if (IsSigned(dtype)) return max ? -std::ldexp(1, bits - 1) : std::ldexp(1, bits - 1) - 1;
  return max ? 0 : std::ldexp(1, bits) - 1;
}

Specs BoundsCollect(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  Specs specs;
  for (const Op op : {Op::kMin, Op::kMax}) {
    const std::string name(OpName(op));
    const egraph::Condition extreme("bounds nothing", {"s"}, [t, op](const Match& m) {
      return t.Uniform(m, "s") == Extreme(op, t.Type(m, "s").dtype);
    });
    for (egraph::RuleSpec& spec : Orders({.name = "bounds_collect.neutral." + name,
                                          .premises = {"(" + name + "~ ?x ?s)"},
                                          .conclusions = {"?x"},
                                          .conditions = {extreme}})) {
      specs.push_back(std::move(spec));
    }
    const auto build = [t, op](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
      const std::optional<double> a = t.Uniform(m, "s"), b = t.Uniform(m, "t");
      if (!a || !b || std::isnan(*a) || std::isnan(*b) || *a == *b) return std::nullopt;
      const NodeId x = e.Operand(m.Class("x"));
      const double bound = op == Op::kMax ? std::max(*a, *b) : std::min(*a, *b);
      return e.x().Add(op, {x, e.x().FillLike(x, bound)});
    };
    for (egraph::RuleSpec& spec :
         Orders({.name = "bounds_collect." + name,
                 .premises = {"?y = (" + name + "~ (" + name + "~ ?x ?s) ?t)"},
                 .conditions = {t.IsNotUniform("x"), t.IsUniform("s"), t.IsUniform("t")},
                 .apply = t.Equal("y", build)})) {
      specs.push_back(std::move(spec));
    }
  }
  return specs;
}

void BoundsCollectExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()});
  const Op op = e.Coin() ? Op::kMax : Op::kMin;
  const double low = static_cast<double>(e.Pick(-4, 4));
  const NodeId once = e.x().Add(op, {x, e.x().FillLike(x, low)});
  e.Output(e.x().Add(op, {e.x().FillLike(x, low + 1), once}));
  e.Output(e.x().Add(op, {x, e.x().FillLike(x, op == Op::kMax ? -kInf : kInf)}));
}

// --- Constants combined ---

// Returns a number at an end of an integer dtype's range, near 2^53 (the limit of exact doubles),
// or any.
NodeId EndOfRange(ExampleBuilder& e, NodeId like) {
  const DType dtype = e.x().Type(like).dtype;
  const int bits = 8 * DTypeBytes(dtype);
  const uint64_t most = ~uint64_t{0} >> (64 - bits + (IsSigned(dtype) ? 1 : 0));
  const auto offset = static_cast<uint64_t>(e.Pick(-2, 2));
  const uint64_t kValues[] = {most + offset, (uint64_t{1} << 53) + offset, 7 + offset};
  Tensor number = Tensor::Zeros(dtype, {});
  StoreScalar(number, 0, Scalar::Unsigned(dtype, kValues[e.Pick(0, 2)]));
  const Shape shape = e.x().Type(like).shape;
  return e.x().Map(e.x().Add(Op::kConstant, {}, {{"value", std::move(number)}}), shape, {});
}

Specs FactorsCollect(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s"), u = t.Uniform(m, "t");
    constexpr double kExactInteger = 9007199254740992;  // 2^53
    if (!s || !u || !IsTame(*s * *u) || std::fabs(*s * *u) > kExactInteger) return std::nullopt;
    const NodeId x = e.Operand(m.Class("x"));
    return e.x().Add(Op::kMul, {x, e.x().FillLike(x, *s * *u)});
  };
  return Orders(
      {.name = "factors_collect",
       .premises = {"?y = (Mul~ (Mul~ ?x ?s) ?t)"},
       .conditions = {t.HasWideDType("y"), t.IsNotUniform("x"), t.IsFactor("s"), t.IsFactor("t")},
       .apply = t.Equal("y", build)});
}

void FactorsCollectExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()}, WideDType(e));
  const double s = Number(e, e.Pick(1, 9), 7), u = Number(e, -e.Pick(1, 9), 1);
  e.Output(
      e.x().Add(Op::kMul, {e.x().FillLike(x, u), e.x().Add(Op::kMul, {x, e.x().FillLike(x, s)})}));
}

// Returns the sum of two numbers in their dtype; integers wrap. Returns nullopt if floats have
// different signs, since they cancel or round on purpose ((x + 1.5*2^23) - 1.5*2^23), or if their
// sum is rounded or overflows: adding it to x could then have a larger error than the two
// additions.
std::optional<Tensor> SumOfNumbers(const Tensor& s, const Tensor& t) {
  const Scalar a = LoadScalar(s, 0), b = LoadScalar(t, 0);
  Tensor sum = Tensor::Zeros(s.dtype, {});
  if (!IsFloat(s.dtype)) {
    StoreScalar(sum, 0, Scalar::Unsigned(s.dtype, a.u + b.u));  // the low bytes are the wrapped sum
    return sum;
  }
  if (!(a.f > 0 && b.f > 0) && !(a.f < 0 && b.f < 0)) return std::nullopt;
  StoreScalar(sum, 0, Scalar::Float(s.dtype, a.f + b.f));
  const double rounded = LoadScalar(sum, 0).f;
  const bool exact = std::isfinite(rounded) && rounded - a.f == b.f && rounded - b.f == a.f;
  if (!exact) return std::nullopt;
  return sum;
}

Specs TermsCollect(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const Facts &s = t.FactsOf(m, "s"), &u = t.FactsOf(m, "t");
    if (!s.uniform || !u.uniform) return std::nullopt;
    std::optional<Tensor> sum = SumOfNumbers(*s.uniform, *u.uniform);
    if (!sum) return std::nullopt;
    const NodeId number = e.x().Add(Op::kConstant, {}, {{"value", *std::move(sum)}});
    return e.x().Add(Op::kAdd, {e.Operand(m.Class("x")), e.x().Map(number, t.ShapeOf(m, "y"), {})});
  };
  return Orders({.name = "terms_collect",
                 .premises = {"?y = (Add~ (Add~ ?x ?s) ?t)"},
                 .conditions = {t.HasWideDType("y"), t.IsNotUniform("x")},
                 .apply = t.Equal("y", build)});
}

void TermsCollectExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size();
  const NodeId x = e.Input({rows, columns}, WideDType(e));
  const double s = Number(e, e.Pick(1, 9), 4), u = Number(e, e.Pick(1, 9), 8);
  e.Output(
      e.x().Add(Op::kAdd, {e.x().FillLike(x, u), e.x().Add(Op::kAdd, {x, e.x().FillLike(x, s)})}));
  constexpr DType kIntegers[] = {DType::kI8, DType::kU8, DType::kI32, DType::kI64, DType::kU64};
  const NodeId i = e.Input({rows, columns}, kIntegers[e.Pick(0, 4)]);
  e.Output(e.x().Add(Op::kAdd, {e.x().Add(Op::kAdd, {i, EndOfRange(e, i)}), EndOfRange(e, i)}));
}

// The factors must have one sign: then inf*s + inf*t equals inf*(s + t), and nothing cancels.
Specs SameTermsAdd(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](double implied_s, double implied_u) {
    return [t, implied_s, implied_u](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
      const double s = implied_s != 0 ? implied_s : t.Uniform(m, "s").value_or(0);
      const double u = implied_u != 0 ? implied_u : t.Uniform(m, "t").value_or(0);
      if (s * u <= 0 || !IsTame(s + u)) return std::nullopt;
      const NodeId x = e.Operand(m.Class("x"));
      return e.x().Add(Op::kMul, {x, e.x().FillLike(x, s + u)});
    };
  };
  const egraph::Condition wide = t.HasWideDType("x"), other = t.IsNotUniform("x");
  const egraph::Condition factor_s = t.IsFactor("s"), factor_t = t.IsFactor("t");
  return Joined({Orders({.name = "same_terms_add",
                         .premises = {"?y = (Add (Mul~ ?x ?s) (Mul~ ?x ?t))"},
                         .conditions = {wide, other, factor_s, factor_t},
                         .apply = t.Equal("y", build(0, 0))}),
                 Orders({.name = "same_terms_add.one",
                         .premises = {"?y = (Add~ ?x (Mul~ ?x ?t))"},
                         .conditions = {wide, other, factor_t},
                         .apply = t.Equal("y", build(1, 0))}),
                 {{.name = "same_terms_add.twice",
                   .premises = {"?y = (Add ?x ?x)"},
                   .conditions = {wide, other},
                   .apply = t.Equal("y", build(1, 1))}}});
}

void SameTermsAddExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()}, WideDType(e));
  const int64_t n = e.Pick(1, 9);
  const NodeId scaled = e.x().Add(Op::kMul, {x, e.x().FillLike(x, Number(e, -n, 7))});
  const NodeId other = e.x().Add(Op::kMul, {e.x().FillLike(x, Number(e, -n, 21)), x});
  e.Output(e.x().Add(Op::kAdd, {scaled, other}));
  e.Output(e.x().Add(Op::kAdd, {x, x}));
}

// --- Division ---

Specs DivideByPower(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s");
    // Largest exponent of an f16 power of two with an exact reciprocal.
    constexpr int kMaxExponent = 14;
    int exponent = 0;
    // The reciprocal of a power of two is exact, so the product is rounded as the quotient is.
    if (!s || std::fabs(std::frexp(*s, &exponent)) != 0.5) return std::nullopt;
    if (std::abs(exponent - 1) > kMaxExponent) return std::nullopt;
    const NodeId x = e.Operand(m.Class("x"));
    return e.x().Add(Op::kMul, {x, e.x().FillLike(x, 1 / *s)});
  };
  return {{.premises = {"?y = (Div ?x ?s)"},
           .conditions = {t.IsNotUniform("x"), t.IsUniform("s")},
           .apply = t.Equal("y", build)}};
}

void DivideByPowerExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()});
  e.Output(
      e.x().Add(Op::kDiv, {x, e.x().FillLike(x, std::ldexp(e.Coin() ? 1 : -1, e.Pick(-9, 9)))}));
}

Specs DivideByNumber(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s");
    if (!s) return std::nullopt;
    const NodeId x = e.Operand(m.Class("x"));
    return e.x().Add(Op::kMul, {x, e.x().FillLike(x, 1 / *s)});
  };
  return {{.premises = {"?y = (Div ?x ?s)"},
           .conditions = {t.HasWideDType("x"), t.IsNotUniform("x"), t.IsFactor("s")},
           .apply = t.Equal("y", build)}};
}

void DivideByNumberExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()}, WideDType(e));
  e.Output(e.x().Add(Op::kDiv, {x, e.x().FillLike(x, static_cast<double>(e.Pick(3, 99)))}));
}

// Reports whether the map repeats a value without the axes `gone` along these axes.
bool RepeatsAlong(const IndexMap& map, const std::vector<int64_t>& gone) {
  std::vector<Expr> kept;
  for (size_t i = 0; i < map.shape.size(); ++i) {
    if (std::find(gone.begin(), gone.end(), static_cast<int64_t>(i)) == gone.end()) {
      kept.push_back(Expr::Axis(static_cast<int>(i)));
    }
  }
  return map.coordinates == kept;
}

// Computes one reciprocal for all elements that are divided by the same value. The reciprocal of 0,
// and of numbers below the smallest normal one, is infinite; infinity times 0 is NaN, though 0
// divided by a small number is 0. So the divisor must be known to be larger. Softmax's divisor is:
// the largest term of its sum is exp(0).
Specs DivideByRepeated(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const IndexMap map = *t.View(m, "map");
    const std::vector<bool> used = AxesUsed(map);
    bool repeats = false;
    for (size_t i = 0; i < used.size(); ++i)
      repeats = repeats || (!used[i] && !map.shape[i].IsConstant(1));
    if (!repeats) return std::nullopt;
    const NodeId x = e.Operand(m.Class("x"));
    const NodeId once = e.x().Add(Op::kRecip, {e.Operand(m.Class("r"))});
    return e.x().Add(Op::kMul, {x, e.x().Map(once, map.shape, map.coordinates)});
  };
  const std::vector<egraph::Condition> conditions = {t.HasWideDType("x"), t.IsView("map"),
                                                     t.IsNotUniform("r")};
  egraph::RuleSpec known{.name = "divide_by_repeated",
                         .premises = {"?y = (Div ?x (IndexMap[?map] ?r))"},
                         .conditions = conditions,
                         .apply = t.Equal("y", build)};
  known.conditions.push_back(egraph::Condition(
      "is positive", {"r"}, [t](const Match& m) { return t.FactsOf(m, "r").values.positive; }));
  const egraph::Condition largest("are those of a maximum", {"sum", "max", "peak"},
                                  [t](const Match& m) {
                                    using Axes = std::vector<int64_t>;
                                    const Axes& axes = GetAttr<Axes>(t.AttrsOf(m, "max"), "axes");
                                    const IndexMap* peak = t.View(m, "peak");
                                    return axes == GetAttr<Axes>(t.AttrsOf(m, "sum"), "axes") &&
                                           peak != nullptr && RepeatsAlong(*peak, axes);
                                  });
  std::vector<Specs> all = {{std::move(known)}};
  for (const std::string exp : {"Exp", "Exp2"}) {
    egraph::RuleSpec softmax{
        .name = "divide_by_repeated.softmax_" + exp,
        .premises = {"?y = (Div ?x (IndexMap[?map] ?r))", "?r = (SumReduce[?sum] ?x)",
                     "?x = (" + exp +
                         " (Add~ ?v (Mul~ (IndexMap[?peak] (MaxReduce[?max] ?v)) ?minus)))"},
        .conditions = conditions,
        .apply = t.Equal("y", build)};
    softmax.conditions.push_back(largest);
    softmax.conditions.push_back(t.UniformIs("minus", -1));
    all.push_back(Orders(std::move(softmax)));
  }
  return Joined(std::move(all));
}

void DivideByRepeatedExample(ExampleBuilder& e) {
  const Expr rows = e.Size(), columns = e.Size(2);
  const Shape shape = {rows, columns};
  const NodeId x = e.Input(shape, WideDType(e)), r = e.Input({rows}, WideDType(e));
  const NodeId positive = e.x().Add(Op::kMax, {r, e.x().FillLike(r, 0x1p-126)});
  e.Output(e.x().Add(Op::kDiv, {x, e.x().Repeat(positive, 1, shape)}));
  const NodeId peak = e.x().Repeat(e.x().Reduce(Op::kMaxReduce, x, {1}), 1, shape);
  const NodeId power = e.x().Add(e.Coin() ? Op::kExp : Op::kExp2, {e.x().Sub(x, peak)});
  const NodeId sum = e.x().Reduce(Op::kSumReduce, power, {1});
  e.Output(e.x().Add(Op::kDiv, {power, e.x().Repeat(sum, 1, shape)}));
}

Specs SmallPowers(const TermLanguage& language, const FactsAnalysis& facts) {
  const RowTerms t(language, facts);
  const auto build = [t](const Match& m, TermExpansion& e) -> std::optional<NodeId> {
    const std::optional<double> s = t.Uniform(m, "s");
    const NodeId x = e.Operand(m.Class("x"));
    if (s == 1.0) return x;
    if (s == -1.0) return e.x().Add(Op::kRecip, {x});
    if (s == 0.5) {  // -0 gives 0, and -inf gives +inf
      if (!t.FactsOf(m, "x").values.positive) return std::nullopt;
      return e.x().Add(Op::kSqrt, {x});
    }
    if (s != 2.0 && s != 3.0) return std::nullopt;
    const NodeId square = e.x().Add(Op::kMul, {x, x});
    return s == 2.0 ? square : e.x().Add(Op::kMul, {square, x});
  };
  return {{.premises = {"?y = (Pow ?x ?s)"},
           .conditions = {t.IsUniform("s")},
           .apply = t.Equal("y", build)}};
}

void SmallPowersExample(ExampleBuilder& e) {
  const NodeId x = e.Input({e.Size(), e.Size()});
  constexpr double kPowers[] = {-1, 1, 2, 3};
  e.Output(e.x().Add(Op::kPow, {x, e.x().FillLike(x, kPowers[e.Pick(0, 3)])}));
  const NodeId positive = e.x().Add(Op::kMax, {x, e.x().FillLike(x, 0.25)});
  e.Output(e.x().Add(Op::kPow, {positive, e.x().FillLike(x, 0.5)}));
}

}  // namespace

std::vector<RuleRow> AlgebraRows() {
  constexpr std::string_view kFamily = "algebra";
  constexpr RuleClass kExact = RuleClass::kExact, kReassociating = RuleClass::kReassociating;
  std::vector<RuleRow> rows = {
      {"times_one", kFamily, kExact, "x*1 = x/1 = x", TimesOne, nullptr, nullptr, TimesOneExample},
      {"plus_zero", kFamily, kExact, "x + (-0) = x; integers: x + 0 = x", PlusZero, nullptr,
       nullptr, PlusZeroExample},
      {"double_negation", kFamily, kExact, "-(-x) = x", DoubleNegation, nullptr, nullptr,
       DoubleNegationExample},
      {"double_not", kFamily, kExact, "not(not(x)) = x", DoubleNot, nullptr, nullptr,
       DoubleNotExample},
      {"idempotent", kFamily, kExact, "max(x, x) = x; max(max(x, y), y) = max(x, y); min, and, or",
       Idempotent, nullptr, nullptr, IdempotentExample},
      {"integral_once", kFamily, kExact, "floor(round(x)) = round(x), and so on", IntegralOnce,
       nullptr, nullptr, IntegralOnceExample},
      {"bounds_collect", kFamily, kExact,
       "max(max(x, s), t) = max(x, max(s, t)) for numbers s, t; max(x, -inf) = x; min",
       BoundsCollect, nullptr, nullptr, BoundsCollectExample},
      {"factors_collect", kFamily, kReassociating, "(x*s)*t = x*(s*t) for numbers s, t",
       FactorsCollect, nullptr, nullptr, FactorsCollectExample},
      {"terms_collect", kFamily, kReassociating,
       "(x+s)+t = x+(s+t) for numbers s, t, of floats of one sign with an exact sum", TermsCollect,
       nullptr, nullptr, TermsCollectExample},
      {"same_terms_add", kFamily, kReassociating,
       "x*s + x*t = x*(s+t) for numbers s, t of one sign; x+x = x*2", SameTermsAdd, nullptr,
       nullptr, SameTermsAddExample},
      {"divide_by_power", kFamily, kExact, "x/s = x*(1/s) for powers of two s", DivideByPower,
       nullptr, nullptr, DivideByPowerExample},
      {"divide_by_number", kFamily, kReassociating, "x/s = x*(1/s) for numbers s", DivideByNumber,
       nullptr, nullptr, DivideByNumberExample},
      {"divide_by_repeated", kFamily, kReassociating,
       "x/repeat(r) = x*repeat(1/r) for r > 0 and no subnormal, or the sum of a softmax",
       DivideByRepeated, nullptr, nullptr, DivideByRepeatedExample},
      {"small_powers", kFamily, kExact,
       "x^2 = x*x; x^3 = x*x*x; x^1 = x; x^-1 = 1/x; x^0.5 = sqrt(x) for x > 0", SmallPowers,
       nullptr, nullptr, SmallPowersExample},
  };
  for (const auto& more :
       {SelectionRows(), ReductionRows(), ContractionRows(), BoundedRows(), SharingRows()}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

}  // namespace athanor
