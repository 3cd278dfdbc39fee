// Conversions between element types, exactly as compiler/ir/value/tensor.h has them.
#include "compiler/codegen/cpu/prelude.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

// f8e4m3 and f8e5m2 as EncodeFloat sees them.
struct Float8 {
  int mantissa_bits, bias, infinity, nan;
};
Float8 FormatOf(DType dtype) {
  return dtype == DType::kF8E4M3 ? Float8{3, 7, 0x7f, 0x7f} : Float8{2, 15, 0x7c, 0x7e};
}

// Names that every text below may use: F f32xN, U u32xN, I i32xN and N, the type at the other end.
std::vector<std::pair<std::string, std::string>> Values(const std::string& name,
                                                        const std::string& other, int lanes) {
  return {{"F", VectorName("f32", lanes)},
          {"U", VectorName("u32", lanes)},
          {"I", VectorName("i32", lanes)},
          {"N", VectorName(other, lanes)},
          {"n", name}};
}

}  // namespace

std::string Prelude::Reinterpret(int lanes, const std::string& to, const std::string& from,
                                 const std::string& x) {
  return lanes == 1 ? Cat(Bits(to, from), "(", x, ")")
                    : Cat("(", VectorName(to, lanes), ")(", x, ")");
}

std::string Prelude::Widen(DType dtype, int lanes) {
  const std::string name = Cat(DTypeName(dtype), "_to_", VectorName("f32", lanes));
  if (Has(name)) return name;
  const auto values = Values(name, DTypeBytes(dtype) == 2 ? "u16" : "u8", lanes);
  const std::string wide = lanes == 1 ? "(u32)x" : "__builtin_convertvector(x, $U)";
  std::string text = "FN $F $n($N x) {\n";
  auto as_float = [&](const std::string& u) { return Reinterpret(lanes, "f32", "u32", u); };
  if (dtype == DType::kF16) {
    if (lanes == 1) {
      Bits("f16", "u16");
      text += "  return (f32)f16_of_u16(x);\n}\n";
    } else {
      text += Cat("  return __builtin_convertvector((f16x", lanes, ")x, $F);\n}\n");
    }
  } else if (dtype == DType::kBF16) {
    text += Cat("  return ", as_float(Cat("(", wide, ") << 16")), ";\n}\n");
  } else if (dtype == DType::kF8E8M0) {
    text +=
        Cat("  const $U u = ", wide, ";\n", "  return ",
            as_float("u == 255 ? ($U)0x7fc00000u : u == 0 ? ($U)0x400000u : u << 23"), ";\n}\n");
  } else {
    const Float8 f = FormatOf(dtype);
    const int shift = 23 - f.mantissa_bits;
    // A normal code moves into place and takes the other bias. A subnormal code is an integer
    // number of quanta, which is exact in f32.
    text += Cat("  const $U u = ", wide, ", sign = (u & 0x80u) << 24, m = u & 0x7fu;\n");
    text += Cat("  const $F small = ", lanes == 1 ? "(f32)m" : "__builtin_convertvector(m, $F)",
                " * 0x1p", 1 - f.bias - f.mantissa_bits, "f;\n");
    text += Cat("  const $U small_bits = ", Reinterpret(lanes, "u32", "f32", "small"), ";\n");
    text += Cat("  const $U normal = (m << ", shift, ") + ", (127 - f.bias) << 23, "u;\n");
    if (f.infinity == f.nan) {
      text += Cat("  const $U special = ($U)0x7fc00000u;\n");
    } else {
      text +=
          Cat("  const $U special = m == ", f.infinity, "u ? ($U)0x7f800000u : ($U)0x7fc00000u;\n");
    }
    text += Cat("  const $U r = m >= ", f.infinity, "u ? special : m < ", 1 << f.mantissa_bits,
                "u ? small_bits : normal;\n");
    text += Cat("  return ", as_float("r | sign"), ";\n}\n");
  }
  return Define(name, Fill(text, values));
}

