// Elementwise ops of the op table, for scalars and vectors of every dtype.
#include <cmath>
#include <utility>

#include "compiler/codegen/cpu/cpu_dialect.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

bool NeverNan(const Operand& x) {
  return x.constant != nullptr && IsFloat(x.constant->dtype) && !std::isnan(x.constant->f);
}

}  // namespace

std::string CpuDialect::Convert(const std::string& to, int lanes, const std::string& x) {
  if (lanes == 1) return Cat("(", to, ")(", x, ")");
  return Cat("__builtin_convertvector(", x, ", ", VectorName(to, lanes), ")");
}

std::string CpuDialect::AsBool(int bits, int lanes, const std::string& comparison) {
  if (lanes == 1) return comparison;
  const std::string lanes_of = Cat("(i", bits, "x", lanes, ")", comparison);
  return bits == 32 ? lanes_of : Convert("i32", lanes, lanes_of);
}

std::string CpuDialect::AsMask(int bits, int lanes, const std::string& condition) {
  return lanes == 1 || bits == 32 ? condition : Convert(Cat("i", bits), lanes, condition);
}

std::string CpuDialect::Widened(const Operand& arg) {
  if (!IsNarrow(arg.type.dtype)) return arg.text;
  return Cat(prelude_.Widen(arg.type.dtype, arg.type.lanes), "(", arg.text, ")");
}

std::string CpuDialect::Narrowed(DType dtype, int lanes, const std::string& x) {
  return IsNarrow(dtype) ? Cat(prelude_.Narrow(dtype, lanes), "(", x, ")") : x;
}

std::string CpuDialect::Compute(const Stmt& stmt, absl::Span<const Operand> args) {
  switch (stmt.op) {
    case Op::kCast:
      return Cast(stmt.type.dtype, args[0]);
    case Op::kBitcast:
      return Bitcast(stmt.type.dtype, args[0]);
    case Op::kSelect:
      return Select(stmt, args);
    case Op::kLessThan:
      return LessThan(args[0], args[1]);
    case Op::kShift:
      return Shift(RegisterElement(stmt.type.dtype), stmt.type.lanes, stmt.shift_left, args);
    default:
      return Binary(stmt.op, stmt.type.dtype, stmt.type.lanes, args);
  }
}

std::string CpuDialect::Binary(Op op, DType dtype, int lanes, absl::Span<const Operand> args) {
  if (dtype == DType::kBool) return BoolOp(op, lanes, args);
  if (!IsFloat(dtype)) return IntegerOp(op, RegisterElement(dtype), lanes, args);
  std::vector<Operand> wide;
  for (const Operand& a : args) wide.push_back({Widened(a), a.type, a.constant});
  return Narrowed(dtype, lanes, FloatOp(op, dtype == DType::kF64 ? "f64" : "f32", lanes, wide));
}

std::string CpuDialect::FloatOp(Op op, const std::string& element, int lanes,
                                absl::Span<const Operand> args) {
  const std::string type = VectorName(element, lanes), &a = args[0].text;
  auto call = [&](const std::string& name) {
    return args.size() == 1 ? Cat(name, "(", a, ")") : Cat(name, "(", a, ", ", args[1].text, ")");
  };
  switch (op) {
    case Op::kAdd:
      return Cat("(", a, " + ", args[1].text, ")");
    case Op::kMul:
      return Cat("(", a, " * ", args[1].text, ")");
    case Op::kDiv:
      return Cat("(", a, " / ", args[1].text, ")");
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
      const std::string &b = args[1].text, o = op == Op::kMin ? " < " : " > ";
      if (NeverNan(args[1])) return Cat("(", b, o, a, " ? ", b, " : ", a, ")");
      if (NeverNan(args[0])) return Cat("(", a, o, b, " ? ", a, " : ", b, ")");
      return call(prelude_.Extreme(op, element, lanes));
    }
    default:
      return call(prelude_.Math(op, element, lanes));
  }
}

std::string CpuDialect::IntegerOp(Op op, const std::string& element, int lanes,
                                  absl::Span<const Operand> args) {
  const std::string type = VectorName(element, lanes), &a = args[0].text;
  // Unsigned arithmetic wraps; scalars narrower than int are widened without harm.
  const std::string wrap =
      VectorName(lanes == 1 && ElementBits(element) < 32 ? "u32" : UnsignedOf(element), lanes);
  auto infix = [&](const char* o) { return Cat("(", type, ")(", a, o, args[1].text, ")"); };
  auto wrapped = [&](const char* o) {
    return Cat("(", type, ")((", wrap, ")", a, o, "(", wrap, ")", args[1].text, ")");
  };
  switch (op) {
    case Op::kAdd:
      return wrapped(" + ");
    case Op::kMul:
      return wrapped(" * ");
    case Op::kAnd:
      return infix(" & ");
    case Op::kOr:
      return infix(" | ");
    case Op::kXor:
      return infix(" ^ ");
    case Op::kNot:
      return Cat("(", type, ")~", a);
    case Op::kMin:
      return Cat("(", a, " < ", args[1].text, " ? ", a, " : ", args[1].text, ")");
    case Op::kMax:
      return Cat("(", a, " > ", args[1].text, " ? ", a, " : ", args[1].text, ")");
    default:
      return Cat(prelude_.Divide(op, element, lanes), "(", a, ", ", args[1].text, ")");
  }
}

