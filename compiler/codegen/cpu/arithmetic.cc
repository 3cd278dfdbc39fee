#include "compiler/codegen/cpu/arithmetic.h"

#include <bit>
#include <utility>
#include <vector>

#include "compiler/codegen/cpu/convert.h"
#include "compiler/codegen/cpu/lanes.h"
#include "compiler/codegen/cpu/math_functions.h"

namespace athanor::kir {
namespace {

// T(T a, T b): kMin and kMax of floats, NaN from either side. The comparison gives b if either is
// NaN.
std::string FloatExtreme(Prelude& p, Op op, const std::string& type) {
  const bool min = op == Op::kMin;
  return p.Define(Cat(min ? "min_" : "max_", type),
                  "FN $T $n($T a, $T b) {\n"
                  "  const $T m = a $o b ? a : b;\n  return a != a ? a : m;\n}\n",
                  {{"T", type}, {"o", min ? "<" : ">"}});
}

// T(T a, T b): kTruncDiv, kFloorDiv and kMod of integers.
std::string Divide(Prelude& p, Op op, const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes);
  const bool is_signed = element[0] == 'i';
  const std::string kind = op == Op::kMod                     ? "mod"
                           : op == Op::kFloorDiv && is_signed ? "floordiv"
                                                              : "div";
  // Divides by 1 where the processor would trap, by zero and the minimum by -1. Remainders by 1 are
  // 0, as those should be.
  std::string text =
      is_signed ? "FN $T $n($T a, $T b) {\n  const $T d = (b == 0) | (b == -1) ? ($T)1 : b;\n"
                : "FN $T $n($T a, $T b) {\n  const $T d = b == 0 ? ($T)1 : b;\n";
  text += "  const $T q = a / d;\n";
  if (kind != "div" && is_signed) text += "  const $T r = a - q * d;\n";
  const char* result = "b == 0 ? ($T)0 : q";
  if (kind == "mod")
    result = is_signed ? "(r != 0) & ((r ^ d) < 0) ? ($T)(r + d) : r" : "($T)(a - q * d)";
  if (kind == "div" && is_signed) result = "b == 0 ? ($T)0 : b == -1 ? ($T)(0 - ($U)a) : q";
  if (kind == "floordiv") {
    result =
        "b == 0 ? ($T)0 : b == -1 ? ($T)(0 - ($U)a) : (r != 0) & ((r ^ d) < 0) ? ($T)(q - 1) : q";
  }
  text += Cat("  return ", result, ";\n}\n");
  return p.Define(Cat(kind, "_", type), text,
                  {{"T", type}, {"U", VectorName(UnsignedOf(element), lanes)}});
}

// i64(i64 a, i64 b), b > 0. C's division rounds towards zero: a negative remainder lowers the
// quotient by one.
std::string IndexFloorDivide(Prelude& p, int lanes) {
  const std::string type = VectorName("i64", lanes);
  return p.Define(Cat("floor_", type),
                  lanes == 1 ? "FN i64 $n(i64 a, i64 b) {\n  return a / b - (a % b < 0);\n}\n"
                             : "FN $T $n($T a, $T b) {\n  return a / b + ($T)(a % b < 0);\n}\n",
                  {{"T", type}});
}

// u32(i64 index, u64 seed): Philox4x32-10 (Salmon et al., 2011). Counter words are in the low
// halves of 64 bits, so that one multiplication gives both halves of a product.
std::string Philox(Prelude& p, int lanes) {
  const char* text =
      "FN $32 $n($I index, $U seed) {\n"
      "  const $U low = ($U)0xffffffffUL, at = ($U)index;\n"
      "  $U c0 = (at >> 2) & low, c1 = at >> 34, c2 = ($U)0UL, c3 = ($U)0UL;\n"
      "  $U k0 = seed & low, k1 = seed >> 32;\n"
      "#pragma clang loop unroll(full)\n"
      "  for (i32 round = 0; round < 10; ++round) {\n"
      "    const $U p0 = c0 * 0xd2511f53UL, p1 = c2 * 0xcd9e8d57UL;\n"
      "    c0 = (p1 >> 32) ^ c1 ^ k0;\n    c1 = p1 & low;\n"
      "    c2 = (p0 >> 32) ^ c3 ^ k1;\n    c3 = p0 & low;\n"
      "    k0 = (k0 + 0x9e3779b9UL) & low;\n    k1 = (k1 + 0xbb67ae85UL) & low;\n  }\n"
      "  const $U word = at & 3;\n"
      "  const $U r = word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;\n";
  return p.Define(Cat("philox_", lanes),
                  Cat(text, lanes == 1 ? "  return (u32)r;\n}\n"
                                       : "  return __builtin_convertvector(r, $32);\n}\n"),
                  {{"32", VectorName("u32", lanes)},
                   {"I", VectorName("i64", lanes)},
                   {"U", VectorName("u64", lanes)}});
}

std::string BoolOp(Op op, int lanes, absl::Span<const Operand> args) {
  if (op == Op::kNot) return Cat(lanes == 1 ? "!" : "~", args[0].text);
  const bool both = op == Op::kAnd || op == Op::kMin || op == Op::kMul;
  return Infix(args[0].text, op == Op::kXor ? "^" : both ? "&" : "|", args[1].text);
}

std::string Select(const Stmt& stmt, absl::Span<const Operand> args) {
  const int lanes = stmt.type.lanes;
  if (stmt.type.dtype == DType::kBool) {
    // Vector masks have all bits alike, so ~ negates them; a scalar bool is 0 or 1 and takes !.
    const char* negation = lanes == 1 ? "!" : "~";
    return Infix(Infix(args[0].text, "&", args[1].text), "|",
                 Infix(Cat(negation, args[0].text), "&", args[2].text));
  }
  const int bits = ElementBits(RegisterElement(stmt.type.dtype));
  return Choose(AsMask(bits, lanes, args[0].text), args[1].text, args[2].text);
}

}  // namespace

