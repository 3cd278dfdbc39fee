// Handlers: quantisation, and products of quantised operands.
#include "compiler/frontend/onnx/ops/math/handlers_quantised.h"

#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr Elem kI32 = Elem::kInt32;
// Larger than every sum of a zero point and a value of 16 bits. Larger values are clamped to this
// first, so that the sum does not wrap.
constexpr double kFarOutside = 1 << 18;

bool IsWhole(Elem elem) { return !IsFloat(CarrierOf(elem)) && Row(elem).carry != Carry::kCode; }

int64_t Lowest(Elem elem) {
  const ElemRow& row = Row(elem);
  if (row.carry == Carry::kNarrow) return row.low;
  return IsSigned(row.carrier) ? -(int64_t{1} << (row.bits - 1)) : 0;
}
int64_t Highest(Elem elem) {
  const ElemRow& row = Row(elem);
  if (row.carry == Carry::kNarrow) return row.high;
  return (int64_t{1} << (row.bits - (IsSigned(row.carrier) ? 1 : 0))) - 1;
}

int64_t IntOr(HandlerContext& c, int since, std::string_view name) {
  return c.version() >= since ? c.Int(name) : 0;
}

// Returns a scale or zero point for every element of x. The operand is one number, a vector along
// `axis`, or one number for each block of block_size along it.
absl::StatusOr<Value> Spread(HandlerContext& c, int i, std::string_view what) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &v = c.In(i);
  if (v.rank() == 0) return v;
  const int64_t block = IntOr(c, 21, "block_size");
  if (block < 0) return Invalid("block_size=", block, " must not be negative");
  const bool one = v.rank() == 1 && b.bounds().ProvablyEqual(v.shape[0], 1);
  if (block == 0 && (one || c.version() < 13)) return ScalarOperand(c, i, what);
  // A vector's only axis is axis 0.
  ASSIGN_OR_RETURN(const int axis, x.rank() == 1 ? 0 : c.Axis(c.Int("axis"), x.rank()));
  const Expr& size = x.shape[axis];
  if (block == 0) {
    if (v.rank() != 1 || !b.bounds().ProvablyEqual(v.shape[0], size)) {
      return Invalid(what, " has shape ", ShapeToString(v.shape),
                     "; without block_size it must be ", "one number or a vector of axis ", axis,
                     "'s size ", size.ToString());
    }
    std::vector<int> after;
    for (int k = axis + 1; k < x.rank(); ++k) after.push_back(k - axis);
    return Unsqueeze(b, v, after);
  }
  bool fits = v.rank() == x.rank();
  std::vector<Expr> coordinates;
  for (int k = 0; fits && k < x.rank(); ++k) {
    const Expr count = k == axis ? CeilDiv(size, block) : x.shape[k];
    fits = b.bounds().ProvablyEqual(v.shape[k], count);
    coordinates.push_back(k == axis ? FloorDiv(Expr::Axis(k), block) : Expr::Axis(k));
  }
  if (!fits) {
    return Invalid(what, " has shape ", ShapeToString(v.shape), "; with block_size=", block,
                   " it must be ", ShapeToString(x.shape), " with ceildiv(", size.ToString(), ", ",
                   block, ") at axis ", axis);
  }
  return Map(b, v, x.shape, std::move(coordinates));
}

// Returns codes decoded to float, and integers as i32.
Value Decoded(OpBuilder& b, const Value& v) {
  return Cast(b, v, IsWhole(v.elem) ? kI32 : Elem::kFloat);
}

absl::StatusOr<Elem> QuantisedType(HandlerContext& c) {
  Elem elem = c.Has(2) ? c.In(2).elem : Elem::kUInt8;
  if (IntOr(c, 21, "output_dtype") == 0) return elem;
  const absl::StatusOr<Elem> stated = ElemAttr(c, "output_dtype");
  if (!stated.ok()) return stated;
  if (c.Has(2) && *stated != elem) {
    return Invalid("output_dtype is ", ElemName(*stated), " and y_zero_point ", ElemName(elem),
                   "; they must agree");
  }
  // For a zero point, the schema has the same limit.
  const int most = IsFloat(CarrierOf(*stated)) ? 8 : 16;
  if (*stated == Elem::kBool || Row(*stated).bits > most) {
    return Invalid("output_dtype is ", ElemName(*stated),
                   "; it must be an integer type of at most 16 bits or a float type of at most 8");
  }
  return stated;
}

