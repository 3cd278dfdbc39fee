// Loads and stores of some of a vector's lanes.
#include "compiler/codegen/cpu/prelude.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

bool IsFloatElement(const std::string& element) { return element[0] == 'f'; }

// Returns the suffix of the masked moves' builtins: "ups", "upd", "dqusi", ...
std::string MoveSuffix(const std::string& element) {
  if (element == "f32") return "ups";
  if (element == "f64") return "upd";
  switch (ElementBits(element)) {
    case 8:
      return "dquqi";
    case 16:
      return "dquhi";
    case 32:
      return "dqusi";
    default:
      return "dqudi";
  }
}

std::string Avx2Suffix(const std::string& element, int bits) {
  const bool wide = ElementBits(element) == 64;
  return Cat(IsFloatElement(element) ? (wide ? "pd" : "ps") : (wide ? "q" : "d"),
             bits == 256 ? "256" : "");
}

}  // namespace

bool Prelude::NativeMask(const std::string& element, int lanes) const {
  const int width = ElementBits(element), bits = lanes * width;
  if (bits != 128 && bits != 256 && bits != 512) return false;
  if (features_.avx512f && (bits == 512 || features_.avx512vl) &&
      (width >= 32 || features_.avx512bw)) {
    return true;
  }
  return features_.avx2 && bits <= 256 && width >= 32;
}

// Defines the mask register for lanes below a count.
std::string Prelude::CountBits(int lanes) {
  const std::string name = Cat("bits_below_", lanes);
  const std::string type = Cat("u", lanes < 8 ? 8 : lanes);
  const std::string all = lanes == 64 ? "~0UL" : Cat("((1UL << ", lanes, ") - 1)");
  return Define(name, Fill("FN $t $n(i64 n) {\n"
                           "  return ($t)(n <= 0 ? 0 : n >= $l ? $a : (1UL << n) - 1);\n}\n",
                           {{"t", type}, {"n", name}, {"l", Cat(lanes)}, {"a", all}}));
}

std::string Prelude::MaskBits(int lanes) {
  const std::string name = Cat("bits_", lanes);
  // Vectors of fewer than eight lanes fill a part of a byte.
  const int wide = lanes < 8 ? 8 : lanes;
  std::string widened = "m";
  if (lanes < 8) {
    widened = Cat("__builtin_shufflevector(m, (i32x", lanes, ")0");
    for (int i = 0; i < 8; ++i) widened += Cat(", ", i < lanes ? i : lanes);
    widened += ")";
  }
  return Define(
      name, Fill("FN u$w $n(i32x$l m) {\n"
                 "  const bitx$w b = __builtin_convertvector($v, bitx$w);\n"
                 "  u$w bits;\n  __builtin_memcpy(&bits, &b, sizeof(bits));\n  return bits;\n}\n",
                 {{"w", Cat(wide)}, {"n", name}, {"l", Cat(lanes)}, {"v", widened}}));
}

std::string Prelude::LoadCount(const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes), name = Cat("load_below_", type);
  if (Has(name)) return name;
  const int bits = lanes * ElementBits(element);
  std::vector<std::pair<std::string, std::string>> values = {
      {"T", type}, {"e", element}, {"n", name}, {"l", Cat(lanes)}, {"h", Cat(lanes / 2)}};
  std::string text = "FN $T $n(const $eu* p, i64 n) {\n";
  if (NativeMask(element, lanes) && features_.avx512f && (bits == 512 || features_.avx512vl)) {
    values.push_back({"m", CountBits(lanes)});
    values.push_back({"b", Cat("__builtin_ia32_load", MoveSuffix(element), bits, "_mask")});
    text += "  return ($T)$b((const void*)p, ($T)0, $m(n));\n}\n";
  } else if (NativeMask(element, lanes)) {
    values.push_back({"m", LoadMask(element, lanes)});
    values.push_back({"k", LaneMask(lanes)});
    text += "  return $m(p, $k(n));\n}\n";
  } else if (lanes >= 4 && NativeMask(element, lanes / 2)) {
    values.push_back({"m", LoadCount(element, lanes / 2)});
    std::string order;
    for (int i = 0; i < lanes; ++i) order += Cat(", ", i);
    values.push_back({"o", order});
    text += "  return __builtin_shufflevector($m(p, n), $m(p + $h, n - $h)$o);\n}\n";
  } else {
    text += "  $T x = ($T)0;\n";
    for (int i = 0; i < lanes; ++i) text += Cat("  if (n > ", i, ") x[", i, "] = p[", i, "];\n");
    text += "  return x;\n}\n";
  }
  return Define(name, Fill(text, values));
}

