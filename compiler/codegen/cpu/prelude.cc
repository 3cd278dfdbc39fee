#include "compiler/codegen/cpu/prelude.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_replace.h"
#include "compiler/ir/value/message.h"

namespace athanor::kir {
namespace {

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

std::string Convert(const std::string& to, int lanes, const std::string& x) {
  if (lanes == 1) return Cat("(", to, ")(", x, ")");
  return Call("__builtin_convertvector", {x, VectorName(to, lanes)});
}

std::string AsBool(int bits, int lanes, const std::string& comparison) {
  if (lanes == 1) return comparison;
  const std::string mask = Cat("(i", bits, "x", lanes, ")", comparison);
  return bits == 32 ? mask : Convert("i32", lanes, mask);
}

std::string AsMask(int bits, int lanes, const std::string& condition) {
  return lanes == 1 || bits == 32 ? condition : Convert(Cat("i", bits), lanes, condition);
}

std::string Numbers(int n) {
  return List(n, [](int i) { return Cat(i); });
}

std::string Prelude::Define(const std::string& name, std::string text, const Blanks& blanks) {
  if (!names_.insert(name).second) return name;
  for (const auto& [blank, value] : blanks) {
    absl::StrReplaceAll({{Cat("$", blank), value}}, &text);
  }
  absl::StrReplaceAll({{"$n", name}}, &text);
  text_ += text;
  return name;
}

std::string Typedefs(const std::string& text) {
  absl::flat_hash_set<std::string_view> used;
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
    used.insert(std::string_view(text).substr(i, end - i));
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

}  // namespace athanor::kir