// Returns the type of the division.
absl::StatusOr<Elem> PrecisionOf(HandlerContext& c) {
  if (IntOr(c, 23, "precision") != 0) {
    const absl::StatusOr<Elem> stated = ElemAttr(c, "precision");
    if (!stated.ok()) return stated;
    const DType dtype = CarrierOf(*stated);
    if (IsFloat(dtype) && Computes(dtype)) return stated;
    return Invalid("precision is ", ElemName(*stated), "; it must be a float type to divide in");
  }
  const Elem scale = c.In(1).elem;
  if (scale == kI32) return Elem::kDouble;  // exact for integers
  return scale == Elem::kFloat8E8M0 ? Elem::kFloat : scale;
}

absl::Status QuantizeLinear(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const Elem to, QuantisedType(c));
  ASSIGN_OR_RETURN(const Elem precision, PrecisionOf(c));
  ASSIGN_OR_RETURN(const Value scale, Spread(c, 1, "y_scale"));
  absl::StatusOr<Value> zero = Value();
  if (c.Has(2)) zero = Spread(c, 2, "y_zero_point");
  if (!zero.ok()) return zero.status();
  Value x = Div(b, Cast(b, c.In(0), precision), Cast(b, scale, precision));
  if (b.status().ok()) x = Broadcast(b, x, c.In(0).shape);
  if (IsWhole(to)) {
    c.Set(0, RoundedTo(b, x, c.Has(2) ? &*zero : nullptr, to));
    return absl::OkStatus();
  }
  if (c.Has(2)) x = Add(b, Up(b, x), Cast(b, *zero, Up(b, x).elem));
  CastMode mode;
  mode.saturate = c.version() < 19 || c.Int("saturate") != 0;
  mode.fnuz_keeps_infinity = c.version() < 24;
  c.Set(0, Cast(b, x, to, mode));
  return absl::OkStatus();
}

absl::Status DequantizeLinear(HandlerContext& c) {
  OpBuilder& b = c.b();
  Elem to = c.In(1).elem;
  if (IntOr(c, 23, "output_dtype") != 0) {
    ASSIGN_OR_RETURN(to, ElemAttr(c, "output_dtype"));
  }
  if (!IsFloat(CarrierOf(to)) || !Computes(CarrierOf(to))) {
    return Invalid("the result would be ", ElemName(to),
                   "; state a float type to multiply in by output_dtype");
  }
  ASSIGN_OR_RETURN(const Value scale, Spread(c, 1, "x_scale"));
  Value x = Decoded(b, c.In(0));
  if (c.Has(2)) {
    ASSIGN_OR_RETURN(const Value zero, Spread(c, 2, "x_zero_point"));
    x = Sub(b, x, Decoded(b, zero));  // exact for integers: u16 - u16 may be negative
  }
  const Value y = Mul(b, Cast(b, x, Elem::kFloat), Cast(b, scale, Elem::kFloat));
  c.Set(0, Cast(b, y, to));
  return absl::OkStatus();
}

absl::Status DynamicQuantizeLinear(HandlerContext& c) {
  const Quantised q = QuantisedDynamically(c.b(), c.In(0));
  if (c.Wants(0)) c.Set(0, q.values);
  if (c.Wants(1)) c.Set(1, q.scale);
  if (c.Wants(2)) c.Set(2, q.zero_point);
  return absl::OkStatus();
}

// Returns operand i minus its zero point (operand `zero`, if given), in i32 or f32.
absl::StatusOr<Value> Shifted(HandlerContext& c, int i, int zero, std::string_view what) {
  OpBuilder& b = c.b();
  const Value x = Decoded(b, c.In(i));
  if (!c.Has(zero)) return x;
  ASSIGN_OR_RETURN(const Value point,
                   i == 0 ? RowParameter(c, zero, what) : ColumnParameter(c, zero, what));
  const Value y = Sub(b, x, Decoded(b, point));
  if (b.status().ok() && y.shape.size() != c.In(i).shape.size()) {
    return Invalid(what, " has shape ", ShapeToString(c.In(zero).shape), ", more axes than ",
                   ShapeToString(c.In(i).shape));
  }
  return y;
}