std::string Prelude::StoreCount(const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes), name = Cat("store_below_", type);
  if (Has(name)) return name;
  const int bits = lanes * ElementBits(element);
  std::vector<std::pair<std::string, std::string>> values = {
      {"T", type}, {"e", element}, {"n", name}, {"h", Cat(lanes / 2)}};
  std::string text = "FN void $n($eu* p, $T x, i64 n) {\n";
  if (NativeMask(element, lanes) && features_.avx512f && (bits == 512 || features_.avx512vl)) {
    values.push_back({"m", CountBits(lanes)});
    values.push_back({"b", Cat("__builtin_ia32_store", MoveSuffix(element), bits, "_mask")});
    text += "  $b((void*)p, x, $m(n));\n}\n";
  } else if (NativeMask(element, lanes)) {
    values.push_back({"m", StoreMask(element, lanes)});
    values.push_back({"k", LaneMask(lanes)});
    text += "  $m(p, x, $k(n));\n}\n";
  } else if (lanes >= 4 && NativeMask(element, lanes / 2)) {
    values.push_back({"m", StoreCount(element, lanes / 2)});
    text += "  $m(p, x.lo, n);\n  $m(p + $h, x.hi, n - $h);\n}\n";
  } else {
    for (int i = 0; i < lanes; ++i) text += Cat("  if (n > ", i, ") p[", i, "] = x[", i, "];\n");
    text += "}\n";
  }
  return Define(name, Fill(text, values));
}

std::string Prelude::LoadMask(const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes), name = Cat("load_where_", type);
  if (Has(name)) return name;
  const int bits = lanes * ElementBits(element);
  std::vector<std::pair<std::string, std::string>> values = {
      {"T", type}, {"e", element}, {"n", name}, {"l", Cat(lanes)}, {"h", Cat(lanes / 2)}};
  std::string text = "FN $T $n(const $eu* p, i32x$l m) {\n";
  if (NativeMask(element, lanes) && features_.avx512f && (bits == 512 || features_.avx512vl)) {
    values.push_back({"m", MaskBits(lanes)});
    values.push_back({"b", Cat("__builtin_ia32_load", MoveSuffix(element), bits, "_mask")});
    text += "  return ($T)$b((const void*)p, ($T)0, $m(m));\n}\n";
  } else if (NativeMask(element, lanes)) {
    values.push_back({"b", Cat("__builtin_ia32_maskload", Avx2Suffix(element, bits))});
    values.push_back({"i", VectorName(SignedOf(element), lanes)});
    text += "  return ($T)$b((const void*)p, __builtin_convertvector(m, $i));\n}\n";
  } else if (lanes >= 4 && NativeMask(element, lanes / 2)) {
    values.push_back({"m", LoadMask(element, lanes / 2)});
    std::string order;
    for (int i = 0; i < lanes; ++i) order += Cat(", ", i);
    values.push_back({"o", order});
    text += "  return __builtin_shufflevector($m(p, m.lo), $m(p + $h, m.hi)$o);\n}\n";
  } else {
    text += "  $T x = ($T)0;\n";
    for (int i = 0; i < lanes; ++i) text += Cat("  if (m[", i, "]) x[", i, "] = p[", i, "];\n");
    text += "  return x;\n}\n";
  }
  return Define(name, Fill(text, values));
}

std::string Prelude::StoreMask(const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes), name = Cat("store_where_", type);
  if (Has(name)) return name;
  const int bits = lanes * ElementBits(element);
  std::vector<std::pair<std::string, std::string>> values = {
      {"T", type}, {"e", element}, {"n", name}, {"l", Cat(lanes)}, {"h", Cat(lanes / 2)}};
  std::string text = "FN void $n($eu* p, $T x, i32x$l m) {\n";
  if (NativeMask(element, lanes) && features_.avx512f && (bits == 512 || features_.avx512vl)) {
    values.push_back({"m", MaskBits(lanes)});
    values.push_back({"b", Cat("__builtin_ia32_store", MoveSuffix(element), bits, "_mask")});
    text += "  $b((void*)p, x, $m(m));\n}\n";
  } else if (NativeMask(element, lanes)) {
    values.push_back({"b", Cat("__builtin_ia32_maskstore", Avx2Suffix(element, bits))});
    values.push_back({"i", VectorName(SignedOf(element), lanes)});
    text += "  $b((void*)p, __builtin_convertvector(m, $i), x);\n}\n";
  } else if (lanes >= 4 && NativeMask(element, lanes / 2)) {
    values.push_back({"m", StoreMask(element, lanes / 2)});
    text += "  $m(p, x.lo, m.lo);\n  $m(p + $h, x.hi, m.hi);\n}\n";
  } else {
    for (int i = 0; i < lanes; ++i) text += Cat("  if (m[", i, "]) p[", i, "] = x[", i, "];\n");
    text += "}\n";
  }
  return Define(name, Fill(text, values));
}

