#include "compiler/frontend/onnx/build/build_cast.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

constexpr int kF32Mantissa = 23, kF32Bias = 127;
constexpr int64_t kF32Infinity = 0x7f800000;

// A float type of at most 8 bits without infinities: its codes consist of sign, exponent and
// mantissa.
struct CodeFormat {
  int bits, mantissa, bias;
  bool fnuz;  // the code of -0 is the only NaN; otherwise there is no NaN

  int sign() const { return 1 << (bits - 1); }
  int largest() const { return sign() - 1; }
};

std::optional<CodeFormat> FormatOf(Elem elem) {
  switch (elem) {
    case Elem::kFloat8E4M3FNUZ:
      return CodeFormat{8, 3, 8, true};
    case Elem::kFloat8E5M2FNUZ:
      return CodeFormat{8, 2, 16, true};
    case Elem::kFloat4E2M1:
      return CodeFormat{4, 1, 1, false};
    case Elem::kFloat6E2M3:
      return CodeFormat{6, 3, 1, false};
    case Elem::kFloat6E3M2:
      return CodeFormat{6, 2, 3, false};
    default:
      return std::nullopt;
  }
}

float NumberOf(const CodeFormat& f, int code) {
  if (f.fnuz && code == f.sign()) return std::numeric_limits<float>::quiet_NaN();
  const int magnitude = code & f.largest();
  const int exponent = magnitude >> f.mantissa;
  const int hidden = exponent == 0 ? 0 : 1 << f.mantissa;
  const int significand = hidden | (magnitude & ((1 << f.mantissa) - 1));
  const int scale = std::max(exponent, 1) - f.bias - f.mantissa;
  const float number = std::ldexp(static_cast<float>(significand), scale);
  return code & f.sign() ? -number : number;
}

Value I32(OpBuilder& b, int64_t value) { return b.Integer(Elem::kInt32, value); }

Value ShiftBy(OpBuilder& b, const Value& x, int bits, std::string direction) {
  return Binary(b, Op::kShift, x, b.Integer(x.elem, bits), {{"direction", std::move(direction)}});
}

// Adds one Cast node, between the dtypes of the carriers.
Value Convert(OpBuilder& b, const Value& x, Elem to) {
  return b.Raw(Op::kCast, {x}, {{"dtype", CarrierOf(to)}}, to);
}

Value Reread(OpBuilder& b, const Value& x, Elem to) {
  return b.Raw(Op::kBitcast, {x}, {{"dtype", CarrierOf(to)}}, to);
}

Value Decode(OpBuilder& b, const Value& x, const CodeFormat& f) {
  Tensor table = Tensor::Zeros(DType::kF32, {int64_t{1} << f.bits});
  for (int i = 0; i < 1 << f.bits; ++i) table.data<float>()[i] = NumberOf(f, i);
  return b.Raw(Op::kGather, {b.Literal(Elem::kFloat, std::move(table)), x}, {{"axis", int64_t{0}}},
               Elem::kFloat);
}

// Returns f64 as f32, with the last bit set if that is not exact. Rounding the result again to
// fewer bits, in any mode, gives the same as rounding the f64 directly.
Value RoundToOdd(OpBuilder& b, const Value& x) {
  const Value near = Convert(b, x, Elem::kFloat);
  const Value size = Abs(b, Convert(b, near, Elem::kDouble));
  const Value true_size = Abs(b, x);
  const Value bits = Reread(b, near, Elem::kInt32);
  const Value even = Equal(b, And(b, bits, I32(b, 1)), I32(b, 0));
  const Value step = Select(b, Less(b, size, true_size), I32(b, 1),
                            Select(b, Less(b, true_size, size), I32(b, -1), I32(b, 0)));
  const Value odd = Add(b, bits, Select(b, even, step, I32(b, 0)));
  return Reread(b, odd, Elem::kFloat);
}

// Returns an f32 that needs only one more rounding to a type of at most 8 bits. Integers beyond
// 2^24 are rounded here, but exceed those types anyway.
Value ForRounding(OpBuilder& b, const Value& x) {
  if (x.elem == Elem::kFloat) return x;
  return x.elem == Elem::kDouble ? RoundToOdd(b, x) : Convert(b, x, Elem::kFloat);
}

