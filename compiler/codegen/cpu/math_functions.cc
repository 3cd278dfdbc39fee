#include "compiler/codegen/cpu/math_functions.h"

#include "absl/strings/ascii.h"

namespace athanor::kir {
namespace {

// libm's names are those of the op table in lower case, but for Mod.
std::string LibmName(Op op) {
  return op == Op::kMod ? "fmod" : absl::AsciiStrToLower(std::string(OpName(op)));
}

std::string LibmName(Op op, const std::string& element) {
  return Cat(LibmName(op), element == "f32" ? "f" : "");
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

std::string InlineMath(Prelude& p, Op op, int lanes) {
  const std::string type = VectorName("f32", lanes), name = Cat(LibmName(op), "_", type);
  const CpuFeatures& has = p.features();
  p.Define("fma", "#define FMA __builtin_elementwise_fma\n");
  if (op == Op::kLog || op == Op::kLog2) {
    return p.Define(name, kLog,
                    {{"sum", op == Op::kLog ? kLogSum : kLog2Sum},
                     {"lo", "0x1.4ae0c0p-26f"},
                     {"T", type},
                     {"I", VectorName("i32", lanes)}});
  }
  const bool two = op == Op::kExp2;
  const bool scale = has.avx512f && (lanes == 16 || (has.avx512vl && (lanes == 8 || lanes == 4)));
  std::string text = "FN $T $n($T x) {\n";
  if (scale) {
    text += "  x = x < ($T)$lo ? ($T)$lo : x;\n";
  } else {
    text += "  const $T given = x;\n  x = x < ($T)$lo ? ($T)0.0f : x;\n";
  }
  text += Cat("  x = x > ($T)$hi ? ($T)$hi : x;\n", two ? kExp2Reduce : kExpReduce, kExpPolynomial);
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
  return p.Define(name, text,
                  {{"T", type},
                   {"I", VectorName("i32", lanes)},
                   {"lo", two ? "-151.0f" : "-104.5f"},
                   {"hi", two ? "129.0f" : "89.0f"}});
}

std::string VectorMath(Prelude& p, Op op, const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes);
  const int bits = lanes * ElementBits(element);
  const char* isa = bits == 512 ? "e" : bits == 256 ? "d" : "b";
  const bool two = op == Op::kPow;
  const std::string name = Cat("_ZGV", isa, "N", lanes, two ? "vv_" : "v_", LibmName(op, element));
  return p.Define(name, Cat(type, " ", name, "(", type, two ? Cat(", ", type) : "", ");\n"));
}

// Calls the function for half as many lanes twice, or the scalar one for each lane.
std::string Halves(Prelude& p, const std::string& name, const std::string& half,
                   const std::string& type, int lanes, bool two) {
  return p.Define(name,
                  two ? "FN $T $n($T a, $T b) {\n"
                        "  return __builtin_shufflevector($h(a.lo, b.lo), $h(a.hi, b.hi), $c);\n}\n"
                      : "FN $T $n($T x) {\n"
                        "  return __builtin_shufflevector($h(x.lo), $h(x.hi), $c);\n}\n",
                  {{"T", type}, {"h", half}, {"c", Numbers(lanes)}});
}

std::string LaneByLane(Prelude& p, const std::string& name, const std::string& scalar,
                       const std::string& type, int lanes, bool two) {
  auto value = [&](int i) {
    return two ? Cat(scalar, "(a[", i, "], b[", i, "])") : Cat(scalar, "(a[", i, "])");
  };
  return p.Define(
      name, "FN $T $n($T a$b) {\n  return ($T){$v};\n}\n",
      {{"T", type}, {"b", two ? Cat(", ", type, " b") : ""}, {"v", List(lanes, value)}});
}

std::string ScalarMath(Prelude& p, Op op, const std::string& element) {
  const std::string function = Cat("__builtin_", LibmName(op, element));
  if (op != Op::kMod) return function;
  return p.Define(Cat(LibmName(op), "_", element),
                  "FN $T $n($T a, $T b) {\n"
                  "  const $T r = $f(a, b);\n"
                  "  if (r == 0) return __builtin_copysign$s(r, b);\n"
                  "  return r != r || (r < 0) == (b < 0) ? r : r + b;\n}\n",
                  {{"T", element}, {"f", function}, {"s", element == "f32" ? "f" : ""}});
}

}  // namespace

std::string MathFunction(Prelude& p, Op op, const std::string& element, int lanes) {
  if (lanes == 1) return ScalarMath(p, op, element);
  const CpuFeatures& has = p.features();
  const int bits = lanes * ElementBits(element);
  const bool inlined = element == "f32" && has.fma && has.avx2 &&
                       (op == Op::kExp || op == Op::kExp2 || op == Op::kLog || op == Op::kLog2);
  if (inlined && lanes >= 4 && bits <= 8 * has.vector_bytes) return InlineMath(p, op, lanes);
  const bool native = bits == 128 || (bits == 256 && has.avx2) || (bits == 512 && has.avx512f);
  const bool libmvec = has.libmvec && LibmvecIsExact(op, element);
  if (libmvec && native) return VectorMath(p, op, element, lanes);
  const bool two = op == Op::kPow || op == Op::kMod, halves = (libmvec || inlined) && bits > 128;
  const std::string type = VectorName(element, lanes), name = Cat(LibmName(op), "_", type);
  const std::string part = MathFunction(p, op, element, halves ? lanes / 2 : 1);
  return halves ? Halves(p, name, part, type, lanes, two)
                : LaneByLane(p, name, part, type, lanes, two);
}

}  // namespace athanor::kir