std::string Prelude::Narrow(DType dtype, int lanes) {
  const std::string name = Cat(VectorName("f32", lanes), "_to_", DTypeName(dtype));
  if (Has(name)) return name;
  const auto values = Values(name, DTypeBytes(dtype) == 2 ? "u16" : "u8", lanes);
  auto narrow = [&](const char* u) {
    return lanes == 1 ? Cat("($N)(", u, ")") : Cat("__builtin_convertvector(", u, ", $N)");
  };
  std::string text = "FN $N $n($F x) {\n";
  const std::string bits = Reinterpret(lanes, "u32", "f32", "x");
  if (dtype == DType::kF16) {
    if (lanes == 1) {
      Bits("u16", "f16");
      text += "  return u16_of_f16((f16)x);\n}\n";
    } else {
      text += Cat("  return ($N)__builtin_convertvector(x, f16x", lanes, ");\n}\n");
    }
    return Define(name, Fill(text, values));
  }
  text += Cat("  const $U u = ", bits, ";\n");
  if (dtype == DType::kBF16) {
    text +=
        "  const $U rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;\n"
        "  const $U r = (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded;\n";
  } else if (dtype == DType::kF8E8M0) {
    // The result is the exponent, one more from 1.5 upwards. Below 2^-126 only one tie is left. The
    // sign bit makes negatives large; -0 is a zero.
    text +=
        "  const $U normal = (u >> 23) + ((u >> 22) & 1), tiny = u >= 0x600000u ? ($U)1u : "
        "($U)0u;\n"
        "  const $U near = u < 0x800000u ? tiny : normal;\n"
        "  const $U r = u == 0x80000000u ? ($U)0u : u >= 0x7f800000u ? ($U)255u : near;\n";
  } else {
    const Float8 f = FormatOf(dtype);
    const int shift = 23 - f.mantissa_bits;
    // Adding a power of two whose last place is the format's quantum rounds subnormals; for normal
    // values the carry out of the rounded mantissa raises the exponent.
    text += Cat("  const $U a = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;\n");
    text += Cat("  const $F magic = ($F)0x1p", 24 - f.bias - f.mantissa_bits, "f;\n");
    text += Cat("  const $F shifted = ", Reinterpret(lanes, "f32", "u32", "a"), " + magic;\n");
    text += Cat("  const $U small = ", Reinterpret(lanes, "u32", "f32", "shifted"), " - ",
                Reinterpret(lanes, "u32", "f32", "magic"), ";\n");
    text += Cat("  const $U normal = ((a + ", (1 << (shift - 1)) - 1, "u + ((a >> ", shift,
                ") & 1)) >> ", shift, ") - ", (127 - f.bias) << f.mantissa_bits, "u;\n");
    text += Cat("  const $U code = a < ", (128 - f.bias) << 23, "u ? small : normal;\n");
    text += Cat("  const $U finite = code > ", f.infinity, "u ? ($U)", f.infinity, "u : code;\n");
    text += Cat("  const $U r = (a > 0x7f800000u ? ($U)", f.nan, "u : a == 0x7f800000u ? ($U)",
                f.infinity, "u : finite) | sign;\n");
  }
  text += Cat("  return ", narrow("r"), ";\n}\n");
  return Define(name, Fill(text, values));
}

