#include "compiler/frontend/onnx/build/build_elementwise.h"

#include <limits>
#include <utility>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The unsigned integer type of a float's width, with the bit patterns of the sign and of infinity.
struct FloatBits {
  Elem elem;
  uint64_t sign, infinity;
};
FloatBits BitsOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {Elem::kUInt64, uint64_t{1} << 63, uint64_t{0x7ff} << 52};
    case DType::kF32:
      return {Elem::kUInt32, uint64_t{1} << 31, 0x7f800000};
    case DType::kBF16:
      return {Elem::kUInt16, 0x8000, 0x7f80};
    case DType::kF16:
      return {Elem::kUInt16, 0x8000, 0x7c00};
    // For these types, the largest code that is a number.
    case DType::kF8E4M3:
      return {Elem::kUInt8, 0x80, 0x7e};
    case DType::kF8E5M2:
      return {Elem::kUInt8, 0x80, 0x7c};
    default:
      return {Elem::kUInt8, 0, 0xfe};  // f8e8m0 has no sign
  }
}

Value Bits(OpBuilder& b, Elem elem, uint64_t bits) {
  Tensor t = Tensor::Zeros(CarrierOf(elem), {});
  StoreScalar(t, 0, ::athanor::Scalar::Unsigned(t.dtype, bits));
  return b.Literal(elem, std::move(t));
}

// Given the maximum of two values, reports whether neither is NaN.
Value Ordered(OpBuilder& b, const Value& x) {
  return Or(b, Less(b, x, b.Scalar(x.elem, kInfinity)), Less(b, b.Scalar(x.elem, -kInfinity), x));
}

std::string CannotBroadcast(const Shape& a, const Shape& b, int from_end, const Expr& x,
                            const Expr& y, MultiplesHints& hints) {
  std::string text =
      Cat("shapes ", ShapeToString(a), " and ", ShapeToString(b), " do not broadcast: axis -",
          from_end, " is ", x.ToString(), " and ", y.ToString());
  if (x.constant() && y.constant()) return text + "; sizes must be equal, or one of them 1";
  const std::string hint = hints.Of(a, b);
  text += ", which are not provably equal, and neither is provably 1";
  if (!hint.empty()) return text + hint;
  text += ": if they are equal, say so";
  const auto symbol = y.symbol() ? y.symbol() : x.symbol();
  if (symbol) {
    const Expr& other = y.symbol() ? x : y;
    const std::string is = other.constant() ? other.ToString() : Cat("\"", other.ToString(), "\"");
    text += Cat(" with dims={\"", *symbol, "\": ", is, "}");
  }
  return text + "; if one is 1, fix it";
}

}  // namespace

absl::StatusOr<Shape> BroadcastShape(OpBuilder& b, absl::Span<const Shape> shapes) {
  Shape result;
  for (const Shape& shape : shapes) {
    const Shape before = result;
    if (shape.size() > result.size()) {
      result.insert(result.begin(), shape.begin(), shape.end() - static_cast<int>(before.size()));
    }
    const size_t common = std::min(shape.size(), before.size());
    for (size_t i = 1; i <= common; ++i) {
      Expr& x = result[result.size() - i];
      const Expr& y = shape[shape.size() - i];
      if (b.bounds().ProvablyEqual(x, y)) {
        if (y.constant()) x = y;
      } else if (b.bounds().ProvablyEqual(x, 1)) {
        x = y;
      } else if (!b.bounds().ProvablyEqual(y, 1)) {
        return Invalid(CannotBroadcast(before, shape, static_cast<int>(i), x, y, b.hints()));
      }
    }
  }
  return result;
}

Value Broadcast(OpBuilder& b, const Value& x, const Shape& shape) {
  if (!b.status().ok() || x.shape == shape) return x;
  if (x.shape.size() > shape.size()) {
    b.Fail(Invalid("a tensor of shape ", ShapeToString(x.shape), " has more axes than ",
                   ShapeToString(shape), ", to which it should broadcast"));
    return FailedValue();
  }
  const size_t added = shape.size() - x.shape.size();
  std::vector<Expr> coordinates;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    const Expr& from = x.shape[i];
    const Expr& to = shape[added + i];
    const bool same = b.bounds().ProvablyEqual(from, to);
    if (!same && !b.bounds().ProvablyEqual(from, 1)) {
      b.Fail(Invalid(CannotBroadcast(x.shape, shape, static_cast<int>(x.shape.size() - i), from, to,
                                     b.hints())));
      return FailedValue();
    }
    coordinates.push_back(same ? Expr::Axis(static_cast<int>(added + i)) : Expr(0));
  }
  return b.Raw(Op::kIndexMap, {x}, {{"map", IndexMap{shape, std::move(coordinates)}}}, x.elem);
}

Value Unary(OpBuilder& b, Op op, const Value& x, Attrs attrs) {
  return b.Raw(op, {x}, std::move(attrs), x.elem);
}

