#include "compiler/codegen/gpu/arithmetic.h"

#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "compiler/codegen/print/spelling.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

// Returns "name<i32>".
std::string For(std::string_view name, DType dtype) {
  return Cat(name, "<", RegisterElement(dtype), ">");
}

// Widens a narrow float to f32; narrows an f32 to `dtype`.
std::string Widened(const Operand& x) {
  return IsNarrow(x.type.dtype) ? Call(Cat(DTypeName(x.type.dtype), "_to_f32"), {x.text}) : x.text;
}
std::string Narrowed(DType dtype, const std::string& x) {
  return IsNarrow(dtype) ? Call(Cat("f32_to_", DTypeName(dtype)), {x}) : x;
}

std::string BoolOp(Op op, absl::Span<const Operand> args) {
  if (op == Op::kNot) return Cat("!", args[0].text);
  const bool both = op == Op::kAnd || op == Op::kMin || op == Op::kMul;
  return Infix(args[0].text, op == Op::kXor ? "^" : both ? "&" : "|", args[1].text);
}

std::string IntegerOp(Op op, DType dtype, absl::Span<const Operand> args) {
  const std::string type = RegisterElement(dtype);
  // Unsigned arithmetic wraps; narrower integers are widened without harm.
  const std::string wrap = DTypeBytes(dtype) == 8 ? "(u64)" : "(u32)";
  const std::optional<std::string> text = IntegerText(op, type, wrap, args);
  return text ? *text
              : Call(For(absl::AsciiStrToLower(std::string(OpName(op))), dtype), Texts(args));
}

// Spells an op on f32 or f64.
std::string FloatOp(Op op, const std::string& type, absl::Span<const Operand> args) {
  const std::string& a = args[0].text;
  switch (op) {
    case Op::kAdd:
      return Infix(a, "+", args[1].text);
    case Op::kMul:
      return Infix(a, "*", args[1].text);
    case Op::kDiv:
      return Infix(a, "/", args[1].text);
    case Op::kRecip:
      return Infix(Cat("(", type, ")1"), "/", a);
    case Op::kMin:
    case Op::kMax: {
      // The comparison gives its second operand if either is NaN.
      const char* o = op == Op::kMin ? "<" : ">";
      if (NeverNan(args[1])) return Pick(args[1].text, o, a);
      if (NeverNan(args[0])) return Pick(a, o, args[1].text);
      break;
    }
    default:
      break;
  }
  return Call(Cat(absl::AsciiStrToLower(std::string(OpName(op))), "_", type), Texts(args));
}

std::string Apply(Op op, DType dtype, absl::Span<const Operand> args) {
  if (dtype == DType::kBool) return BoolOp(op, args);
  if (!IsFloat(dtype)) return IntegerOp(op, dtype, args);
  std::vector<Operand> wide;
  for (const Operand& a : args) wide.push_back({Widened(a), a.type, a.constant});
  return Narrowed(dtype, FloatOp(op, dtype == DType::kF64 ? "f64" : "f32", wide));
}

std::string CastToNarrow(DType to, const Operand& x) {
  const DType from = x.type.dtype;
  if (from == DType::kBool) return Narrowed(to, Cat("(f32)", x.text));
  if (from == DType::kF64) return Narrowed(to, Call("odd_f32", {x.text}));
  return Narrowed(to, IsFloat(from) ? Widened(x) : Call(For("odd_of", from), {x.text}));
}

std::string Cast(DType to, const Operand& x) {
  const DType from = x.type.dtype;
  if (from == to) return x.text;
  if (to == DType::kBool) return Infix(Widened(x), "!=", "0");
  if (IsNarrow(to)) return CastToNarrow(to, x);
  if (IsFloat(from) && !IsFloat(to)) return Call(For("saturate", to), {Widened(x)});
  const bool done = IsNarrow(from) && to == DType::kF32;
  return done ? Widened(x) : Cat("(", RegisterElement(to), ")", Widened(x));
}

std::string Bitcast(DType to, const Operand& x) {
  if (RegisterElement(x.type.dtype) == RegisterElement(to)) return x.text;
  return Call(For("as", to), {x.text});
}

}  // namespace

