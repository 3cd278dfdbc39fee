#include "compiler/rules/terms/value_facts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "compiler/ir/graph/magnitude.h"

namespace athanor {
namespace {

// Returns the facts that hold for both.
ValueFacts Common(const ValueFacts& a, const ValueFacts& b) {
  return {.no_plus_infinity = a.no_plus_infinity && b.no_plus_infinity,
          .no_minus_infinity = a.no_minus_infinity && b.no_minus_infinity,
          .nonnegative = a.nonnegative && b.nonnegative,
          .positive = a.positive && b.positive,
          .magnitude = std::max(a.magnitude, b.magnitude)};
}

// Below the exponent of any float; used for zero, and products go no lower.
constexpr int kLeast = -1100;
int Shifted(int magnitude, int by) {
  return magnitude == ValueFacts::kUnknown ? magnitude : std::max(magnitude + by, kLeast);
}
int Product(int a, int b) {
  return a == ValueFacts::kUnknown ? a : b == ValueFacts::kUnknown ? b : Shifted(a, b);
}

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

// Returns the facts of a dtype alone: integers and bools have no infinity.
ValueFacts ValueFactsOf(DType dtype) {
  if (IsFloat(dtype)) return {};
  return {.no_plus_infinity = true,
          .no_minus_infinity = true,
          .nonnegative = !IsSigned(dtype),
          .magnitude = LargestExponent(dtype)};
}

ValueFacts OfParameter(const Attrs& attrs, DType dtype) {
  const auto it = attrs.find(kMagnitude);
  if (it == attrs.end()) return {};
  ValueFacts facts{.no_plus_infinity = true, .no_minus_infinity = true};
  const auto magnitude = static_cast<int>(std::get<int64_t>(it->second));
  if (magnitude <= LargestExponent(dtype)) facts.magnitude = magnitude;
  return facts;
}

ValueFacts OfCast(const ValueFacts& x, DType from, DType to) {
  if (!IsFloat(to) || !Computes(to)) return {};
  ValueFacts facts{.nonnegative = x.nonnegative, .magnitude = x.magnitude};
  // Only f16 has a range that other dtypes exceed; no narrower dtype exceeds that of f32 or f64.
  const bool fits = to != DType::kF16 && (!IsFloat(from) || from == to || to == DType::kF64 ||
                                          (from != DType::kF64 && to == DType::kF32));
  if (fits) {
    facts.no_plus_infinity = x.no_plus_infinity;
    facts.no_minus_infinity = x.no_minus_infinity;
  }
  return facts;
}

ValueFacts OfMinMax(bool max, const ValueFacts& a, const ValueFacts& b) {
  ValueFacts facts = Common(a, b), either = Joined(a, b);
  if (max) {
    facts.no_minus_infinity = either.no_minus_infinity;
    facts.nonnegative = either.nonnegative;
    facts.positive = either.positive;
  } else {
    facts.no_plus_infinity = either.no_plus_infinity;
  }
  return facts;
}

}  // namespace

ValueFacts Joined(const ValueFacts& a, const ValueFacts& b) {
  return {.no_plus_infinity = a.no_plus_infinity || b.no_plus_infinity,
          .no_minus_infinity = a.no_minus_infinity || b.no_minus_infinity,
          .nonnegative = a.nonnegative || b.nonnegative,
          .positive = a.positive || b.positive,
          .magnitude = std::min(a.magnitude, b.magnitude)};
}

int MagnitudeOfSum(int magnitude, std::optional<int64_t> terms) {
  // With at most this many terms, the roundings (in f32 each a part of 2^-24) stay below a factor
  // of 2.
  constexpr int64_t kMostTerms = int64_t{1} << 22;
  if (!terms || *terms > kMostTerms) return ValueFacts::kUnknown;
  return Shifted(magnitude,
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
  ValueFacts facts;
  switch (op) {
    case Op::kParameter:
      return OfParameter(attrs, result);
    case Op::kConstant:
      return ValueFactsOf(GetAttr<Tensor>(attrs, "value"));
    case Op::kIndexMap: {
      const auto fill = attrs.find("fill");
      if (fill == attrs.end()) return operands[0];
      return Common(operands[0], ValueFactsOf(std::get<Tensor>(fill->second)));
    }
    case Op::kGather:
    case Op::kFloor:
    case Op::kRound:
      facts = operands[0];
      facts.positive = facts.positive && op == Op::kGather;
      if (op != Op::kGather) facts.magnitude = std::max(facts.magnitude, 0);
      break;
    case Op::kSelect:
      return Common(operands[1], operands[2]);
    case Op::kMin:
    case Op::kMax:
      return OfMinMax(op == Op::kMax, operands[0], operands[1]);
    case Op::kTanh:
    case Op::kErf:
    case Op::kSin:
    case Op::kCos:
    case Op::kAsin:
    case Op::kAtan:
      facts.magnitude = 1;  // 1 or pi/2, plus an error
      break;
    case Op::kAcos:
      facts = {.nonnegative = true, .magnitude = 2};
      break;
    case Op::kCosh:
      facts.nonnegative = facts.positive = true;
      break;
    case Op::kAcosh:
      facts.nonnegative = true;
      break;
    case Op::kExpm1:
      facts.no_minus_infinity = true;
      break;
    case Op::kExp:
    case Op::kExp2:
      facts.nonnegative = true;
      break;
    case Op::kSqrt:
      facts = {.no_plus_infinity = operands[0].no_plus_infinity,
               .nonnegative = true,
               .positive = operands[0].positive};
      if (operands[0].magnitude != ValueFacts::kUnknown) {
        facts.magnitude = std::max(operands[0].magnitude + 1, 0) / 2;
      }
      break;
    case Op::kRecip:
      facts.nonnegative = facts.no_plus_infinity = operands[0].positive;
      break;
    case Op::kMul:
      facts.nonnegative = operands_equal || Common(operands[0], operands[1]).nonnegative;
      facts.magnitude = Product(operands[0].magnitude, operands[1].magnitude);
      break;
    case Op::kAdd:
      facts.nonnegative = Common(operands[0], operands[1]).nonnegative;
      facts.positive = facts.nonnegative && (operands[0].positive || operands[1].positive);
      facts.magnitude = Shifted(Common(operands[0], operands[1]).magnitude, 1);
      break;
    case Op::kDiv:
      facts.nonnegative = operands[0].nonnegative && operands[1].positive;
      break;
    case Op::kSumReduce:
      facts.nonnegative = operands[0].nonnegative;
      facts.magnitude = MagnitudeOfSum(operands[0].magnitude, terms);
      break;
    case Op::kMulReduce:
    case Op::kCumulate:
      facts.nonnegative = operands[0].nonnegative;
      break;
    case Op::kContract:
      facts.magnitude =
          MagnitudeOfSum(Product(operands[0].magnitude, operands[1].magnitude), terms);
      break;
    case Op::kCast:
      facts = OfCast(operands[0], operand, result);
      break;
    default:
      break;
  }
  if (facts.magnitude > LargestExponent(result)) facts.magnitude = ValueFacts::kUnknown;
  if (facts.magnitude != ValueFacts::kUnknown) {
    facts.no_plus_infinity = facts.no_minus_infinity = true;
  }
  facts.no_minus_infinity = facts.no_minus_infinity || facts.nonnegative;
  return facts;
}

}  // namespace athanor