Value Binary(OpBuilder& b, Op op, const Value& x, const Value& y, Attrs attrs) {
  if (!b.status().ok()) return FailedValue();
  const absl::StatusOr<Shape> shape = BroadcastShape(b, {x.shape, y.shape});
  if (!shape.ok()) {
    b.Fail(shape.status());
    return FailedValue();
  }
  return b.Raw(op, {Broadcast(b, x, *shape), Broadcast(b, y, *shape)}, std::move(attrs),
               op == Op::kLessThan ? Elem::kBool : x.elem);
}

Value Select(OpBuilder& b, const Value& condition, const Value& x, const Value& y) {
  if (!b.status().ok()) return FailedValue();
  const absl::StatusOr<Shape> shape = BroadcastShape(b, {condition.shape, x.shape, y.shape});
  if (!shape.ok()) {
    b.Fail(shape.status());
    return FailedValue();
  }
  return b.Raw(Op::kSelect,
               {Broadcast(b, condition, *shape), Broadcast(b, x, *shape), Broadcast(b, y, *shape)},
               {}, x.elem);
}

Value Add(OpBuilder& b, const Value& x, const Value& y) { return Binary(b, Op::kAdd, x, y); }

Value Mul(OpBuilder& b, const Value& x, const Value& y) { return Binary(b, Op::kMul, x, y); }

Value Min(OpBuilder& b, const Value& x, const Value& y) { return Binary(b, Op::kMin, x, y); }

Value Max(OpBuilder& b, const Value& x, const Value& y) { return Binary(b, Op::kMax, x, y); }

Value Less(OpBuilder& b, const Value& x, const Value& y) { return Binary(b, Op::kLessThan, x, y); }

Value And(OpBuilder& b, const Value& x, const Value& y) { return Binary(b, Op::kAnd, x, y); }

Value Or(OpBuilder& b, const Value& x, const Value& y) { return Binary(b, Op::kOr, x, y); }

Value Not(OpBuilder& b, const Value& x) { return Unary(b, Op::kNot, x); }

Value Neg(OpBuilder& b, const Value& x) {
  // Multiplying an unsigned integer by all ones wraps to its negative.
  if (!IsUnsigned(x.dtype())) return Mul(b, x, b.Integer(x.elem, -1));
  return Mul(b, x, Bits(b, x.elem, ~uint64_t{0}));
}

Value Sub(OpBuilder& b, const Value& x, const Value& y) { return Add(b, x, Neg(b, y)); }

Value Div(OpBuilder& b, const Value& x, const Value& y) {
  return Binary(b, IsFloat(x.dtype()) ? Op::kDiv : Op::kTruncDiv, x, y);
}

Value Abs(OpBuilder& b, const Value& x) {
  if (IsUnsigned(x.dtype())) return x;
  if (!IsFloat(x.dtype())) return Max(b, x, Neg(b, x));
  const FloatBits bits = BitsOf(x.dtype());
  return Bitcast(b, And(b, Bitcast(b, x, bits.elem), Bits(b, bits.elem, bits.sign - 1)), x.elem);
}

Value Equal(OpBuilder& b, const Value& x, const Value& y) {
  if (x.dtype() == DType::kBool) return Not(b, Binary(b, Op::kXor, x, y));
  const Value same = Not(b, Or(b, Less(b, x, y), Less(b, y, x)));
  return IsFloat(x.dtype()) ? And(b, same, Ordered(b, Max(b, x, y))) : same;
}

Value LessEqual(OpBuilder& b, const Value& x, const Value& y) {
  const Value not_above = Not(b, Less(b, y, x));
  return IsFloat(x.dtype()) ? And(b, not_above, Ordered(b, Max(b, x, y))) : not_above;
}

// Tests the bits, so that it is exact for every type and compares no NaN.
Value IsNaN(OpBuilder& b, const Value& x) {
  if (!b.status().ok()) return FailedValue();
  if (Row(x.elem).carry == Carry::kCode) {
    const bool fnuz = x.elem == Elem::kFloat8E4M3FNUZ || x.elem == Elem::kFloat8E5M2FNUZ;
    if (!fnuz) return Splat(b, b.Integer(Elem::kBool, 0), x.shape);  // f4 and f6 have no NaN
    const Value code = Bitcast(b, x, Elem::kUInt8);
    return Equal(b, code, b.Integer(Elem::kUInt8, 0x80));
  }
  if (!IsFloat(x.dtype())) return Splat(b, b.Integer(Elem::kBool, 0), x.shape);
  const FloatBits bits = BitsOf(x.dtype());
  const Value magnitude = And(b, Bitcast(b, x, bits.elem), Bits(b, bits.elem, bits.sign - 1));
  return Less(b, Bits(b, bits.elem, bits.infinity), magnitude);
}

Value CopySign(OpBuilder& b, const Value& magnitude, const Value& sign) {
  const FloatBits bits = BitsOf(magnitude.dtype());
  const Value size = And(b, Bitcast(b, magnitude, bits.elem), Bits(b, bits.elem, bits.sign - 1));
  const Value minus = And(b, Bitcast(b, sign, bits.elem), Bits(b, bits.elem, bits.sign));
  return Bitcast(b, Or(b, size, minus), magnitude.elem);
}

Value Clamp(OpBuilder& b, const Value& x, const Value& low, const Value& high) {
  return Min(b, high, Max(b, x, low));
}

}  // namespace athanor::onnx