std::string CpuArithmetic::TypeName(Type type) {
  return VectorName(RegisterElement(type.dtype), type.lanes);
}

std::string CpuArithmetic::Constant(const Scalar& value) {
  if (std::optional<std::string> literal = Literal(value)) return *std::move(literal);
  const std::string type = RegisterElement(value.dtype);
  return Call(Bits(prelude_, type, UnsignedOf(type)), {LiteralOfBits(value)});
}

std::string CpuArithmetic::Broadcast(Type type, const Operand& scalar) {
  const char* sign = type.dtype == DType::kBool ? "-" : "";
  return Cat("(", TypeName(type), ")(", sign, scalar.text, ")");
}

std::string CpuArithmetic::Compute(const Stmt& stmt, absl::Span<const Operand> args) {
  switch (stmt.op) {
    case Op::kCast:
      return Cast(prelude_, stmt.type.dtype, args[0]);
    case Op::kBitcast:
      return Bitcast(prelude_, stmt.type.dtype, args[0]);
    case Op::kSelect:
      return Select(stmt, args);
    case Op::kLessThan:
      return LessThan(args[0], args[1]);
    case Op::kShift:
      return Shift(RegisterElement(stmt.type.dtype), stmt.type.lanes, stmt.shift_left, args);
    default:
      return Apply(stmt.op, stmt.type, args);
  }
}

std::string CpuArithmetic::Apply(Op op, Type type, absl::Span<const Operand> args) {
  const DType dtype = type.dtype;
  const int lanes = type.lanes;
  if (dtype == DType::kBool) return BoolOp(op, lanes, args);
  if (!IsFloat(dtype)) return IntegerOp(op, RegisterElement(dtype), lanes, args);
  std::vector<Operand> wide;
  for (const Operand& a : args) wide.push_back({Widened(prelude_, a), a.type, a.constant});
  return Narrowed(prelude_, dtype, lanes,
                  FloatOp(op, dtype == DType::kF64 ? "f64" : "f32", lanes, wide));
}

std::string CpuArithmetic::FloatOp(Op op, const std::string& element, int lanes,
                                   absl::Span<const Operand> args) {
  const std::string type = VectorName(element, lanes), &a = args[0].text;
  auto call = [&](const std::string& name) { return Call(name, Texts(args)); };
  switch (op) {
    case Op::kAdd:
      return Infix(a, "+", args[1].text);
    case Op::kMul:
      return Infix(a, "*", args[1].text);
    case Op::kDiv:
      return Infix(a, "/", args[1].text);
    case Op::kRecip:
      return Cat("((", type, ")1 / ", a, ")");
    case Op::kSqrt:
      return call("__builtin_elementwise_sqrt");
    case Op::kFloor:
      return call("__builtin_elementwise_floor");
    case Op::kRound:
      return call("__builtin_elementwise_roundeven");
    case Op::kMin:
    case Op::kMax: {
      // A single instruction: it returns its second operand if either is NaN.
      const char* o = op == Op::kMin ? "<" : ">";
      if (NeverNan(args[1])) return Pick(args[1].text, o, a);
      if (NeverNan(args[0])) return Pick(a, o, args[1].text);
      return call(FloatExtreme(prelude_, op, type));
    }
    default:
      return call(MathFunction(prelude_, op, element, lanes));
  }
}

std::string CpuArithmetic::IntegerOp(Op op, const std::string& element, int lanes,
                                     absl::Span<const Operand> args) {
  const std::string type = VectorName(element, lanes);
  // Unsigned arithmetic wraps; scalars narrower than int are widened without harm.
  const std::string wrap = Cat(
      "(", VectorName(lanes == 1 && ElementBits(element) < 32 ? "u32" : UnsignedOf(element), lanes),
      ")");
  const std::optional<std::string> text = IntegerText(op, type, wrap, args);
  return text ? *text : Call(Divide(prelude_, op, element, lanes), Texts(args));
}