std::string Prelude::OddF32(int lanes) {
  const std::string name = Cat("odd_", VectorName("f32", lanes));
  if (Has(name)) return name;
  const auto values = Values(name, "f64", lanes);
  auto convert = [&](const char* x, const char* to) {
    return lanes == 1 ? Cat("(", to, ")", x) : Cat("__builtin_convertvector(", x, ", ", to, ")");
  };
  // If the rounded value is inexact and has an even last bit, its neighbour on x's side is odd.
  std::string text =
      Cat("FN $F $n($N x) {\n  const $F near = ", convert("x", "$F"), ";\n",
          "  const $N back = ", convert("near", "$N"), ";\n",
          "  const $N a = __builtin_elementwise_abs(x), b = __builtin_elementwise_abs(back);\n",
          "  const $U u = ", Reinterpret(lanes, "u32", "f32", "near"), ";\n");
  if (lanes == 1) {
    text += Cat("  const u32 step = (u & 1) ? 0 : a > b ? 1 : a < b ? -1 : 0;\n  return ",
                Reinterpret(1, "f32", "u32", "u + step"), ";\n}\n");
  } else {
    text += Cat(
        "  const $I up = __builtin_convertvector(a > b, $I), down = __builtin_convertvector(a < b, "
        "$I);\n",
        "  const $U step = ($U)(down - up);\n", "  return ($F)((u & 1) != 0 ? u : u + step);\n}\n");
  }
  return Define(name, Fill(text, values));
}

std::string Prelude::IntegerToF32(const std::string& element, DType dtype, int lanes) {
  const bool is_signed = element[0] == 'i';
  const int bits = ElementBits(element);
  const std::string from = VectorName(element, lanes);
  const std::string name = Cat(from, "_to_f32_for_", DTypeName(dtype));
  if (Has(name)) return name;
  auto convert = [&](const std::string& x, const std::string& to) {
    const std::string type = VectorName(to, lanes);
    return lanes == 1 ? Cat("(", type, ")(", x, ")")
                      : Cat("__builtin_convertvector(", x, ", ", type, ")");
  };
  std::string text = "FN $F $n($T x) {\n";
  std::vector<std::pair<std::string, std::string>> values = {{"F", VectorName("f32", lanes)},
                                                             {"T", from},
                                                             {"n", name},
                                                             {"U", VectorName("u64", lanes)},
                                                             {"D", VectorName("f64", lanes)}};
  if (bits <= 16) {
    text += Cat("  return ", convert("x", "f32"), ";\n}\n");
  } else if (bits == 32) {
    values.push_back({"o", OddF32(lanes)});
    text += Cat("  return $o(", convert("x", "f64"), ");\n}\n");
  } else {
    // Rounds to odd at the twelfth bit first, so that the integer fits into 53 bits.
    values.push_back({"o", OddF32(lanes)});
    text += is_signed ? "  const $U m = x < 0 ? 0 - ($U)x : ($U)x;\n" : "  const $U m = x;\n";
    text += "  const $U odd = (m & ~0x7ffUL) | ((m & 0x7ff) != 0 ? ($U)0x800UL : ($U)0UL);\n";
    text += Cat("  const $D d = ", convert("m >> 53 != 0 ? odd : m", "f64"), ";\n");
    text += is_signed ? "  return $o(x < 0 ? -d : d);\n}\n" : "  return $o(d);\n}\n";
  }
  return Define(name, Fill(text, values));
}

