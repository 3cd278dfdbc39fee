#include "compiler/codegen/cpu/prelude.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_replace.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

// Returns "0, 1, 2" for 3.
std::string Count(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += Cat(i == 0 ? "" : ", ", i);
  return text;
}

struct Element {
  const char* name;
  const char* c_type;
  int bits;
};
constexpr Element kElements[] = {
    {"i8", "signed char", 8},      {"u8", "unsigned char", 8},   {"i16", "short", 16},
    {"u16", "unsigned short", 16}, {"i32", "int", 32},           {"u32", "unsigned int", 32},
    {"i64", "long", 64},           {"u64", "unsigned long", 64}, {"f16", "_Float16", 16},
    {"f32", "float", 32},          {"f64", "double", 64},        {"bit", "_Bool", 1}};

const Element& Find(const std::string& name) {
  return *std::find_if(std::begin(kElements), std::end(kElements),
                       [&](const Element& e) { return name == e.name; });
}

}  // namespace

CpuFeatures CpuFeatures::Of(const v1::Target& target) {
  const std::set<std::string> has(target.features().begin(), target.features().end());
  auto on = [&](const char* name) { return has.contains(name); };
  CpuFeatures f;
  f.x86 = target.triple().rfind("x86_64", 0) == 0;
  f.vector_bytes = target.vector_bytes() > 0 ? target.vector_bytes() : 16;
  if (!f.x86) return f;
  f.sse41 = on("+sse4.1");
  f.avx2 = on("+avx2") && f.vector_bytes >= 32;
  f.fma = on("+fma");
  f.avx512f = on("+avx512f") && f.vector_bytes >= 64;
  f.avx512vl = f.avx512f && on("+avx512vl");
  f.avx512bw = f.avx512f && on("+avx512bw");
  f.libmvec = target.triple().find("linux-gnu") != std::string::npos;
  return f;
}

std::string VectorName(const std::string& element, int lanes) {
  return lanes == 1 ? element : Cat(element, "x", lanes);
}

int ElementBits(const std::string& element) { return Find(element).bits; }
std::string SignedOf(const std::string& element) { return Cat("i", ElementBits(element)); }
std::string UnsignedOf(const std::string& element) { return Cat("u", ElementBits(element)); }

std::string Fill(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [name, value] : values) absl::StrReplaceAll({{Cat("$", name), value}}, &text);
  return text;
}

std::string Prelude::Define(const std::string& name, const std::string& text) {
  if (names_.insert(name).second) text_ += text;
  return name;
}

std::string Typedefs(const std::string& text) {
  std::set<std::string> used;
  for (size_t i = 0; i < text.size();) {
    if (!std::isalpha(static_cast<unsigned char>(text[i])) && text[i] != '_') {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) {
      ++end;
    }
    used.insert(text.substr(i, end - i));
    i = end;
  }
  std::string result;
  for (const Element& e : kElements) {
    auto add = [&](const std::string& name, const std::string& attributes) {
      if (used.contains(name)) result += Cat("typedef ", e.c_type, " ", name, attributes, ";\n");
    };
    add(e.name, "");
    add(Cat(e.name, "u"), " __attribute__((aligned(1), may_alias))");
    for (int lanes = 2; lanes <= 64; lanes *= 2) {
      const std::string name = VectorName(e.name, lanes);
      add(name, Cat(" __attribute__((ext_vector_type(", lanes, ")))"));
      add(Cat(name, "u"),
          Cat(" __attribute__((ext_vector_type(", lanes, "), aligned(1), may_alias))"));
    }
  }
  return result;
}

std::string Prelude::Halves(const std::string& name, const std::string& half,
                            const std::string& type, int lanes, bool two) {
  return Define(
      name, Fill(two ? "FN $T $n($T a, $T b) {\n"
                       "  return __builtin_shufflevector($h(a.lo, b.lo), $h(a.hi, b.hi), $c);\n}\n"
                     : "FN $T $n($T x) {\n"
                       "  return __builtin_shufflevector($h(x.lo), $h(x.hi), $c);\n}\n",
                 {{"T", type}, {"n", name}, {"h", half}, {"c", Count(lanes)}}));
}

std::string Prelude::LaneByLane(const std::string& name, const std::string& scalar,
                                const std::string& element, int lanes, bool two) {
  std::string values;
  for (int i = 0; i < lanes; ++i) {
    values += i == 0 ? "" : ", ";
    values += two ? Cat(scalar, "(a[", i, "], b[", i, "])") : Cat(scalar, "(a[", i, "])");
  }
  const std::string type = VectorName(element, lanes);
  return Define(
      name,
      Fill("FN $T $n($T a$b) {\n  return ($T){$v};\n}\n",
           {{"T", type}, {"n", name}, {"b", two ? Cat(", ", type, " b") : ""}, {"v", values}}));
}

