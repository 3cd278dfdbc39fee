// Handlers: elementwise functions of several operands: arithmetic, comparisons, logic, bits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using OfTwo = Value (*)(OpBuilder&, const Value&, const Value&);

Value Xor(OpBuilder& b, const Value& x, const Value& y) { return Binary(b, Op::kXor, x, y); }
Value Greater(OpBuilder& b, const Value& x, const Value& y) { return Less(b, y, x); }
Value GreaterEqual(OpBuilder& b, const Value& x, const Value& y) { return LessEqual(b, y, x); }

template <OfTwo kFunction>
absl::Status Row2(HandlerContext& c) {
  c.Set(0, kFunction(c.b(), c.In(0), c.In(1)));
  return absl::OkStatus();
}

// Returns operand 1 in the shape of operand 0, by the rules before opset 7. With broadcast=1 its
// axes match those of operand 0 from `axis` on, or the last ones; without, the shapes must be
// equal.
absl::StatusOr<Value> SecondAlike(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &y = c.In(1);
  if (c.Int("broadcast") == 0) {
    const absl::Status same = SameShape(c, {x, y});
    if (same.ok()) return y;
    return Prefixed("without broadcast=1 ", same);
  }
  int begin = x.rank() - y.rank();
  if (c.Given("axis")) {
    ASSIGN_OR_RETURN(begin, c.Axis(c.Int("axis"), std::max(x.rank(), 1)));
  }
  const int after = x.rank() - begin - y.rank();
  if (begin < 0 || after < 0) {
    return Invalid("B of shape ", ShapeToString(y.shape), " at axis ", begin,
                   " is not within A of shape ", ShapeToString(x.shape));
  }
  std::vector<int> added;
  for (int i = 0; i < after; ++i) added.push_back(y.rank() + i);
  return Broadcast(b, Unsqueeze(b, y, added), x.shape);
}
template <OfTwo kFunction>
absl::Status Aligned(HandlerContext& c) {
  ASSIGN_OR_RETURN(const Value y, SecondAlike(c));
  c.Set(0, kFunction(c.b(), c.In(0), y));
  return absl::OkStatus();
}

// Sums f16 and bf16 in f32 and rounds once.
enum class Many { kMin, kMax, kSum, kMean };
template <Many kMany>
absl::Status Fold(HandlerContext& c) {
  OpBuilder& b = c.b();
  std::vector<Value> operands;
  for (int i = 0; i < c.inputs(); ++i) operands.push_back(c.In(i));
  if (c.version() < 8) {
    const absl::Status same = SameShape(c, operands);
    if (!same.ok()) return Prefixed("opsets before 8 do not broadcast: ", same);
  }
  const bool sums = kMany == Many::kSum || kMany == Many::kMean;
  Value all = sums ? Up(b, operands[0]) : operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    all = sums                  ? Add(b, all, Up(b, operands[i]))
          : kMany == Many::kMin ? Min(b, all, operands[i])
                                : Max(b, all, operands[i]);
  }
  if (kMany == Many::kMean) {
    all = Div(b, all, NumberLike(c, all, static_cast<double>(operands.size())));
  }
  c.Set(0, Cast(b, all, operands[0].elem));
  return absl::OkStatus();
}

absl::Status Mod(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &y = c.In(1);
  const int64_t fmod = c.Int("fmod");
  if (fmod != 0 && fmod != 1) return Invalid("fmod=", fmod, " must be 0 or 1");
  const bool floats = IsFloat(x.dtype());
  if (fmod == 0) {
    if (floats && c.version() < 28) {
      return Invalid("fmod=0 of ", ElemName(x.elem), ": before opset 28 floats need fmod=1");
    }
    c.Set(0, Binary(b, Op::kMod, x, y));
    return absl::OkStatus();
  }
  if (!floats) {
    c.Set(0, Sub(b, x, Mul(b, y, Div(b, x, y))));
    return absl::OkStatus();
  }
  const Value size = Binary(b, Op::kMod, Abs(b, x), Abs(b, y));
  const Value signs = b.status().ok() ? Broadcast(b, x, size.shape) : size;
  c.Set(0, CopySign(b, size, signs));
  return absl::OkStatus();
}