std::string Prelude::Gather(const std::string& element, int lanes, bool strided, bool masked) {
  const std::string type = VectorName(element, lanes);
  const std::string name = Cat(strided ? "stride_" : "gather_", masked ? "where_" : "", type);
  std::string whole;
  if (masked && !strided) {
    // A mask of checked positions is usually full: tests that once instead of branching per lane.
    whole = Cat("  if (__builtin_expect(!", AnyLane(lanes), "(~m), 1)) return ",
                Gather(element, lanes, strided, /*masked=*/false), "(p, d);\n");
  }
  std::string text = Cat("FN $T $n(const $eu* p, ", strided ? "i64 d" : "i64x$l d",
                         masked ? ", i32x$l m) {\n" : ") {\n");
  auto at = [&](int i) { return strided ? Cat("p[", i, " * d]") : Cat("p[d[", i, "]]"); };
  if (masked) {
    text += whole + "  $T x = ($T)0;\n";
    for (int i = 0; i < lanes; ++i) text += Cat("  if (m[", i, "]) x[", i, "] = ", at(i), ";\n");
    text += "  return x;\n}\n";
  } else {
    text += "  return ($T){";
    for (int i = 0; i < lanes; ++i) text += Cat(i == 0 ? "" : ", ", at(i));
    text += "};\n}\n";
  }
  return Define(name, Fill(text, {{"T", type}, {"n", name}, {"e", element}, {"l", Cat(lanes)}}));
}

std::string Prelude::Every(const std::string& element, int lanes, int step, bool masked) {
  const std::string type = VectorName(element, lanes);
  const std::string name = Cat("every_", step, "_", masked ? "where_" : "", type);
  if (Has(name)) return name;
  std::vector<std::pair<std::string, std::string>> values = {
      {"T", type}, {"n", name}, {"e", element}, {"l", Cat(lanes)}};
  if (masked) values.push_back({"w", LoadMask(element, lanes)});
  std::string text = Cat("FN $T $n(const $eu* p", masked ? ", i32x$l m" : "", ") {\n");
  for (int part = 0; part < step; ++part) {
    // The last vector ends with the last lane's element.
    const int start = part + 1 < step ? part * lanes : (lanes - 1) * step - lanes + 1;
    std::string at = Cat("p + ", start), mask, order;
    for (int k = 0; k < lanes; ++k) {
      const bool wanted = (start + k) % step == 0;
      mask += Cat(", ", wanted ? (start + k) / step : lanes);
    }
    // Keeps the lanes that earlier vectors hold; takes from this one the lanes that it adds.
    for (int lane = 0; lane < lanes; ++lane) {
      const int place = lane * step - start;
      const bool here = place >= 0 && place < lanes && lane * step >= part * lanes;
      order += Cat(", ", part == 0 ? (place < lanes ? place : 0) : here ? lanes + place : lane);
    }
    const std::string vector =
        masked ? Cat("$w(", at, ", __builtin_shufflevector(m, (i32x$l)0", mask, "))")
               : Cat("*(const $Tu*)(", at, ")");
    text += Cat("  const $T v", part, " = ", vector, ";\n");
    text += part == 0 ? Cat("  $T x = __builtin_shufflevector(v0, v0", order, ");\n")
                      : Cat("  x = __builtin_shufflevector(x, v", part, order, ");\n");
  }
  return Define(name, Fill(text + "  return x;\n}\n", values));
}

std::string Prelude::Scatter(const std::string& element, int lanes, bool strided, bool masked) {
  const std::string type = VectorName(element, lanes);
  const std::string name =
      Cat(strided ? "stride_store_" : "scatter_", masked ? "where_" : "", type);
  std::string text = Cat("FN void $n($eu* p, ", strided ? "i64 d" : "i64x$l d", ", $T x",
                         masked ? ", i32x$l m) {\n" : ") {\n");
  for (int i = 0; i < lanes; ++i) {
    text += Cat(masked ? Cat("  if (m[", i, "]) ") : "  ",
                strided ? Cat("p[", i, " * d]") : Cat("p[d[", i, "]]"), " = x[", i, "];\n");
  }
  text += "}\n";
  return Define(name, Fill(text, {{"T", type}, {"n", name}, {"e", element}, {"l", Cat(lanes)}}));
}

}  // namespace athanor::kir
