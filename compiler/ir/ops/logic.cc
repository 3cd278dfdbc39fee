// Logic and bits, comparison, choice and conversion, element by element.
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "compiler/ir/ops/family.h"
#include "compiler/ir/ops/value_facts.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

absl::StatusOr<TensorType> InferCast(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  return TensorType{GetAttr<DType>(attrs, "dtype"), inputs[0].shape};
}

absl::StatusOr<TensorType> InferBitcast(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  const DType from = inputs[0].dtype;
  const DType to = GetAttr<DType>(attrs, "dtype");
  if (from == DType::kBool || to == DType::kBool) {
    return Unimplemented("bool has no bit pattern of its own: convert with Cast(dtype=",
                         DTypeName(to == DType::kBool ? DType::kBool : DType::kU8), ") instead");
  }
  if (DTypeBytes(from) != DTypeBytes(to)) {
    return Invalid("operand 0 has dtype ", DTypeName(from), " of ", DTypeBytes(from),
                   " bytes, dtype=", DTypeName(to), " has ", DTypeBytes(to),
                   "; the widths must be equal (to convert values use Cast(dtype=", DTypeName(to),
                   "))");
  }
  return TensorType{to, inputs[0].shape};
}

absl::StatusOr<TensorType> InferShift(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const std::string& direction = GetAttr<std::string>(attrs, "direction");
  if (direction != "left" && direction != "right") {
    return Invalid("direction=", Quoted(direction), " must be \"left\" or \"right\"");
  }
  return InferSame(inputs, bounds, DTypeClass::kIntegers);
}

absl::StatusOr<TensorType> InferLessThan(TypeSpan inputs, const Attrs&, const Bounds& bounds) {
  absl::StatusOr<TensorType> type = InferSame(inputs, bounds, DTypeClass::kComputing);
  if (type.ok()) type->dtype = DType::kBool;
  return type;
}

absl::StatusOr<TensorType> InferSelect(TypeSpan inputs, const Attrs&, const Bounds& bounds) {
  if (inputs[0].dtype != DType::kBool) {
    return Invalid("the condition, operand 0, has dtype ", DTypeName(inputs[0].dtype),
                   " and must be bool: compare, or convert it with Cast(dtype=bool)");
  }
  absl::Status s = CheckSameDType("operand 1", inputs[1].dtype, "operand 2", inputs[2].dtype);
  if (s.ok()) {
    s = CheckSameShape("operand 1", inputs[1].shape, "operand 2", inputs[2].shape, bounds);
  }
  if (s.ok()) {
    s = CheckSameShape("operand 1", inputs[1].shape, "operand 0", inputs[0].shape, bounds);
  }
  if (!s.ok()) return s;
  return inputs[1];
}

template <typename Function>
absl::Status Bitwise(Inputs inputs, Tensor* result, Function function) {
  for (int64_t i = 0; i < result->elements(); ++i) {
    const uint64_t bits = function(LoadScalar(*inputs[0], i).u, LoadScalar(*inputs[1], i).u);
    StoreScalar(*result, i, Scalar::Unsigned(result->dtype, bits));
  }
  return absl::OkStatus();
}

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

ValueFacts CastValues(const ValueQuery& query) {
  const DType from = query.operand, to = query.result;
  if (!IsFloat(to) || !Computes(to)) return Derived({}, query);
  const ValueFacts& x = query.operands[0];
  ValueFacts facts{.nonnegative = x.nonnegative, .magnitude = x.magnitude};
  // Only f16 has a range that integers and other floats exceed; f64 and f32 hold those of all
  // narrower dtypes.
  const bool fits = to != DType::kF16 && (!IsFloat(from) || from == to || to == DType::kF64 ||
                                          (from != DType::kF64 && to == DType::kF32));
  if (fits) {
    facts.no_plus_infinity = x.no_plus_infinity;
    facts.no_minus_infinity = x.no_minus_infinity;
  }
  return Derived(facts, query);
}

ValueFacts SelectValues(const ValueQuery& query) {
  return Common(query.operands[1], query.operands[2]);
}

}  // namespace

void AddLogic(Rows* rows) {
  ATHANOR_BINARY(And, C::kLogical, 0, "Logical for bool, bitwise for integers.");
  ATHANOR_BINARY(Or, C::kLogical, 0, "Logical for bool, bitwise for integers.");
  ATHANOR_BINARY(Xor, C::kLogical, 0, "Logical for bool, bitwise for integers.");
  ATHANOR_ROW(Shift, kElementwise, 2, 2,
              ATHANOR_ATTRS(Required("direction", AttrType::kString, "\"left\" or \"right\"")),
              InferShift, 0,
              "a shifted by b bits, b of a's dtype. Left fills with zeros; right fills with zeros "
              "for unsigned and with the sign for signed. A b below 0 or not below the width gives "
              "0, or for signed right shifts 0 or -1 by the sign of a.");
  ATHANOR_ROW(LessThan, kElementwise, 2, 2, {}, InferLessThan, 0,
              "a < b as bool. False where either is NaN; -0 and +0 are equal; false < true.",
              .rounding = Rounding::kChooses, .errors = ErrorRule::kComparison);
  ATHANOR_ROW(
      Select, kElementwise, 3, 3, {}, InferSelect, 0,
      "Operand 1 where the bool operand 0 is true, else operand 2, bit for bit; the element "
      "not chosen has no influence, whatever it is. Any dtype.",
      .rounding = Rounding::kKeeps, .errors = ErrorRule::kChoice,
      .roles = {OperandRole::kNone, OperandRole::kPassed, OperandRole::kPassed},
      .values = SelectValues);
}

void AddConversions(Rows* rows) {
  ATHANOR_UNARY(Not, C::kLogical, 0, "Logical not of bool; every bit flipped for integers.");
  ATHANOR_ROW(
      Cast, kElementwise, 1, 1,
      ATHANOR_ATTRS(Required("dtype", AttrType::kDType, "the result's dtype")), InferCast, 0,
      "Converts values between any two dtypes. To bool: x != 0 (NaN is true). From bool: 0 "
      "or 1. Integer to integer wraps (keeps the low bits). Integer to float and float to "
      "float round to nearest even; NaN stays NaN, overflow gives infinity, or NaN where "
      "the dtype has no infinity (f8e4m3, f8e8m0). Float to integer truncates towards "
      "zero, values beyond the range give the nearest bound, NaN gives 0. f8e8m0 holds "
      "2^-127 to 2^127 and NaN only: other values give the nearest of them (ties to the "
      "even code), zero gives 2^-127, negatives and infinities give NaN.",
      .rounding = Rounding::kConverts, .roles = {OperandRole::kPassed}, .values = CastValues);
  ATHANOR_ROW(Bitcast, kElementwise, 1, 1,
              ATHANOR_ATTRS(Required("dtype", AttrType::kDType, "a dtype of the same width")),
              InferBitcast, 0,
              "The same bits read as another dtype of equal width; NaN payloads are kept. Not for "
              "bool.",
              .rounding = Rounding::kBits, .errors = ErrorRule::kBits, .flops = 0);
}

}  // namespace athanor
