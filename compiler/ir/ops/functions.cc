// Functions of one float, element by element. All but Sqrt, Recip, Floor and Round have no
// correctly rounded form: they are computed in a wider type and rounded once.
#include <algorithm>
#include <cmath>

#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/value_facts.h"

namespace athanor {
namespace {

// For functions without a correctly rounded form: computes in the wider type and rounds once.
template <typename Function>
absl::Status Transcendental(Inputs inputs, Tensor* result, Function function) {
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    for (int64_t i = 0; i < result->elements(); ++i) {
      StoreReal(result, i, function(static_cast<Real>(LoadScalar(*inputs[0], i).f)));
    }
  });
  return absl::OkStatus();
}

// For operations that IEEE 754 rounds correctly. Computes in double even for f64, where a wider
// intermediate would round twice. For narrower dtypes, double is wide enough that the second
// rounding is harmless.
template <typename Function>
absl::Status Exact1(Inputs inputs, Tensor* result, Function function) {
  for (int64_t i = 0; i < result->elements(); ++i) {
    StoreReal(result, i, function(LoadScalar(*inputs[0], i).f));
  }
  return absl::OkStatus();
}

ATHANOR_REFERENCE(Log2) {
  return Transcendental(inputs, result, [](auto x) { return std::log2(x); });
}

ATHANOR_REFERENCE(Exp2) {
  return Transcendental(inputs, result, [](auto x) { return std::exp2(x); });
}

ATHANOR_REFERENCE(Sin) {
  return Transcendental(inputs, result, [](auto x) { return std::sin(x); });
}

ATHANOR_REFERENCE(Exp) {
  return Transcendental(inputs, result, [](auto x) { return std::exp(x); });
}

ATHANOR_REFERENCE(Log) {
  return Transcendental(inputs, result, [](auto x) { return std::log(x); });
}

ATHANOR_REFERENCE(Tanh) {
  return Transcendental(inputs, result, [](auto x) { return std::tanh(x); });
}

ATHANOR_REFERENCE(Erf) {
  return Transcendental(inputs, result, [](auto x) { return std::erf(x); });
}

ATHANOR_REFERENCE(Cos) {
  return Transcendental(inputs, result, [](auto x) { return std::cos(x); });
}

ATHANOR_REFERENCE(Tan) {
  return Transcendental(inputs, result, [](auto x) { return std::tan(x); });
}

ATHANOR_REFERENCE(Asin) {
  return Transcendental(inputs, result, [](auto x) { return std::asin(x); });
}

ATHANOR_REFERENCE(Acos) {
  return Transcendental(inputs, result, [](auto x) { return std::acos(x); });
}

ATHANOR_REFERENCE(Atan) {
  return Transcendental(inputs, result, [](auto x) { return std::atan(x); });
}

ATHANOR_REFERENCE(Sinh) {
  return Transcendental(inputs, result, [](auto x) { return std::sinh(x); });
}

ATHANOR_REFERENCE(Cosh) {
  return Transcendental(inputs, result, [](auto x) { return std::cosh(x); });
}

ATHANOR_REFERENCE(Asinh) {
  return Transcendental(inputs, result, [](auto x) { return std::asinh(x); });
}

ATHANOR_REFERENCE(Acosh) {
  return Transcendental(inputs, result, [](auto x) { return std::acosh(x); });
}

ATHANOR_REFERENCE(Atanh) {
  return Transcendental(inputs, result, [](auto x) { return std::atanh(x); });
}

ATHANOR_REFERENCE(Log1p) {
  return Transcendental(inputs, result, [](auto x) { return std::log1p(x); });
}

ATHANOR_REFERENCE(Expm1) {
  return Transcendental(inputs, result, [](auto x) { return std::expm1(x); });
}

ATHANOR_REFERENCE(Sqrt) {
  return Exact1(inputs, result, [](double x) { return std::sqrt(x); });
}

ATHANOR_REFERENCE(Recip) {
  return Exact1(inputs, result, [](double x) { return 1 / x; });
}