std::string Prelude::Saturate(const std::string& from, const std::string& to, int lanes) {
  const std::string name = Cat(VectorName(from, lanes), "_to_", to);
  if (Has(name)) return name;
  const bool is_signed = to[0] == 'i', vector = lanes > 1;
  const int bits = ElementBits(to), significand = from == "f32" ? 24 : 53;
  const std::string suffix = from == "f32" ? "f" : "";
  const std::string low = is_signed ? Cat("-0x1p", bits - 1, suffix) : Cat("0x0p0", suffix);
  const std::string high = Cat("0x1p", is_signed ? bits - 1 : bits, suffix);
  const std::string u = Cat("u", bits);
  const std::string max =
      is_signed ? Cat("(", to, ")(~(", u, ")0 >> 1)") : Cat("(", to, ")~(", u, ")0");
  const std::string min = is_signed ? Cat("(", to, ")(1UL << ", bits - 1, ")") : Cat("(", to, ")0");
  std::vector<std::pair<std::string, std::string>> values = {
      {"lo", low},
      {"hi", high},
      {"max", max},
      {"min", min},
      {"F", VectorName(from, lanes)},
      {"T", VectorName(to, lanes)},
      {"n", name},
      {"S", VectorName(SignedOf(to), lanes)},
      {"M", VectorName(SignedOf(from), lanes)}};
  std::string text = "FN $T $n($F x) {\n";
  const bool representable = (is_signed ? bits - 1 : bits) <= significand;
  if (representable) {
    // Both ends are floats: clamp, then convert.
    values.push_back({"end", Cat("(", high, " - 1)")});
    text +=
        "  x = x < ($F)$lo ? ($F)$lo : x;\n  x = x > ($F)$end ? ($F)$end : x;\n"
        "  x = x == x ? x : ($F)0;\n";
    text += vector ? "  return __builtin_convertvector(x, $T);\n}\n" : "  return ($T)x;\n}\n";
    return Define(name, Fill(text, values));
  }
  if (!vector) {
    text += "  return x >= $hi ? $max : x >= $lo ? ($T)x : x < $lo ? $min : ($T)0;\n}\n";
    return Define(name, Fill(text, values));
  }
  text +=
      "  const $M inside = ($M)((x >= ($F)$lo) & (x < ($F)$hi));\n"
      "  const $T r = __builtin_convertvector(inside ? x : ($F)0, $T);\n"
      "  const $S above = __builtin_convertvector(($M)(x >= ($F)$hi), $S);\n"
      "  const $S below = __builtin_convertvector(($M)(x < ($F)$lo), $S);\n"
      "  return above ? ($T)$max : below ? ($T)$min : r;\n}\n";
  return Define(name, Fill(text, values));
}

std::string Prelude::NarrowFma(DType dtype, int lanes) {
  const std::string name = Cat("fma_", DTypeName(dtype), "x", lanes);
  if (Has(name)) return name;
  auto convert = [&](const std::string& x) {
    return lanes == 1 ? Cat("(f64)", x) : Cat("__builtin_convertvector(", x, ", $D)");
  };
  std::vector<std::pair<std::string, std::string>> values = {{"H", VectorName("u16", lanes)},
                                                             {"D", VectorName("f64", lanes)},
                                                             {"U", VectorName("u64", lanes)},
                                                             {"w", Widen(dtype, lanes)},
                                                             {"o", OddF32(lanes)},
                                                             {"r", Narrow(dtype, lanes)},
                                                             {"n", name}};
  if (lanes == 1) {
    Bits("u64", "f64");
    Bits("f64", "u64");
  }
  // The product is exact in f64. The sum is rounded to odd with the help of its rounding error
  // (Knuth's TwoSum), so that the two conversions that follow round only once.
  std::string text = Cat("FN $H $n($H a, $H b, $H c) {\n", "  const $D p = ", convert("$w(a)"),
                         " * ", convert("$w(b)"), ", q = ", convert("$w(c)"), ";\n",
                         "  const $D s = p + q, t = s - p, e = (p - (s - t)) + (q - t);\n");
  if (lanes == 1) {
    text +=
        "  const u64 u = u64_of_f64(s);\n"
        "  const u64 step = (u & 1) || !(e < 0 || e > 0) ? 0 : (e > 0) == (s > 0) ? 1 : -1;\n"
        "  return $r($o(f64_of_u64(u + step)));\n}\n";
  } else {
    text +=
        "  const $U u = ($U)s, inexact = ($U)((e < 0) | (e > 0));\n"
        "  const $U step = ((e > 0) == (s > 0)) ? ($U)1UL : ~($U)0UL;\n"
        "  const $U odd = (u & 1) != 0 ? u : u + (step & inexact);\n"
        "  return $r($o(($D)odd));\n}\n";
  }
  return Define(name, Fill(text, values));
}

}  // namespace athanor::kir
