// Functions of floats. f32 exponentials and logarithms are inline polynomials, so that an infinite
// or masked lane costs no more than another. The others are libm's, through libmvec where its error
// is within the op table's bound.
#include "compiler/codegen/cpu/prelude.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

std::string LibmName(Op op, const std::string& element) {
  const char* name = "";
  switch (op) {
    case Op::kExp:
      name = "exp";
      break;
    case Op::kExp2:
      name = "exp2";
      break;
    case Op::kLog:
      name = "log";
      break;
    case Op::kLog2:
      name = "log2";
      break;
    case Op::kSin:
      name = "sin";
      break;
    case Op::kTanh:
      name = "tanh";
      break;
    case Op::kErf:
      name = "erf";
      break;
    case Op::kCos:
      name = "cos";
      break;
    case Op::kTan:
      name = "tan";
      break;
    case Op::kAsin:
      name = "asin";
      break;
    case Op::kAcos:
      name = "acos";
      break;
    case Op::kAtan:
      name = "atan";
      break;
    case Op::kSinh:
      name = "sinh";
      break;
    case Op::kCosh:
      name = "cosh";
      break;
    case Op::kAsinh:
      name = "asinh";
      break;
    case Op::kAcosh:
      name = "acosh";
      break;
    case Op::kAtanh:
      name = "atanh";
      break;
    case Op::kLog1p:
      name = "log1p";
      break;
    case Op::kExpm1:
      name = "expm1";
      break;
    case Op::kMod:
      name = "fmod";
      break;
    default:
      name = "pow";
      break;
  }
  return Cat(name, element == "f32" ? "f" : "");
}

// Reports whether libmvec's function stays within the op table's bound (measured over all f32,
// millions of f64).
bool LibmvecIsExact(Op op, const std::string& element) {
  if (op == Op::kMod) return false;
  if (element == "f32") return op != Op::kLog && op != Op::kLog2;
  return op != Op::kExp && op != Op::kSin;
}

// e^x or 2^x: x = n ln 2 + r (or n + r), |r| <= ln(2)/2, a polynomial in r, times 2^n. For e^x,
// n ln 2 is subtracted in two parts (Cody and Waite), so that r keeps its last bits. NaN passes
// both clamps; beyond them the result is 0 or infinite.
constexpr char kExpReduce[] =
    "  const $T n = __builtin_elementwise_roundeven(x * 0x1.715476p+0f);\n"
    "  $T r = FMA(n, ($T)-0x1.62e430p-1f, x);\n"
    "  r = FMA(n, ($T)0x1.05c610p-29f, r);\n";
constexpr char kExp2Reduce[] =
    "  const $T n = __builtin_elementwise_roundeven(x);\n"
    "  const $T r = (x - n) * 0x1.62e430p-1f;\n";
constexpr char kExpPolynomial[] =
    "  $T p = FMA(($T)0x1.6a2252p-10f, r, ($T)0x1.123b04p-7f);\n"
    "  p = FMA(p, r, ($T)0x1.5558f8p-5f);\n"
    "  p = FMA(p, r, ($T)0x1.555490p-3f);\n"
    "  p = FMA(p, r, ($T)0x1.fffffcp-2f);\n"
    "  p = FMA(p, r * r, r) + 1.0f;\n";

// log(x) or log2(x): x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) = f + g with g =
// f^2 (f P(f) - 1/2), P a minimax polynomial. g is small compared with f, so its rounding hardly
// counts.
constexpr char kLog[] =
    "FN $T $n($T x) {\n"
    "  const $I tiny = ($I)(x < 0x1p-126f);\n"
    "  const $I u = ($I)(tiny ? x * 0x1p23f : x), k = (u - 0x3f3504f3) >> 23;\n"
    "  const $T e = __builtin_convertvector(tiny ? k - 23 : k, $T);\n"
    "  const $T f = ($T)(u - (k << 23)) - 1.0f;\n"
    "  $T p = FMA(($T)0x1.14625cp-4f, f, ($T)-0x1.de4f62p-4f);\n"
    "  p = FMA(p, f, ($T)0x1.e6f63ap-4f);\n"
    "  p = FMA(p, f, ($T)-0x1.fc1f7ap-4f);\n"
    "  p = FMA(p, f, ($T)0x1.2336e0p-3f);\n"
    "  p = FMA(p, f, ($T)-0x1.555c5ap-3f);\n"
    "  p = FMA(p, f, ($T)0x1.99a4bcp-3f);\n"
    "  p = FMA(p, f, ($T)-0x1.000006p-2f);\n"
    "  p = FMA(p, f, ($T)0x1.555548p-2f);\n"
    "  const $T g = f * f * FMA(p, f, ($T)-0.5f);\n"
    "  $T r = $sum;\n"
    "  r = x < __builtin_inff() ? r : x;\n"
    "  return x > 0.0f ? r : x == 0.0f ? ($T)-__builtin_inff() : ($T)__builtin_nanf(\"\");\n}\n";
constexpr char kLogSum[] = "FMA(e, ($T)0x1.62e430p-1f, FMA(e, ($T)-0x1.05c610p-29f, g) + f)";
constexpr char kLog2Sum[] = "FMA(f, ($T)0x1.715476p+0f, FMA(f, ($T)$lo, g * 0x1.715476p+0f)) + e";

}  // namespace