std::string CpuDialect::BoolOp(Op op, int lanes, absl::Span<const Operand> args) {
  switch (op) {
    case Op::kNot:
      return Cat(lanes == 1 ? "!" : "~", args[0].text);
    case Op::kXor:
      return Cat("(", args[0].text, " ^ ", args[1].text, ")");
    case Op::kAnd:
    case Op::kMin:
    case Op::kMul:
      return Cat("(", args[0].text, " & ", args[1].text, ")");
    default:
      return Cat("(", args[0].text, " | ", args[1].text, ")");
  }
}

std::string CpuDialect::Shift(const std::string& element, int lanes, bool left,
                              absl::Span<const Operand> args) {
  const std::string type = VectorName(element, lanes), name = Cat(left ? "shl_" : "shr_", type);
  const std::string raw = VectorName(UnsignedOf(element), lanes);
  const int bits = ElementBits(element);
  const bool sign = element[0] == 'i' && !left;
  // As an unsigned number a negative amount is large.
  const char* text = sign ? "FN $T $n($T a, $T b) {\n"
                            "  const $U most = ($U)$m;\n"
                            "  return ($T)(a >> ($T)(($U)b > most ? most : ($U)b));\n}\n"
                          : "FN $T $n($T a, $T b) {\n"
                            "  const $U by = ($U)b & ($U)$m;\n"
                            "  return ($T)(($U)b > ($U)$m ? ($U)0 : ($U)(($U)a $o by));\n}\n";
  prelude_.Define(
      name,
      Fill(
          text,
          {{"T", type}, {"U", raw}, {"n", name}, {"m", Cat(bits - 1)}, {"o", left ? "<<" : ">>"}}));
  return Cat(name, "(", args[0].text, ", ", args[1].text, ")");
}

std::string CpuDialect::LessThan(const Operand& a, const Operand& b) {
  const DType dtype = a.type.dtype;
  const int lanes = a.type.lanes;
  if (dtype == DType::kBool) {
    return lanes == 1 ? Cat("(", a.text, " < ", b.text, ")")
                      : Cat("(~", a.text, " & ", b.text, ")");
  }
  const int bits = IsNarrow(dtype) ? 32 : 8 * DTypeBytes(dtype);
  return AsBool(bits, lanes, Cat("(", Widened(a), " < ", Widened(b), ")"));
}

std::string CpuDialect::Select(const Stmt& stmt, absl::Span<const Operand> args) {
  const int lanes = stmt.type.lanes;
  if (stmt.type.dtype == DType::kBool) {
    // Vector masks have all bits alike, so ~ negates them; a scalar bool is 0 or 1 and takes !.
    const char* zero = lanes == 1 ? "!" : "~";
    return Cat("((", args[0].text, " & ", args[1].text, ") | (", zero, args[0].text, " & ",
               args[2].text, "))");
  }
  const int bits = ElementBits(RegisterElement(stmt.type.dtype));
  return Cat("(", AsMask(bits, lanes, args[0].text), " ? ", args[1].text, " : ", args[2].text, ")");
}

std::string CpuDialect::Bitcast(DType to, const Operand& arg) {
  const std::string from_element = RegisterElement(arg.type.dtype),
                    to_element = RegisterElement(to);
  if (from_element == to_element) return arg.text;
  if (arg.type.lanes > 1) return Cat("(", VectorName(to_element, arg.type.lanes), ")", arg.text);
  return Cat(prelude_.Bits(to_element, from_element), "(", arg.text, ")");
}

std::string CpuDialect::Cast(DType to, const Operand& arg) {
  const DType from = arg.type.dtype;
  const int lanes = arg.type.lanes;
  if (from == to) return arg.text;
  if (to == DType::kBool) return CastToBool(arg);
  if (from == DType::kBool) return CastFromBool(to, lanes, arg.text);
  if (IsFloat(to)) return CastToFloat(to, arg);
  if (!IsFloat(from)) return Convert(RegisterElement(to), lanes, arg.text);
  const std::string name =
      prelude_.Saturate(from == DType::kF64 ? "f64" : "f32", RegisterElement(to), lanes);
  return Cat(name, "(", Widened(arg), ")");
}

std::string CpuDialect::CastToBool(const Operand& arg) {
  const DType from = arg.type.dtype;
  const int bits = IsNarrow(from) ? 32 : 8 * DTypeBytes(from);
  return AsBool(bits, arg.type.lanes, Cat("(", Widened(arg), " != 0)"));
}

std::string CpuDialect::CastFromBool(DType to, int lanes, const std::string& x) {
  const std::string one = lanes == 1 ? x : Cat("(", x, " & 1)");
  if (!IsNarrow(to)) return Convert(RegisterElement(to), lanes, one);
  return Narrowed(to, lanes, Convert("f32", lanes, one));
}

std::string CpuDialect::CastToFloat(DType to, const Operand& arg) {
  const DType from = arg.type.dtype;
  const int lanes = arg.type.lanes;
  if (!IsNarrow(to)) {
    const std::string wide = Widened(arg);
    const bool done = IsFloat(from) && (from == DType::kF64) == (to == DType::kF64);
    return done ? wide : Convert(RegisterElement(to), lanes, wide);
  }
  if (!IsFloat(from)) {
    const std::string name = prelude_.IntegerToF32(RegisterElement(from), to, lanes);
    return Narrowed(to, lanes, Cat(name, "(", arg.text, ")"));
  }
  if (from == DType::kF64)
    return Narrowed(to, lanes, Cat(prelude_.OddF32(lanes), "(", arg.text, ")"));
  return Narrowed(to, lanes, Widened(arg));
}

}  // namespace athanor::kir