// Returns the codes, as i32 without sign, of the magnitudes of f32, rounded to nearest even; also
// counts on beyond the largest code.
Value EncodeMagnitude(OpBuilder& b, const Value& bits, const CodeFormat& f) {
  const int drop = kF32Mantissa - f.mantissa;
  const Value last = And(b, ShiftBy(b, bits, drop, "right"), I32(b, 1));
  const Value carried = Add(b, Add(b, bits, I32(b, (int64_t{1} << (drop - 1)) - 1)), last);
  const Value normal = Add(b, ShiftBy(b, carried, drop, "right"),
                           I32(b, -(int64_t{kF32Bias - f.bias} << f.mantissa)));
  // Below the smallest normal number, counts in steps of the smallest subnormal, by adding a number
  // whose last place is that step.
  const float magic = std::ldexp(1.0F, kF32Mantissa + 1 - f.bias - f.mantissa);
  const Value counted = Add(b, Reread(b, bits, Elem::kFloat), b.Scalar(Elem::kFloat, magic));
  const int64_t magic_bits = static_cast<int64_t>(EncodeFloat(DType::kF32, magic));
  const Value subnormal = Add(b, Reread(b, counted, Elem::kInt32), I32(b, -magic_bits));
  const int64_t smallest = int64_t{kF32Bias + 1 - f.bias} << kF32Mantissa;
  return Select(b, Less(b, bits, I32(b, smallest)), subnormal, normal);
}

Value Encode(OpBuilder& b, const Value& x, Elem to, const CodeFormat& f, const CastMode& mode) {
  const Value bits = Reread(b, ForRounding(b, x), Elem::kInt32);
  const Value magnitude = And(b, bits, I32(b, 0x7fffffff));
  const Value size = EncodeMagnitude(b, magnitude, f);
  const Value negative = Less(b, bits, I32(b, 0));
  const Value unsigned_zero = f.fnuz ? Equal(b, size, I32(b, 0)) : Value();
  const Value minus = f.fnuz ? And(b, negative, Not(b, unsigned_zero)) : negative;
  Value code =
      Or(b, Min(b, size, I32(b, f.largest())), Select(b, minus, I32(b, f.sign()), I32(b, 0)));
  if (f.fnuz && !mode.saturate) {
    code = Select(b, Less(b, I32(b, f.largest()), size), I32(b, f.sign()), code);
  }
  // The code of NaN is that of -0, even if -0 is a number and the type has no NaN.
  const int64_t nan_from = f.fnuz && mode.fnuz_keeps_infinity ? kF32Infinity - 1 : kF32Infinity;
  code = Select(b, Less(b, I32(b, nan_from), magnitude), I32(b, f.sign()), code);
  return Convert(b, code, to);
}

// Encodes powers of two from f32's exponent field, as ONNX's reference does. The sign is dropped.
// Infinities are NaN in every mode (the schema's text says the largest power when saturating).
Value EncodeE8M0(OpBuilder& b, const Value& x, const CastMode& mode) {
  const Value bits = Reread(b, ForRounding(b, x), Elem::kInt32);
  const Value exponent = And(b, ShiftBy(b, bits, kF32Mantissa, "right"), I32(b, 0xff));
  const Value fraction = And(b, bits, I32(b, 0x7fffff));
  Value code = exponent;
  if (mode.round != CastMode::Round::kDown) {
    // To nearest: rounds half up, but half of a subnormal down.
    const Value most =
        mode.round == CastMode::Round::kUp
            ? I32(b, 0)
            : Select(b, Less(b, I32(b, 0), exponent), I32(b, 0x3fffff), I32(b, 0x400000));
    code = Add(b, exponent, Select(b, Less(b, most, fraction), I32(b, 1), I32(b, 0)));
  }
  if (mode.saturate) code = Min(b, code, I32(b, 0xfe));
  code = Select(b, Equal(b, exponent, I32(b, 0xff)), I32(b, 0xff), code);
  return Reread(b, Convert(b, code, Elem::kUInt8), Elem::kFloat8E8M0);
}