ATHANOR_REFERENCE(Floor) {
  return Exact1(inputs, result, [](double x) { return std::floor(x); });
}

ATHANOR_REFERENCE(Round) {
  return Exact1(inputs, result, [](double x) { return std::nearbyint(x); });
}

ValueFacts NonNegative(const ValueQuery& query) { return Derived({.nonnegative = true}, query); }

ValueFacts Positive(const ValueQuery& query) {
  return Derived({.nonnegative = true, .positive = true}, query);
}

ValueFacts NoMinusInfinity(const ValueQuery& query) {
  return Derived({.no_minus_infinity = true}, query);
}

// At most 1 or pi/2 in size, and an error.
ValueFacts AtMostTwo(const ValueQuery& query) { return Derived({.magnitude = 1}, query); }

ValueFacts AcosValues(const ValueQuery& query) {
  return Derived({.nonnegative = true, .magnitude = 2}, query);
}

ValueFacts SqrtValues(const ValueQuery& query) {
  const ValueFacts& x = query.operands[0];
  ValueFacts facts{
      .no_plus_infinity = x.no_plus_infinity, .nonnegative = true, .positive = x.positive};
  // The root of a number up to 2^m is at most 2^ceil(m/2).
  if (x.magnitude != ValueFacts::kUnknown) facts.magnitude = std::max(x.magnitude + 1, 0) / 2;
  return Derived(facts, query);
}

ValueFacts RecipValues(const ValueQuery& query) {
  const bool positive = query.operands[0].positive;
  return Derived({.no_plus_infinity = positive, .nonnegative = positive}, query);
}

ValueFacts IntegralValues(const ValueQuery& query) {
  ValueFacts facts = query.operands[0];
  // A positive number may become 0, and one below 1 may become 1.
  facts.positive = false;
  facts.magnitude = std::max(facts.magnitude, 0);
  return Derived(facts, query);
}

}  // namespace

void AddFunctions(Rows* rows) {
  ATHANOR_UNARY(
      Log2, C::kFloats, 2,
      "log to base 2. +-0 gives -inf, negative gives NaN, +inf gives +inf, NaN gives NaN. "
      "f16 and bf16 compute in f32 and round once; f64 computes in f64.",
      .errors = ErrorRule::kMonotoneFromZero, .flops = kFunction);
  ATHANOR_UNARY(Exp2, C::kFloats, 2,
                "2^x. -inf gives 0, +inf and overflow give +inf, results below the smallest "
                "subnormal round to 0, NaN gives NaN. f16 and bf16 as Log2.",
                .flops = kFunction, .values = NonNegative);
  ATHANOR_UNARY(
      Sin, C::kFloats, 2,
      "Sine of radians, for the whole range of the dtype (full argument reduction). +-inf "
      "and NaN give NaN, -0 gives -0. f16 and bf16 as Log2.",
      .errors = ErrorRule::kPeriodic, .flops = kFunction, .values = AtMostTwo);
  ATHANOR_UNARY(Sqrt, C::kFloats, 0,
                "Square root, correctly rounded. -0 gives -0, other negatives give NaN.",
                .errors = ErrorRule::kMonotoneFromZero, .flops = kDivision, .values = SqrtValues);
  ATHANOR_UNARY(Recip, C::kFloats, 0,
                "1/x, correctly rounded. +-0 gives +-inf, +-inf gives +-0, NaN gives NaN.",
                .errors = ErrorRule::kReciprocal, .flops = kDivision, .values = RecipValues);
  ATHANOR_UNARY(Exp, C::kFloats, 2, "e^x; edges as Exp2.", .flops = kFunction,
                .values = NonNegative);
  ATHANOR_UNARY(Log, C::kFloats, 2, "Natural logarithm; edges as Log2.",
                .errors = ErrorRule::kMonotoneFromZero, .flops = kFunction);
  ATHANOR_UNARY(Tanh, C::kFloats, 4,
                "Hyperbolic tangent. +-inf gives +-1, -0 gives -0, NaN gives NaN.",
                .flops = kFunction, .values = AtMostTwo);
  ATHANOR_UNARY(Erf, C::kFloats, 4, "Error function. +-inf gives +-1, -0 gives -0, NaN gives NaN.",
                .flops = kFunction, .values = AtMostTwo);
  ATHANOR_UNARY(Floor, C::kFloats, 0,
                "The largest integral value not above x. Infinities, NaN and -0 stay themselves.",
                .rounding = Rounding::kIntegral, .values = IntegralValues);
  ATHANOR_UNARY(Round, C::kFloats, 0,
                "The nearest integral value, ties to even; the sign is kept, so -0.3 gives -0. "
                "Infinities and NaN stay themselves.",
                .rounding = Rounding::kIntegral, .values = IntegralValues);
}