absl::Status BitShift(HandlerContext& c) {
  ASSIGN_OR_RETURN(const auto direction, c.OneOf("direction", {"LEFT", "RIGHT"}));
  c.Set(0, Binary(c.b(), Op::kShift, c.In(0), c.In(1),
                  {{"direction", std::string(direction == "LEFT" ? "left" : "right")}}));
  return absl::OkStatus();
}

absl::Status Where(HandlerContext& c) {
  c.Set(0, Select(c.b(), c.In(0), c.In(1), c.In(2)));
  return absl::OkStatus();
}

// --- Pow: the result has the base's type.

bool IsLong(const Value& v) { return v.dtype() == DType::kI64 || v.dtype() == DType::kU64; }

// Returns the exponent if it is a single known number.
std::optional<double> KnownNumber(const Value& v) {
  if (v.known == nullptr || !v.known->literal || v.known->literal->elements() != 1) {
    return std::nullopt;
  }
  const ::athanor::Scalar s = LoadScalar(*v.known->literal, 0);
  return IsFloat(v.dtype())    ? s.f
         : IsSigned(v.dtype()) ? static_cast<double>(s.i)
                               : static_cast<double>(s.u);
}

// Computes by square and multiply; overflow wraps. A negative exponent gives 1 / x^-y, truncated,
// which is not 0 only for x of 1 and -1.
Value IntegerPower(OpBuilder& b, const Value& x, const Value& y) {
  const Value one = b.Integer(x.elem, 1), zero = b.Integer(x.elem, 0);
  int bits = 8 * DTypeBytes(y.dtype()) - (IsSigned(y.dtype()) ? 1 : 0);
  if (const std::optional<double> known = KnownNumber(y); known && *known >= 0) {
    bits = 0;
    while (bits < 63 && std::ldexp(1.0, bits) <= *known) ++bits;
  }
  const auto odd = [&](int bit) {
    const Value shifted =
        Binary(b, Op::kShift, y, b.Integer(y.elem, bit), {{"direction", std::string("right")}});
    return Cast(b, And(b, shifted, b.Integer(y.elem, 1)), Elem::kBool);
  };
  Value power = one, square = x;
  for (int bit = 0; bit < bits; ++bit) {
    power = Mul(b, power, Select(b, odd(bit), square, one));
    if (bit + 1 < bits) square = Mul(b, square, square);
  }
  if (!IsSigned(y.dtype())) return power;
  Value inverse = Select(b, Equal(b, x, one), one, zero);
  if (IsSigned(x.dtype())) {
    const Value minus = b.Integer(x.elem, -1);
    inverse = Select(b, Equal(b, x, minus), Select(b, odd(0), minus, one), inverse);
  }
  return Select(b, Less(b, y, b.Integer(y.elem, 0)), inverse, power);
}

// Returns powers that need no pow function; nullopt for other exponents.
std::optional<Value> EasyPower(OpBuilder& b, const Value& x, double exponent) {
  if (exponent == 1) return x;
  if (exponent == 2) return Mul(b, x, x);
  const Value wide = Up(b, x);
  if (exponent == 3) return Cast(b, Mul(b, Mul(b, wide, wide), wide), x.elem);
  if (exponent == 0.5) {
    // Power 0.5 differs from sqrt only for -0, which gives +0, and -inf, which gives +inf.
    const double infinity = std::numeric_limits<double>::infinity();
    const Value root = Add(b, Unary(b, Op::kSqrt, wide), b.Scalar(wide.elem, 0));
    const Value lowest = Equal(b, wide, b.Scalar(wide.elem, -infinity));
    return Cast(b, Select(b, lowest, b.Scalar(wide.elem, infinity), root), x.elem);
  }
  return std::nullopt;
}