Value ToFloat8(OpBuilder& b, const Value& x, Elem to, const CastMode& mode) {
  if (!mode.saturate) return Convert(b, x, to);
  const bool computes = IsFloat(x.dtype()) && Computes(x.dtype());
  const Value number = computes ? x : Convert(b, x, Elem::kFloat);
  const double largest = to == Elem::kFloat8E4M3FN ? 448 : 57344;
  return Convert(
      b, Clamp(b, number, b.Scalar(number.elem, -largest), b.Scalar(number.elem, largest)), to);
}

// Keeps the low bits of an i8 or u8, with their sign.
Value KeepLowBits(OpBuilder& b, const Value& x, Elem to) {
  const ElemRow& row = Row(to);
  if (IsUnsigned(row.carrier)) return And(b, x, b.Integer(x.elem, row.high));
  return ShiftBy(b, ShiftBy(b, x, 8 - row.bits, "left"), 8 - row.bits, "right");
}

Value Named(Value v, Elem elem) {
  v.elem = elem;
  return v;
}

Value ToNarrow(OpBuilder& b, const Value& x, Elem to) {
  const ElemRow &from = Row(x.elem), &row = Row(to);
  const Elem wide = IsUnsigned(row.carrier) ? Elem::kUInt8 : Elem::kInt8;
  const Value whole = IsFloat(x.dtype()) ? Convert(b, x, Elem::kInt32) : x;
  const Value low = whole.dtype() == row.carrier ? Named(whole, wide) : Convert(b, whole, wide);
  const bool inside = x.elem == Elem::kBool || (from.carry == Carry::kNarrow &&
                                                from.low >= row.low && from.high <= row.high);
  return Named(inside ? low : KeepLowBits(b, low, to), to);
}

}  // namespace

Value Cast(OpBuilder& b, const Value& x, Elem to, const CastMode& mode) {
  if (!b.status().ok() || x.elem == to) return x;
  for (Elem elem : {x.elem, to}) {
    if (Row(elem).carry == Carry::kNone) {
      b.Fail(Unimplemented("tensors of ", ElemName(elem), " are not supported"));
      return FailedValue();
    }
  }
  if (const std::optional<CodeFormat> format = FormatOf(x.elem)) {
    return Cast(b, Decode(b, x, *format), to, mode);
  }
  if (const std::optional<CodeFormat> format = FormatOf(to)) {
    return Encode(b, x, to, *format, mode);
  }
  switch (to) {
    case Elem::kFloat8E8M0:
      return EncodeE8M0(b, x, mode);
    case Elem::kFloat8E4M3FN:
    case Elem::kFloat8E5M2:
      return ToFloat8(b, x, to, mode);
    default:
      break;
  }
  if (Row(to).carry == Carry::kNarrow) return ToNarrow(b, x, to);
  return x.dtype() == CarrierOf(to) ? Named(x, to) : Convert(b, x, to);
}

Value Bitcast(OpBuilder& b, const Value& x, Elem to) {
  if (!b.status().ok() || x.elem == to) return x;
  const ElemRow &from = Row(x.elem), &row = Row(to);
  if (from.bits != row.bits || from.carry == Carry::kNone || row.carry == Carry::kNone) {
    b.Fail(Invalid("the bits of ", from.name, " cannot be read as ", row.name, ": elements have ",
                   from.bits, " and ", row.bits, " bits; the numbers must be equal"));
    return FailedValue();
  }
  if (x.elem == Elem::kBool) return Bitcast(b, Convert(b, x, Elem::kUInt8), to);
  if (to == Elem::kBool) return Convert(b, Bitcast(b, x, Elem::kUInt8), Elem::kBool);
  if (from.carrier == row.carrier) return Named(x, to);
  if (from.bits >= 8) return Reread(b, x, to);
  // Narrow integers are stored sign-extended in 8 bits.
  if (IsUnsigned(row.carrier)) {
    return Named(KeepLowBits(b, Reread(b, x, Elem::kUInt8), to), to);
  }
  return Named(KeepLowBits(b, Reread(b, x, Elem::kInt8), to), to);
}

Value Up(OpBuilder& b, const Value& x) {
  return AccumulatorOf(x.dtype()) == x.dtype() ? x : Cast(b, x, Elem::kFloat);
}

}  // namespace athanor::onnx
