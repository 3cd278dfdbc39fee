// Arithmetic of two numbers, element by element.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/value_facts.h"

namespace athanor {
namespace {

// `function` has overloads for int64_t and uint64_t (bool counts as unsigned).
template <typename Function>
absl::Status IntegerBinary(Inputs inputs, Tensor* result, Function function) {
  const DType dtype = result->dtype;
  for (int64_t i = 0; i < result->elements(); ++i) {
    const Scalar a = LoadScalar(*inputs[0], i);
    const Scalar b = LoadScalar(*inputs[1], i);
    StoreScalar(*result, i,
                IsSigned(dtype) ? Scalar::Signed(dtype, function(a.i, b.i))
                                : Scalar::Unsigned(dtype, function(a.u, b.u)));
  }
  return absl::OkStatus();
}

template <typename Function>
absl::Status FloatBinary(Inputs inputs, Tensor* result, Function function) {
  for (int64_t i = 0; i < result->elements(); ++i) {
    StoreReal(result, i, function(LoadScalar(*inputs[0], i).f, LoadScalar(*inputs[1], i).f));
  }
  return absl::OkStatus();
}

template <typename Function>
absl::Status Binary(Inputs inputs, Tensor* result, Function function) {
  return IsFloat(result->dtype) ? FloatBinary(inputs, result, function)
                                : IntegerBinary(inputs, result, function);
}

struct AddFunction {
  double operator()(double a, double b) const { return a + b; }
  uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
  int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};

struct MulFunction {
  double operator()(double a, double b) const { return a * b; }
  uint64_t operator()(uint64_t a, uint64_t b) const { return a * b; }
  int64_t operator()(int64_t a, int64_t b) const {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};

struct TruncDivFunction {
  uint64_t operator()(uint64_t a, uint64_t b) const { return b == 0 ? 0 : a / b; }
  int64_t operator()(int64_t a, int64_t b) const {
    if (b == 0) return 0;
    if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));  // the minimum stays
    return a / b;
  }
};

struct FloorDivFunction {
  uint64_t operator()(uint64_t a, uint64_t b) const { return TruncDivFunction()(a, b); }
  int64_t operator()(int64_t a, int64_t b) const {
    const int64_t quotient = TruncDivFunction()(a, b);
    if (b == 0 || b == -1) return quotient;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
  }
};

struct ModFunction {
  double operator()(double a, double b) const {
    const double rest = std::fmod(a, b);
    if (rest == 0) return std::copysign(0.0, b);
    return std::isnan(rest) || (rest < 0) == (b < 0) ? rest : rest + b;
  }
  uint64_t operator()(uint64_t a, uint64_t b) const { return b == 0 ? 0 : a % b; }
  int64_t operator()(int64_t a, int64_t b) const {
    if (b == 0 || b == -1) return 0;
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};

struct MinFunction {
  double operator()(double a, double b) const { return MinOfReals(a, b); }
  uint64_t operator()(uint64_t a, uint64_t b) const { return std::min(a, b); }
  int64_t operator()(int64_t a, int64_t b) const { return std::min(a, b); }
};

struct MaxFunction {
  double operator()(double a, double b) const { return MaxOfReals(a, b); }
  uint64_t operator()(uint64_t a, uint64_t b) const { return std::max(a, b); }
  int64_t operator()(int64_t a, int64_t b) const { return std::max(a, b); }
};

ATHANOR_REFERENCE(Add) { return Binary(inputs, result, AddFunction()); }

ATHANOR_REFERENCE(Mul) { return Binary(inputs, result, MulFunction()); }

ATHANOR_REFERENCE(Mod) { return Binary(inputs, result, ModFunction()); }

ATHANOR_REFERENCE(TruncDiv) { return IntegerBinary(inputs, result, TruncDivFunction()); }

ATHANOR_REFERENCE(FloorDiv) { return IntegerBinary(inputs, result, FloorDivFunction()); }

ATHANOR_REFERENCE(Min) { return Binary(inputs, result, MinFunction()); }

ATHANOR_REFERENCE(Max) { return Binary(inputs, result, MaxFunction()); }

ATHANOR_REFERENCE(Div) {
  return FloatBinary(inputs, result, [](double a, double b) { return a / b; });
}

ATHANOR_REFERENCE(Pow) {
  WithReal(result->dtype, [&](auto zero) {
    using Real = decltype(zero);
    for (int64_t i = 0; i < result->elements(); ++i) {
      const Real base = LoadScalar(*inputs[0], i).f;
      const Real exponent = LoadScalar(*inputs[1], i).f;
      StoreReal(result, i, std::pow(base, exponent));
    }
  });
  return absl::OkStatus();
}

ValueFacts AddValues(const ValueQuery& query) {
  const ValueFacts both = Common(query.operands[0], query.operands[1]);
  return Derived(
      {.nonnegative = both.nonnegative,
       .positive = both.nonnegative && (query.operands[0].positive || query.operands[1].positive),
       .magnitude = ShiftedMagnitude(both.magnitude, 1)},
      query);
}

ValueFacts MulValues(const ValueQuery& query) {
  const ValueFacts &a = query.operands[0], &b = query.operands[1];
  return Derived({.nonnegative = query.operands_equal || Common(a, b).nonnegative,
                  .magnitude = MagnitudeOfProduct(a.magnitude, b.magnitude)},
                 query);
}

ValueFacts DivValues(const ValueQuery& query) {
  return Derived({.nonnegative = query.operands[0].nonnegative && query.operands[1].positive},
                 query);
}

ValueFacts MinValues(const ValueQuery& query) {
  ValueFacts facts = Common(query.operands[0], query.operands[1]);
  facts.no_plus_infinity = Joined(query.operands[0], query.operands[1]).no_plus_infinity;
  return facts;
}

ValueFacts MaxValues(const ValueQuery& query) {
  ValueFacts facts = Common(query.operands[0], query.operands[1]);
  const ValueFacts either = Joined(query.operands[0], query.operands[1]);
  facts.no_minus_infinity = either.no_minus_infinity;
  facts.nonnegative = either.nonnegative;
  facts.positive = either.positive;
  return facts;
}

}  // namespace

void AddArithmetic(Rows* rows) {
  ATHANOR_BINARY(Add, C::kNumeric, 0,
                 "a + b. Floats are IEEE, correctly rounded; integers wrap. For bool use Or.",
                 .errors = ErrorRule::kSumOfTwo, .roles = {OperandRole::kTerm, OperandRole::kTerm},
                 .values = AddValues);
  ATHANOR_BINARY(Mul, C::kNumeric, 0,
                 "a * b. Floats are IEEE, correctly rounded; integers wrap. For bool use And.",
                 .errors = ErrorRule::kProductOfTwo,
                 .roles = {OperandRole::kFactor, OperandRole::kFactor}, .values = MulValues);
  ATHANOR_BINARY(Mod, C::kNumeric, 0,
                 "Remainder with the sign of the divisor: a - b*floor(a/b) exactly, so mod(-7, 3) "
                 "is 2 and mod(7, -3) is -2. Integers: mod(a, 0) is 0, mod(minimum, -1) is 0. "
                 "Floats: r = fmod(a, b), plus b where r is not 0 and has the other sign, rounded "
                 "once; a zero result has the sign of b; a finite and b infinite gives a where the "
                 "signs agree or a is 0, else b; a infinite, b zero or any NaN gives NaN.",
                 .errors = ErrorRule::kRemainder, .flops = kDivision);
  ATHANOR_BINARY(Div, C::kFloats, 0,
                 "a / b, IEEE, correctly rounded: x/0 is infinite, 0/0 is NaN. For integers use "
                 "TruncDiv or FloorDiv.",
                 .errors = ErrorRule::kQuotient, .flops = kDivision, .values = DivValues);
  ATHANOR_BINARY(TruncDiv, C::kIntegers, 0,
                 "Quotient rounded towards zero. a / 0 is 0; minimum / -1 wraps to minimum.",
                 .flops = kDivision);
  ATHANOR_BINARY(FloorDiv, C::kIntegers, 0,
                 "Quotient rounded towards minus infinity. a / 0 is 0; minimum / -1 wraps to "
                 "minimum.",
                 .flops = kDivision);
  ATHANOR_BINARY(
      Pow, C::kFloats, 4,
      "a^b with the edges of IEEE 754 pow: pow(x, +-0) and pow(1, y) are 1 even for NaN; "
      "a finite negative a with a finite non-integral b gives NaN; pow(+-0, b < 0) is "
      "infinite, negative only for -0 and an odd integral b.",
      .errors = ErrorRule::kPower, .flops = 2 * kFunction);
  ATHANOR_BINARY(
      Min, C::kComputing, 0,
      "The smaller. A NaN operand gives NaN; of zeros of both signs either may be given; "
      "false is below true.",
      .rounding = Rounding::kChooses, .errors = ErrorRule::kEither, .values = MinValues);
  ATHANOR_BINARY(Max, C::kComputing, 0,
                 "The larger. A NaN operand gives NaN; of zeros of both signs either may be given; "
                 "true is above false.",
                 .rounding = Rounding::kChooses, .errors = ErrorRule::kEither, .values = MaxValues);
}

}  // namespace athanor
