// OpBuilder: elementwise functions, with numpy's broadcasting. Functions that the op table lacks
// are built exactly from ops it has, also for NaN, infinities and wrapping integers.
#include <limits>
#include <utility>

#include "compiler/frontend/onnx/build/build.h"
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
  return b.Or(b.Less(x, b.Scalar(x.elem, kInfinity)), b.Less(b.Scalar(x.elem, -kInfinity), x));
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

absl::StatusOr<Shape> OpBuilder::BroadcastShape(absl::Span<const Shape> shapes) {
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
      if (bounds_.ProvablyEqual(x, y)) {
        if (y.constant()) x = y;
      } else if (bounds_.ProvablyEqual(x, 1)) {
        x = y;
      } else if (!bounds_.ProvablyEqual(y, 1)) {
        return Invalid(CannotBroadcast(before, shape, static_cast<int>(i), x, y, hints_));
      }
    }
  }
  return result;
}

Value OpBuilder::Broadcast(const Value& x, const Shape& shape) {
  if (!status_.ok() || x.shape == shape) return x;
  if (x.shape.size() > shape.size()) {
    Fail(Invalid("a tensor of shape ", ShapeToString(x.shape), " has more axes than ",
                 ShapeToString(shape), ", to which it should broadcast"));
    return FailedValue();
  }
  const size_t added = shape.size() - x.shape.size();
  std::vector<Expr> coordinates;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    const Expr& from = x.shape[i];
    const Expr& to = shape[added + i];
    const bool same = bounds_.ProvablyEqual(from, to);
    if (!same && !bounds_.ProvablyEqual(from, 1)) {
      Fail(Invalid(
          CannotBroadcast(x.shape, shape, static_cast<int>(x.shape.size() - i), from, to, hints_)));
      return FailedValue();
    }
    coordinates.push_back(same ? Expr::Axis(static_cast<int>(added + i)) : Expr(0));
  }
  return Raw(Op::kIndexMap, {x}, {{"map", IndexMap{shape, std::move(coordinates)}}}, x.elem);
}

Value OpBuilder::Unary(Op op, const Value& x, Attrs attrs) {
  return Raw(op, {x}, std::move(attrs), x.elem);
}

Value OpBuilder::Binary(Op op, const Value& a, const Value& b, Attrs attrs) {
  if (!status_.ok()) return FailedValue();
  const absl::StatusOr<Shape> shape = BroadcastShape({a.shape, b.shape});
  if (!shape.ok()) {
    Fail(shape.status());
    return FailedValue();
  }
  return Raw(op, {Broadcast(a, *shape), Broadcast(b, *shape)}, std::move(attrs),
             op == Op::kLessThan ? Elem::kBool : a.elem);
}

Value OpBuilder::Select(const Value& condition, const Value& a, const Value& b) {
  if (!status_.ok()) return FailedValue();
  const absl::StatusOr<Shape> shape = BroadcastShape({condition.shape, a.shape, b.shape});
  if (!shape.ok()) {
    Fail(shape.status());
    return FailedValue();
  }
  return Raw(Op::kSelect,
             {Broadcast(condition, *shape), Broadcast(a, *shape), Broadcast(b, *shape)}, {},
             a.elem);
}

Value OpBuilder::Neg(const Value& x) {
  // Multiplying an unsigned integer by all ones wraps to its negative.
  if (!IsUnsigned(x.dtype())) return Mul(x, Integer(x.elem, -1));
  return Mul(x, Bits(*this, x.elem, ~uint64_t{0}));
}

Value OpBuilder::Sub(const Value& a, const Value& b) { return Add(a, Neg(b)); }

Value OpBuilder::Div(const Value& a, const Value& b) {
  return Binary(IsFloat(a.dtype()) ? Op::kDiv : Op::kTruncDiv, a, b);
}

Value OpBuilder::Abs(const Value& x) {
  if (IsUnsigned(x.dtype())) return x;
  if (!IsFloat(x.dtype())) return Max(x, Neg(x));
  const FloatBits bits = BitsOf(x.dtype());
  return Bitcast(And(Bitcast(x, bits.elem), Bits(*this, bits.elem, bits.sign - 1)), x.elem);
}

Value OpBuilder::Equal(const Value& a, const Value& b) {
  if (a.dtype() == DType::kBool) return Not(Binary(Op::kXor, a, b));
  const Value same = Not(Or(Less(a, b), Less(b, a)));
  return IsFloat(a.dtype()) ? And(same, Ordered(*this, Max(a, b))) : same;
}

Value OpBuilder::LessEqual(const Value& a, const Value& b) {
  const Value not_above = Not(Less(b, a));
  return IsFloat(a.dtype()) ? And(not_above, Ordered(*this, Max(a, b))) : not_above;
}

// Tests the bits, so that it is exact for every type and compares no NaN.
Value OpBuilder::IsNaN(const Value& x) {
  if (!status_.ok()) return FailedValue();
  if (Row(x.elem).carry == Carry::kCode) {
    const bool fnuz = x.elem == Elem::kFloat8E4M3FNUZ || x.elem == Elem::kFloat8E5M2FNUZ;
    if (!fnuz) return Splat(Integer(Elem::kBool, 0), x.shape);  // f4 and f6 have no NaN
    const Value code = Bitcast(x, Elem::kUInt8);
    return Equal(code, Integer(Elem::kUInt8, 0x80));
  }
  if (!IsFloat(x.dtype())) return Splat(Integer(Elem::kBool, 0), x.shape);
  const FloatBits bits = BitsOf(x.dtype());
  const Value magnitude = And(Bitcast(x, bits.elem), Bits(*this, bits.elem, bits.sign - 1));
  return Less(Bits(*this, bits.elem, bits.infinity), magnitude);
}

Value OpBuilder::CopySign(const Value& magnitude, const Value& sign) {
  const FloatBits bits = BitsOf(magnitude.dtype());
  const Value size = And(Bitcast(magnitude, bits.elem), Bits(*this, bits.elem, bits.sign - 1));
  const Value minus = And(Bitcast(sign, bits.elem), Bits(*this, bits.elem, bits.sign));
  return Bitcast(Or(size, minus), magnitude.elem);
}

Value OpBuilder::Clamp(const Value& x, const Value& low, const Value& high) {
  return Min(high, Max(x, low));
}

Value OpBuilder::Up(const Value& x) {
  return AccumulatorOf(x.dtype()) == x.dtype() ? x : Cast(x, Elem::kFloat);
}

}  // namespace athanor::onnx