std::string Prelude::Extreme(Op op, const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes);
  const std::string name = Cat(op == Op::kMin ? "min_" : "max_", type);
  // The comparison gives b if either is NaN.
  return Define(name, Fill("FN $T $n($T a, $T b) {\n"
                           "  const $T m = a $o b ? a : b;\n  return a != a ? a : m;\n}\n",
                           {{"T", type}, {"n", name}, {"o", op == Op::kMin ? "<" : ">"}}));
}

std::string Prelude::Divide(Op op, const std::string& element, int lanes) {
  const std::string type = VectorName(element, lanes);
  const bool is_signed = element[0] == 'i';
  const std::string kind = op == Op::kMod                     ? "mod"
                           : op == Op::kFloorDiv && is_signed ? "floordiv"
                                                              : "div";
  const std::string name = Cat(kind, "_", type);
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
  return Define(
      name, Fill(text, {{"T", type}, {"U", VectorName(UnsignedOf(element), lanes)}, {"n", name}}));
}

// C's division rounds towards zero: a negative remainder lowers the quotient by one.
std::string Prelude::FloorDivide(int lanes) {
  const std::string type = VectorName("i64", lanes);
  const std::string name = Cat("floor_", type);
  return Define(name,
                Fill(lanes == 1 ? "FN i64 $n(i64 a, i64 b) {\n  return a / b - (a % b < 0);\n}\n"
                                : "FN $T $n($T a, $T b) {\n  return a / b + ($T)(a % b < 0);\n}\n",
                     {{"T", type}, {"n", name}}));
}

std::string Prelude::LaneMask(int lanes) {
  const std::string name = Cat("lanes_", lanes);
  return Define(
      name,
      Fill("FN i32x$l $n(i64 n) {\n"
           "  return (i32x$l)((i32x$l){$c} < (i32x$l)(i32)(n < 0 ? 0 : n > $l ? $l : n));\n}\n",
           {{"l", Cat(lanes)}, {"n", name}, {"c", Count(lanes)}}));
}

std::string Prelude::AnyLane(int lanes) {
  const std::string name = Cat("any_", lanes);
  return Define(name, Fill("FN i32 $n(i32x$l m) {\n  return __builtin_reduce_or(m) != 0;\n}\n",
                           {{"l", Cat(lanes)}, {"n", name}}));
}

std::string Prelude::CheckIndex(int lanes) {
  const std::string name = Cat("check_", lanes);
  const std::string record =
      Define("record",
             "FN void record(struct KernelError* e, i64 item, i64 index, i64 extent) {\n"
             "  if (e->code) return;\n"
             "  e->code = 1;\n  e->index = index;\n  e->extent = extent;\n  e->item = item;\n}\n");
  if (lanes == 1) {
    return Define(
        name,
        "FN i32 check_1(struct KernelError* e, i64 item, i64 index, i64 extent, i32 active) {\n"
        "  const i32 ok = (index >= 0) & (index < extent);\n"
        "  if (__builtin_expect(active & !ok, 0)) record(e, item, index, extent);\n"
        "  return ok;\n}\n");
  }
  AnyLane(lanes);
  return Define(
      name,
      Fill("FN i32x$l $n(struct KernelError* e, i64 item, i64x$l index, i64x$l extent, i32x$l "
           "active) {\n"
           "  const i32x$l ok = __builtin_convertvector((index >= 0) & (index < extent), i32x$l);\n"
           "  if (__builtin_expect(any_$l(active & ~ok), 0)) {\n"
           "    for (i32 l = 0; l < $l; ++l) {\n"
           "      if (active[l] & ~ok[l]) record(e, item, index[l], extent[l]);\n    }\n  }\n"
           "  return ok;\n}\n",
           {{"l", Cat(lanes)}, {"n", name}}));
}

std::string Prelude::RandomBits(int lanes) {
  const std::string name = Cat("philox_", lanes);
  // Philox4x32-10 (Salmon et al., 2011). Counter words are in the low halves of 64 bits, so that
  // one multiplication gives both halves of a product.
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
  return Define(name, Fill(Cat(text, lanes == 1 ? "  return (u32)r;\n}\n"
                                                : "  return __builtin_convertvector(r, $32);\n}\n"),
                           {{"32", VectorName("u32", lanes)},
                            {"n", name},
                            {"I", VectorName("i64", lanes)},
                            {"U", VectorName("u64", lanes)}}));
}

std::string Prelude::Bits(const std::string& to, const std::string& from) {
  const std::string name = Cat(to, "_of_", from);
  return Define(name,
                Fill("FN $t $n($f x) {\n  $t bits;\n  __builtin_memcpy(&bits, &x, sizeof(x));\n"
                     "  return bits;\n}\n",
                     {{"t", to}, {"f", from}, {"n", name}}));
}

}  // namespace athanor::kir