absl::Status MatMulInteger(HandlerContext& c) {
  ASSIGN_OR_RETURN(const Value x, Shifted(c, 0, 2, "a_zero_point"));
  ASSIGN_OR_RETURN(const Value y, Shifted(c, 1, 3, "b_zero_point"));
  c.Set(0, MatMul(c.b(), x, y));
  return absl::OkStatus();
}

absl::Status QLinearMatMul(HandlerContext& c) {
  OpBuilder& b = c.b();
  const absl::StatusOr<Value> x = Shifted(c, 0, 2, "a_zero_point"),
                              y = Shifted(c, 3, 5, "b_zero_point");
  const absl::StatusOr<Value> x_scale = RowParameter(c, 1, "a_scale"),
                              y_scale = ColumnParameter(c, 4, "b_scale"),
                              out_scale = RowParameter(c, 6, "y_scale"),
                              zero = RowParameter(c, 7, "y_zero_point");
  for (const auto* part : {&x, &y, &x_scale, &y_scale, &out_scale, &zero}) {
    if (!part->ok()) return part->status();
  }
  if (IsWhole(c.In(0).elem) != IsWhole(c.In(3).elem)) {
    return Invalid("a is ", ElemName(c.In(0).elem), " and b ", ElemName(c.In(3).elem),
                   "; both must be integers or both floats");
  }
  const Value product = Cast(b, MatMul(b, *x, *y), Elem::kFloat);
  const Value scale = Div(b, Mul(b, Up(b, *x_scale), Up(b, *y_scale)), Up(b, *out_scale));
  const Value real = Mul(b, product, scale);
  const Elem to = c.In(7).elem;
  c.Set(0, IsWhole(to) ? RoundedTo(b, real, &*zero, to)
                       : Cast(b, Add(b, real, Decoded(b, *zero)), to));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "DequantizeLinear", 1, DequantizeLinear},
    {"", "DynamicQuantizeLinear", 1, DynamicQuantizeLinear},
    {"", "MatMulInteger", 1, MatMulInteger},
    {"", "QLinearMatMul", 1, QLinearMatMul},
    {"", "QuantizeLinear", 1, QuantizeLinear},
};

}  // namespace

Value RoundedTo(OpBuilder& b, const Value& x, const Value* zero, Elem to) {
  const Value wide = Up(b, Unary(b, Op::kRound, x));
  Value whole = Cast(
      b, Clamp(b, wide, b.Scalar(wide.elem, -kFarOutside), b.Scalar(wide.elem, kFarOutside)), kI32);
  if (zero != nullptr) whole = Add(b, whole, Cast(b, *zero, kI32));
  return Cast(b, Clamp(b, whole, b.Integer(kI32, Lowest(to)), b.Integer(kI32, Highest(to))), to);
}

Quantised QuantisedDynamically(OpBuilder& b, const Value& x) {
  std::vector<int> axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  const Value zero = b.Scalar(x.elem, 0), steps = b.Scalar(x.elem, 255);
  const Value high = Max(b, zero, Reduce(b, Op::kMaxReduce, x, axes, false));
  const Value low = Min(b, zero, Neg(b, Reduce(b, Op::kMaxReduce, Neg(b, x), axes, false)));
  const Value range = Select(b, Equal(b, high, low), b.Scalar(x.elem, 1), Sub(b, high, low));
  Quantised q;
  q.scale = Div(b, range, steps);
  const Value point = Clamp(b, Sub(b, zero, Div(b, low, q.scale)), zero, steps);
  q.zero_point = Cast(b, Unary(b, Op::kRound, point), Elem::kUInt8);
  q.values = RoundedTo(b, Div(b, x, q.scale), &q.zero_point, Elem::kUInt8);
  return q;
}

absl::StatusOr<Value> RowParameter(HandlerContext& c, int i, std::string_view what) {
  const Value& v = c.In(i);
  if (v.rank() != 1) return v;
  if (c.b().bounds().ProvablyEqual(v.shape[0], 1)) return ScalarOperand(c, i, what);
  return Unsqueeze(c.b(), v, std::vector<int>{1});
}

absl::StatusOr<Value> ColumnParameter(HandlerContext& c, int i, std::string_view what) {
  const Value& v = c.In(i);
  const bool one = v.rank() == 1 && c.b().bounds().ProvablyEqual(v.shape[0], 1);
  return one ? ScalarOperand(c, i, what) : v;
}

absl::Span<const HandlerRow> QuantisedRows() { return kRows; }

}  // namespace athanor::onnx