void AddTrigonometry(Rows* rows) {
  ATHANOR_UNARY(Cos, C::kFloats, 4,
                "Cosine of radians, for the whole range of the dtype (full argument reduction). "
                "+-inf and NaN give NaN. f16 and bf16 compute in f32 and round once; f64 in f64.",
                .errors = ErrorRule::kPeriodic, .flops = kFunction, .values = AtMostTwo);
  ATHANOR_UNARY(Tan, C::kFloats, 4,
                "Tangent of radians, for the whole range of the dtype. +-inf and NaN give NaN, -0 "
                "gives -0. Precision as Cos.",
                .errors = ErrorRule::kTangent, .flops = kFunction);
  ATHANOR_UNARY(Asin, C::kFloats, 4,
                "Arcsine, in [-pi/2, pi/2]. Outside [-1, 1] and for NaN NaN, -0 gives -0. "
                "Precision as Cos.",
                .flops = kFunction, .values = AtMostTwo);
  ATHANOR_UNARY(Acos, C::kFloats, 4,
                "Arccosine, in [0, pi]. Outside [-1, 1] and for NaN NaN, 1 gives +0. Precision as "
                "Cos.",
                .flops = kFunction, .values = AcosValues);
  ATHANOR_UNARY(Atan, C::kFloats, 4,
                "Arctangent, in [-pi/2, pi/2]. +-inf gives +-pi/2, -0 gives -0, NaN gives NaN. "
                "Precision as Cos.",
                .flops = kFunction, .values = AtMostTwo);
  ATHANOR_UNARY(Sinh, C::kFloats, 4,
                "Hyperbolic sine. +-inf and overflow give +-inf, -0 gives -0, NaN gives NaN. "
                "Precision as Cos.",
                .flops = kFunction);
  ATHANOR_UNARY(Cosh, C::kFloats, 4,
                "Hyperbolic cosine. +-inf and overflow give +inf, NaN gives NaN. Precision as Cos.",
                .flops = kFunction, .values = Positive);
  ATHANOR_UNARY(Asinh, C::kFloats, 4,
                "Inverse hyperbolic sine. +-inf gives +-inf, -0 gives -0, NaN gives NaN. Precision "
                "as Cos.",
                .flops = kFunction);
  ATHANOR_UNARY(Acosh, C::kFloats, 4,
                "Inverse hyperbolic cosine, not negative. Below 1 and for NaN NaN, 1 gives +0, "
                "+inf gives +inf. Precision as Cos.",
                .flops = kFunction, .values = NonNegative);
  ATHANOR_UNARY(Atanh, C::kFloats, 4,
                "Inverse hyperbolic tangent. +-1 gives +-inf, beyond them and for NaN NaN, -0 "
                "gives -0. Precision as Cos.",
                .flops = kFunction);
  ATHANOR_UNARY(Log1p, C::kFloats, 4,
                "log(1 + x) without rounding the sum. -1 gives -inf, below it and for NaN NaN, "
                "+inf gives +inf, -0 gives -0. Precision as Cos.",
                .flops = kFunction);
  ATHANOR_UNARY(Expm1, C::kFloats, 4,
                "e^x - 1 without rounding the power. -inf gives -1, +inf and overflow give +inf, "
                "-0 gives -0, NaN gives NaN. Precision as Cos.",
                .flops = kFunction, .values = NoMinusInfinity);
}

}  // namespace athanor