std::string Prelude::InlineMath(Op op, int lanes) {
  const std::string type = VectorName("f32", lanes);
  const bool two = op == Op::kExp2;
  const std::string name = Cat(LibmName(op, "f64"), "_", type);
  Define("fma", "#define FMA __builtin_elementwise_fma\n");
  if (op == Op::kLog || op == Op::kLog2) {
    return Define(name, Fill(kLog, {{"sum", op == Op::kLog ? kLogSum : kLog2Sum},
                                    {"lo", "0x1.4ae0c0p-26f"},
                                    {"T", type},
                                    {"I", VectorName("i32", lanes)},
                                    {"n", name}}));
  }
  std::vector<std::pair<std::string, std::string>> values = {{"T", type},
                                                             {"I", VectorName("i32", lanes)},
                                                             {"n", name},
                                                             {"lo", two ? "-151.0f" : "-104.5f"},
                                                             {"hi", two ? "129.0f" : "89.0f"}};
  std::string text = "FN $T $n($T x) {\n";
  const bool scale =
      features_.avx512f && (lanes == 16 || (features_.avx512vl && (lanes == 8 || lanes == 4)));
  if (scale) {
    text += "  x = x < ($T)$lo ? ($T)$lo : x;\n";
  } else {
    text += "  const $T given = x;\n  x = x < ($T)$lo ? ($T)0.0f : x;\n";
  }
  text += "  x = x > ($T)$hi ? ($T)$hi : x;\n";
  text = Fill(text, values);
  text += Fill(Cat(two ? kExp2Reduce : kExpReduce, kExpPolynomial), {{"T", type}});
  if (scale) {
    const std::string call = Cat("__builtin_ia32_scalefps", lanes * 32, "_mask(p, n, ($T)0.0f, ");
    text += Cat("  return ", call, lanes == 16 ? "(u16)-1, 4);\n}\n" : "(u8)-1);\n}\n");
  } else {
    // NaN converts to no integer; its p is NaN already.
    text +=
        "  const $I k = __builtin_convertvector(n == n ? n : ($T)0.0f, $I), h = k >> 1;\n"
        "  p = p * ($T)((h + 127) << 23) * ($T)((k - h + 127) << 23);\n"
        "  return given < ($T)$lo ? ($T)0.0f : p;\n}\n";
  }
  return Define(name, Fill(text, values));
}

std::string Prelude::VectorMath(Op op, const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes);
  const int bits = lanes * ElementBits(element);
  const char* isa = bits == 512 ? "e" : bits == 256 ? "d" : "b";
  const bool two = op == Op::kPow;
  const std::string name = Cat("_ZGV", isa, "N", lanes, two ? "vv_" : "v_", LibmName(op, element));
  return Define(name, Cat(type, " ", name, "(", type, two ? Cat(", ", type) : "", ");\n"));
}

// Declares a variable that the loader of the kernel sets.
std::string Prelude::Gemm(DType dtype) {
  const std::string name = dtype == DType::kF64 ? "athanor_dgemm" : "athanor_sgemm";
  return Define(name, Cat("void (*", name,
                          ")(i64 rows, i64 columns, i64 sums, const void* left, i64 left_stride,\n"
                          "    i64 left_transposed, const void* right, i64 right_stride, i64 "
                          "right_transposed,\n    void* result, i64 result_stride);\n"));
}

std::string Prelude::Math(Op op, const std::string& element, int lanes) {
  const bool two = op == Op::kPow || op == Op::kMod;
  const std::string type = VectorName(element, lanes);
  const std::string name = Cat(LibmName(op, "f64"), "_", type);
  if (Has(name)) return name;
  const int bits = lanes * ElementBits(element);
  const bool inlined = element == "f32" && features_.fma && features_.avx2 &&
                       (op == Op::kExp || op == Op::kExp2 || op == Op::kLog || op == Op::kLog2);
  if (lanes == 1) {
    if (op != Op::kMod) return Cat("__builtin_", LibmName(op, element));
    return Define(name, Fill("FN $T $n($T a, $T b) {\n"
                             "  const $T r = __builtin_$f(a, b);\n"
                             "  if (r == 0) return __builtin_copysign$s(r, b);\n"
                             "  return r != r || (r < 0) == (b < 0) ? r : r + b;\n}\n",
                             {{"T", type},
                              {"n", name},
                              {"f", LibmName(op, element)},
                              {"s", element == "f32" ? "f" : ""}}));
  }
  if (inlined && lanes >= 4 && bits <= 8 * features_.vector_bytes) return InlineMath(op, lanes);
  const bool native =
      (bits == 128) || (bits == 256 && features_.avx2) || (bits == 512 && features_.avx512f);
  const bool libmvec = features_.libmvec && LibmvecIsExact(op, element);
  if (libmvec && native) return VectorMath(op, element, lanes);
  if ((libmvec || inlined) && bits > 128)
    return Halves(name, Math(op, element, lanes / 2), type, lanes, two);
  return LaneByLane(name, Math(op, element, 1), element, lanes, two);
}

}  // namespace athanor::kir