// A float base or exponent: computes in the wider type, or in f64 if an integer needs it to be
// exact.
Value FloatPower(OpBuilder& b, const Value& x, const Value& y) {
  const auto needs_double = [](const Value& v) {
    return v.dtype() == DType::kF64 || (!IsFloat(v.dtype()) && DTypeBytes(v.dtype()) > 2);
  };
  const bool same = x.elem == y.elem;
  const Elem elem = same                                 ? x.elem
                    : needs_double(x) || needs_double(y) ? Elem::kDouble
                                                         : Elem::kFloat;
  const Value base = Cast(b, x, elem), exponent = Cast(b, y, elem);
  if (!IsLong(y)) return Cast(b, Binary(b, Op::kPow, base, exponent), x.elem);
  // Beyond 2^53, an exponent in f64 no longer tells whether it is odd.
  const Value size = Binary(b, Op::kPow, Abs(b, base), exponent);
  const Value odd = Cast(b, And(b, y, b.Integer(y.elem, 1)), Elem::kBool);
  const Value sign = CopySign(b, Splat(b, b.Scalar(elem, 1), base.shape), base);
  const Value negative = And(b, odd, Less(b, sign, b.Scalar(elem, 0)));
  return Cast(b, Select(b, negative, Neg(b, size), size), x.elem);
}

absl::Status SetPower(HandlerContext& c, const Value& y) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  if (!IsFloat(x.dtype()) && !IsFloat(y.dtype())) {
    ASSIGN_OR_RETURN(const Shape shape, BroadcastShape(b, {x.shape, y.shape}));
    c.Set(0, Broadcast(b, IntegerPower(b, x, y), shape));  // also if the exponent is a known 0
    return absl::OkStatus();
  }
  std::optional<Value> easy;
  if (const std::optional<double> known = KnownNumber(y); known && IsFloat(x.dtype())) {
    easy = EasyPower(b, x, *known);
  }
  if (easy && b.status().ok()) {
    // The exponent may have more axes than the base.
    ASSIGN_OR_RETURN(const Shape shape, BroadcastShape(b, {x.shape, y.shape}));
    c.Set(0, Broadcast(b, *easy, shape));
  } else {
    c.Set(0, FloatPower(b, x, y));
  }
  return absl::OkStatus();
}
absl::Status Pow(HandlerContext& c) { return SetPower(c, c.In(1)); }
absl::Status AlignedPow(HandlerContext& c) {
  const absl::StatusOr<Value> y = SecondAlike(c);
  return y.ok() ? SetPower(c, *y) : y.status();
}

constexpr HandlerRow kRows[] = {
    {"", "Add", 1, Aligned<Add>},
    {"", "Add", 7, Row2<Add>},
    {"", "And", 1, Aligned<And>},
    {"", "And", 7, Row2<And>},
    {"", "BitShift", 1, BitShift},
    {"", "BitwiseAnd", 1, Row2<And>},
    {"", "BitwiseOr", 1, Row2<Or>},
    {"", "BitwiseXor", 1, Row2<Xor>},
    {"", "Div", 1, Aligned<Div>},
    {"", "Div", 7, Row2<Div>},
    {"", "Equal", 1, Aligned<Equal>},
    {"", "Equal", 7, Row2<Equal>},
    {"", "Greater", 1, Aligned<Greater>},
    {"", "Greater", 7, Row2<Greater>},
    {"", "GreaterOrEqual", 1, Row2<GreaterEqual>},
    {"", "Less", 1, Aligned<Less>},
    {"", "Less", 7, Row2<Less>},
    {"", "LessOrEqual", 1, Row2<LessEqual>},
    {"", "Max", 1, Fold<Many::kMax>},
    {"", "Mean", 1, Fold<Many::kMean>},
    {"", "Min", 1, Fold<Many::kMin>},
    {"", "Mod", 1, Mod},
    {"", "Mul", 1, Aligned<Mul>},
    {"", "Mul", 7, Row2<Mul>},
    {"", "Or", 1, Aligned<Or>},
    {"", "Or", 7, Row2<Or>},
    {"", "Pow", 1, AlignedPow},
    {"", "Pow", 7, Pow},
    {"", "Sub", 1, Aligned<Sub>},
    {"", "Sub", 7, Row2<Sub>},
    {"", "Sum", 1, Fold<Many::kSum>},
    {"", "Where", 1, Where},
    {"", "Xor", 1, Aligned<Xor>},
    {"", "Xor", 7, Row2<Xor>},
};

}  // namespace

absl::Span<const HandlerRow> ElementwiseBinaryRows() { return kRows; }

}  // namespace athanor::onnx