std::string GpuArithmetic::TypeName(Type type) {
  switch (type.part) {
    case Part::kLeft:
      return "Left";
    case Part::kRight:
      return "Right";
    case Part::kSums:
      return For("Sums", type.dtype);
    case Part::kNone:
      break;
  }
  return RegisterElement(type.dtype);
}

std::string GpuArithmetic::Constant(const Scalar& value) {
  if (std::optional<std::string> literal = Literal(value)) return *std::move(literal);
  return Call(For("as", value.dtype), {LiteralOfBits(value)});
}

std::string GpuArithmetic::Compute(const Stmt& stmt, absl::Span<const Operand> args) {
  const DType dtype = stmt.type.dtype;
  switch (stmt.op) {
    case Op::kCast:
      return Cast(dtype, args[0]);
    case Op::kBitcast:
      return Bitcast(dtype, args[0]);
    case Op::kSelect:
      return Choose(args[0].text, args[1].text, args[2].text);
    case Op::kLessThan:
      return Infix(Widened(args[0]), "<", Widened(args[1]));
    case Op::kShift:
      return Call(For(stmt.shift_left ? "shl" : "shr", dtype), Texts(args));
    default:
      return Apply(stmt.op, dtype, args);
  }
}

std::string GpuArithmetic::Fma(Type type, absl::Span<const Operand> args) {
  if (IsFloat(type.dtype)) return Call(Cat("fma_", DTypeName(type.dtype)), Texts(args));
  const Operand product{Apply(Op::kMul, type.dtype, args.subspan(0, 2)), type, nullptr};
  return Apply(Op::kAdd, type.dtype, {product, args[2]});
}

// Every thread has the scalar.
std::string GpuArithmetic::Broadcast(Type type, const Operand& scalar) {
  if (type.part == Part::kNone) return scalar.text;
  const std::string& x = scalar.text;
  return Cat(TypeName(type), "{{", x, ", ", x, ", ", x, ", ", x, "}}");
}

std::string GpuArithmetic::Mma(absl::Span<const Operand> args) {
  return Call(Cat("multiply_", DTypeName(args[0].type.dtype)), Texts(args));
}

std::string GpuArithmetic::Slot(const Operand& sums, int64_t slot) {
  return Cat(sums.text, ".x[", slot, "]");
}

std::string GpuArithmetic::Reduce(Op op, const Operand& vector) {
  const std::string type = TypeName(vector.type);
  return Call(Cat("reduce<", team_, ">"),
              {vector.text, Cat("[](", type, " x, ", type, " y) -> ", type, " { return ",
                                Combine(op, vector.type.dtype), "; }")});
}

std::string GpuArithmetic::Combine(Op op, DType dtype) {
  const Type type{dtype, 1};
  return Apply(op, dtype, {Operand{"x", type, nullptr}, Operand{"y", type, nullptr}});
}

std::string GpuArithmetic::LaneMask(const std::string& count, int lanes) {
  return lanes > 1 ? Infix("lane", "<", count) : Infix(count, ">", "0");
}

std::string GpuArithmetic::RandomBits(const Operand& index, const Operand& seed) {
  return Call("philox", {index.text, seed.text});
}

std::string GpuArithmetic::Lane(int lanes) { return lanes > 1 ? "lane" : "0L"; }

// A shift rounds down, as a floor division does, and a dividend that is never negative needs no
// correction.
std::string GpuArithmetic::FloorDivide(const std::string& a, const std::string& b, int,
                                       std::optional<int64_t> divisor, bool natural) {
  if (divisor && *divisor > 0 && (*divisor & (*divisor - 1)) == 0) {
    return Infix(a, ">>", Cat(std::countr_zero(static_cast<uint64_t>(*divisor))));
  }
  return natural ? Infix(a, "/", b) : Call("floor_index", {a, b});
}

std::string GpuArithmetic::Extreme(bool max, const std::string& a, const std::string& b, int) {
  return Pick(a, max ? ">" : "<", b);
}

}  // namespace athanor::kir