std::string CpuArithmetic::Shift(const std::string& element, int lanes, bool left,
                                 absl::Span<const Operand> args) {
  const std::string type = VectorName(element, lanes);
  const bool sign = element[0] == 'i' && !left;
  // As an unsigned number a negative amount is large.
  const char* text = sign ? "FN $T $n($T a, $T b) {\n"
                            "  const $U most = ($U)$m;\n"
                            "  return ($T)(a >> ($T)(($U)b > most ? most : ($U)b));\n}\n"
                          : "FN $T $n($T a, $T b) {\n"
                            "  const $U by = ($U)b & ($U)$m;\n"
                            "  return ($T)(($U)b > ($U)$m ? ($U)0 : ($U)(($U)a $o by));\n}\n";
  const std::string name = prelude_.Define(Cat(left ? "shl_" : "shr_", type), text,
                                           {{"T", type},
                                            {"U", VectorName(UnsignedOf(element), lanes)},
                                            {"m", Cat(ElementBits(element) - 1)},
                                            {"o", left ? "<<" : ">>"}});
  return Call(name, Texts(args));
}

std::string CpuArithmetic::LessThan(const Operand& a, const Operand& b) {
  const DType dtype = a.type.dtype;
  const int lanes = a.type.lanes;
  if (dtype == DType::kBool) {
    return lanes == 1 ? Infix(a.text, "<", b.text) : Infix(Cat("~", a.text), "&", b.text);
  }
  const int bits = IsNarrow(dtype) ? 32 : 8 * DTypeBytes(dtype);
  return AsBool(bits, lanes, Infix(Widened(prelude_, a), "<", Widened(prelude_, b)));
}

std::string CpuArithmetic::Fma(Type type, absl::Span<const Operand> args) {
  if (IsInteger(type.dtype)) {
    const Operand product{Apply(Op::kMul, type, args.subspan(0, 2)), type, nullptr};
    return Apply(Op::kAdd, type, {product, args[2]});
  }
  return Call(IsNarrow(type.dtype) ? NarrowFma(prelude_, type.dtype, type.lanes)
                                   : "__builtin_elementwise_fma",
              Texts(args));
}

std::string CpuArithmetic::Reduce(Op op, const Operand& vector) {
  const DType dtype = vector.type.dtype;
  // Combines halves until one lane is left: the tree has the same shape for every target.
  std::string whole = "x", body;
  for (int lanes = vector.type.lanes / 2; lanes >= 1; lanes /= 2) {
    const Type type{dtype, lanes};
    const char* minus = dtype == DType::kBool && lanes == 1 ? "-" : "";
    const Operand low{Cat(minus, whole, lanes == 1 ? ".x" : ".lo"), type, nullptr};
    const Operand high{Cat(minus, whole, lanes == 1 ? ".y" : ".hi"), type, nullptr};
    whole = Cat("x", lanes);
    body += Cat("  const ", TypeName(type), " ", whole, " = ", Apply(op, type, {low, high}), ";\n");
  }
  const std::string name =
      Cat("reduce_", OpName(op), "_", DTypeName(dtype), "x", vector.type.lanes);
  prelude_.Define(name, Cat("FN ", TypeName({dtype, 1}), " $n(", TypeName(vector.type), " x) {\n",
                            body, "  return x1;\n}\n"));
  return Call(name, {vector.text});
}

std::string CpuArithmetic::LaneMask(const std::string& count, int lanes) {
  if (lanes == 1) return Cat("(i32)(", count, " > 0)");
  return Call(kir::LaneMask(prelude_, lanes), {count});
}

std::string CpuArithmetic::RandomBits(const Operand& index, const Operand& seed) {
  return Call(Philox(prelude_, index.type.lanes), {index.text, seed.text});
}

std::string CpuArithmetic::Lane(int lanes) {
  return lanes == 1 ? "0L" : Cat("(i64x", lanes, "){", Numbers(lanes), "}");
}

// A shift rounds down, as a floor division does, and a dividend that is never negative needs no
// correction.
std::string CpuArithmetic::FloorDivide(const std::string& a, const std::string& b, int lanes,
                                       std::optional<int64_t> divisor, bool natural) {
  if (divisor && *divisor > 0 && (*divisor & (*divisor - 1)) == 0) {
    return Infix(a, ">>", Cat(std::countr_zero(static_cast<uint64_t>(*divisor))));
  }
  if (natural) return Infix(a, "/", b);
  return Call(IndexFloorDivide(prelude_, lanes), {a, b});
}

std::string CpuArithmetic::Extreme(bool max, const std::string& a, const std::string& b, int) {
  return Pick(a, max ? ">" : "<", b);
}

}  // namespace athanor::kir
