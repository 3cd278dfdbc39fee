// Elementwise ops. Operands have equal shapes, so element i of the result depends on element i of
// each operand only.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "compiler/ir/ops/reference.h"
#include "compiler/ir/ops/reference_util.h"

namespace athanor {
namespace {

using Inputs = absl::Span<const Tensor* const>;

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

template <typename Function>
absl::Status Bitwise(Inputs inputs, Tensor* result, Function function) {
  for (int64_t i = 0; i < result->elements(); ++i) {
    const uint64_t bits = function(LoadScalar(*inputs[0], i).u, LoadScalar(*inputs[1], i).u);
    StoreScalar(*result, i, Scalar::Unsigned(result->dtype, bits));
  }
  return absl::OkStatus();
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
    // The integer minimum stays.
    if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));
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

// Returns the nearest double, with its last bit set if anything was dropped ("round to odd").
// Rounding it again to a format with at most 51 bits gives the same as rounding the integer itself.
double OddDouble(uint64_t magnitude) {
  const int excess = 64 - std::countl_zero(magnitude) - std::numeric_limits<double>::digits;
  if (excess <= 0) return static_cast<double>(magnitude);
  const uint64_t kept = magnitude >> excess;
  const bool dropped = (kept << excess) != magnitude;
  return std::ldexp(static_cast<double>(kept | dropped), excess);
}

double IntegerToFloat(const Scalar& value, DType to) {
  if (to == DType::kF64) {
    return IsSigned(value.dtype) ? static_cast<double>(value.i) : static_cast<double>(value.u);
  }
  if (!IsSigned(value.dtype) || value.i >= 0) return OddDouble(value.u);
  return -OddDouble(-static_cast<uint64_t>(value.i));
}

// Truncates towards zero and saturates at the dtype's range; NaN gives 0.
Scalar FloatToInteger(double value, DType to) {
  if (std::isnan(value)) return Scalar::Unsigned(to, 0);
  const int bits = 8 * DTypeBytes(to);
  if (IsSigned(to)) {
    const int64_t maximum = std::numeric_limits<int64_t>::max() >> (64 - bits);
    const double limit = std::ldexp(1.0, bits - 1);
    if (value >= limit) return Scalar::Signed(to, maximum);
    return Scalar::Signed(to, value <= -limit ? -maximum - 1 : static_cast<int64_t>(value));
  }
  if (value >= std::ldexp(1.0, bits)) {
    return Scalar::Unsigned(to, std::numeric_limits<uint64_t>::max() >> (64 - bits));
  }
  return Scalar::Unsigned(to, value <= 0 ? 0 : static_cast<uint64_t>(value));
}

Scalar CastScalar(const Scalar& value, DType to) {
  if (IsFloat(to)) {
    return Scalar::Float(to, IsFloat(value.dtype) ? value.f : IntegerToFloat(value, to));
  }
  if (to == DType::kBool) {
    return Scalar::Unsigned(to, IsFloat(value.dtype) ? value.f != 0 : value.u != 0);
  }
  if (IsFloat(value.dtype)) return FloatToInteger(value.f, to);
  return Scalar::Unsigned(to, value.u);
}

}  // namespace

#define ATHANOR_REFERENCE(name)                                                         \
  absl::Status Reference##name([[maybe_unused]] absl::Span<const Tensor* const> inputs, \
                               [[maybe_unused]] const Attrs& attrs,                     \
                               [[maybe_unused]] const Expr::Env& dims, Tensor* result)

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

ATHANOR_REFERENCE(Not) {
  for (int64_t i = 0; i < result->elements(); ++i) {
    const uint64_t bits = LoadScalar(*inputs[0], i).u;
    const uint64_t inverted = result->dtype == DType::kBool ? bits == 0 : ~bits;
    StoreScalar(*result, i, Scalar::Unsigned(result->dtype, inverted));
  }
  return absl::OkStatus();
}

ATHANOR_REFERENCE(Cast) {
  if (inputs[0]->dtype == result->dtype) {
    result->bytes = inputs[0]->bytes;
    return absl::OkStatus();
  }
  for (int64_t i = 0; i < result->elements(); ++i) {
    StoreScalar(*result, i, CastScalar(LoadScalar(*inputs[0], i), result->dtype));
  }
  return absl::OkStatus();
}

ATHANOR_REFERENCE(Bitcast) {
  result->bytes = inputs[0]->bytes;
  return absl::OkStatus();
}

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

ATHANOR_REFERENCE(And) {
  return Bitwise(inputs, result, [](uint64_t a, uint64_t b) { return a & b; });
}
ATHANOR_REFERENCE(Or) {
  return Bitwise(inputs, result, [](uint64_t a, uint64_t b) { return a | b; });
}
ATHANOR_REFERENCE(Xor) {
  return Bitwise(inputs, result, [](uint64_t a, uint64_t b) { return a ^ b; });
}

ATHANOR_REFERENCE(Shift) {
  const bool left = GetAttr<std::string>(attrs, "direction") == "left";
  const bool is_signed = IsSigned(result->dtype);
  const uint64_t width = 8 * DTypeBytes(result->dtype);
  for (int64_t i = 0; i < result->elements(); ++i) {
    const Scalar value = LoadScalar(*inputs[0], i);
    const uint64_t amount = LoadScalar(*inputs[1], i).u;  // a negative one is beyond any width
    uint64_t bits = 0;
    if (is_signed && !left) {
      bits = static_cast<uint64_t>(value.i >> std::min<uint64_t>(amount, 63));
    } else if (amount < width) {
      bits = left ? value.u << amount : value.u >> amount;
    }
    StoreScalar(*result, i, Scalar::Unsigned(result->dtype, bits));
  }
  return absl::OkStatus();
}

ATHANOR_REFERENCE(LessThan) {
  const DType dtype = inputs[0]->dtype;
  for (int64_t i = 0; i < result->elements(); ++i) {
    const Scalar a = LoadScalar(*inputs[0], i);
    const Scalar b = LoadScalar(*inputs[1], i);
    const bool less = IsFloat(dtype) ? a.f < b.f : IsSigned(dtype) ? a.i < b.i : a.u < b.u;
    StoreScalar(*result, i, Scalar::Unsigned(DType::kBool, less));
  }
  return absl::OkStatus();
}

ATHANOR_REFERENCE(Select) {
  const size_t bytes = DTypeBytes(result->dtype);
  for (int64_t i = 0; i < result->elements(); ++i) {
    const Tensor& chosen = LoadScalar(*inputs[0], i).u != 0 ? *inputs[1] : *inputs[2];
    result->bytes.replace(i * bytes, bytes, chosen.bytes, i * bytes, bytes);
  }
  return absl::OkStatus();
}

#undef ATHANOR_REFERENCE

}  // namespace athanor
