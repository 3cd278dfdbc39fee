#include "compiler/ir/ops/value_facts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compiler/ir/graph/magnitude.h"

namespace athanor {
namespace {

constexpr int kLeast = -1100;  // below any float: zero's, and products go no lower

double SmallestNormal(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-14;
    case DType::kF64:
      return std::numeric_limits<double>::min();
    default:
      return std::numeric_limits<float>::min();
  }
}

// Facts about all numbers of a dtype: integers and bools have no infinity.
ValueFacts ValueFactsOf(DType dtype) {
  if (IsFloat(dtype)) return {};
  return {.no_plus_infinity = true,
          .no_minus_infinity = true,
          .nonnegative = !IsSigned(dtype),
          .magnitude = LargestExponent(dtype)};
}

}  // namespace

ValueFacts Joined(const ValueFacts& a, const ValueFacts& b) {
  return {.no_plus_infinity = a.no_plus_infinity || b.no_plus_infinity,
          .no_minus_infinity = a.no_minus_infinity || b.no_minus_infinity,
          .nonnegative = a.nonnegative || b.nonnegative,
          .positive = a.positive || b.positive,
          .magnitude = std::min(a.magnitude, b.magnitude)};
}

ValueFacts Common(const ValueFacts& a, const ValueFacts& b) {
  return {.no_plus_infinity = a.no_plus_infinity && b.no_plus_infinity,
          .no_minus_infinity = a.no_minus_infinity && b.no_minus_infinity,
          .nonnegative = a.nonnegative && b.nonnegative,
          .positive = a.positive && b.positive,
          .magnitude = std::max(a.magnitude, b.magnitude)};
}

ValueFacts Derived(ValueFacts facts, const ValueQuery& query) {
  if (facts.magnitude > LargestExponent(query.result)) facts.magnitude = ValueFacts::kUnknown;
  if (facts.magnitude != ValueFacts::kUnknown) {
    facts.no_plus_infinity = facts.no_minus_infinity = true;
  }
  facts.no_minus_infinity = facts.no_minus_infinity || facts.nonnegative;
  return facts;
}

ValueFacts NonNegativeAsOperand(const ValueQuery& query) {
  return Derived({.nonnegative = query.operands[0].nonnegative}, query);
}

int ShiftedMagnitude(int magnitude, int by) {
  return magnitude == ValueFacts::kUnknown ? magnitude : std::max(magnitude + by, kLeast);
}

int MagnitudeOfProduct(int a, int b) {
  return a == ValueFacts::kUnknown ? a : b == ValueFacts::kUnknown ? b : ShiftedMagnitude(a, b);
}

int MagnitudeOfSum(int magnitude, std::optional<int64_t> terms) {
  // The roundings of so many terms, in f32 each a part of 2^-24, do not come to a factor of 2.
  constexpr int64_t kMostTerms = int64_t{1} << 22;
  if (!terms || *terms > kMostTerms) return ValueFacts::kUnknown;
  return ShiftedMagnitude(magnitude,
                          *terms <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(*terms - 1)) + 1);
}

ValueFacts ValueFactsOf(const Tensor& value) {
  if (!IsFloat(value.dtype)) return ValueFactsOf(value.dtype);
  if (!Computes(value.dtype)) return {};
  ValueFacts facts{true, true, true, true};
  const double least = SmallestNormal(value.dtype);
  double most = 0;
  for (int64_t i = 0; i < value.elements(); ++i) {
    const double v = LoadScalar(value, i).f;
    if (std::isnan(v)) continue;
    facts.no_plus_infinity = facts.no_plus_infinity && !(std::isinf(v) && v > 0);
    facts.no_minus_infinity = facts.no_minus_infinity && !(std::isinf(v) && v < 0);
    facts.nonnegative = facts.nonnegative && v >= 0;
    facts.positive = facts.positive && v >= least;
    most = std::max(most, std::fabs(v));
  }
  const int magnitude =
      most > 0 ? std::ilogb(most) + (std::scalbn(1.0, std::ilogb(most)) < most) : kLeast;
  if (facts.bounded() && magnitude <= LargestExponent(value.dtype)) facts.magnitude = magnitude;
  return facts;
}

ValueFacts ValueFactsOf(Op op, const Attrs& attrs, absl::Span<const ValueFacts> operands,
                        bool operands_equal, DType operand, DType result,
                        std::optional<int64_t> terms) {
  if (!IsFloat(result)) return ValueFactsOf(result);
  const auto values = OpInfo(op).traits.values;
  if (values == nullptr) return {};
  return values({attrs, operands, operands_equal, operand, result, terms});
}

}  // namespace athanor
