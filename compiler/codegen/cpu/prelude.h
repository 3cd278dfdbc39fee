// C types and helper functions of CPU kernels. Whoever spells a call defines the helper behind it;
// its text, after those of the helpers it calls, is then part of the kernel, once.
//
//   Prelude prelude(CpuFeatures::Of(target));
//   const std::string twice =
//       prelude.Define("twice_f32", "FN $T $n($T x) {\n  return x + x;\n}\n", {{"T", "f32"}});
//   const std::string call = Call(twice, {"v3"});  // "twice_f32(v3)"
//   text = prelude.text() + kernel;
//
// C types are named by element (compiler/codegen/print/spelling.h) and lanes: f32, i64, f32x16,
// u16x8. Element types of memory end in "u": they may lie at any address. A bool is an i32: 0 or 1,
// in vectors (masks) 0 or -1, as comparisons of f32 return and selections take.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_PRELUDE_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_PRELUDE_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/kir/kir.h"
#include "compiler/codegen/print/c_text.h"
#include "compiler/codegen/print/spelling.h"
#include "proto/athanor/v1/target.pb.h"

namespace athanor::kir {

// Properties of a target that decide how a kernel is written.
struct CpuFeatures {
  int vector_bytes = 16;  // of the widest register to use
  bool x86 = false, sse41 = false, avx2 = false, fma = false;
  bool avx512f = false, avx512vl = false, avx512bw = false;
  bool libmvec = false;  // glibc's vector math for x86-64

  static CpuFeatures Of(const v1::Target& target);
};

// Returns "f32x16" for "f32", 16; one lane is the element itself.
std::string VectorName(const std::string& element, int lanes);
int ElementBits(const std::string& element);
// Return the integer element of the same width.
std::string SignedOf(const std::string& element);
std::string UnsignedOf(const std::string& element);

// Converts the values of `x` to another element.
std::string Convert(const std::string& to, int lanes, const std::string& x);
// Converts a comparison's result with lanes of `bits` to a bool register, and back.
std::string AsBool(int bits, int lanes, const std::string& comparison);
std::string AsMask(int bits, int lanes, const std::string& condition);
// Returns "0, 1, 2" for 3.
std::string Numbers(int n);

class Prelude {
 public:
  // Blanks of a helper's text: each "$name" becomes the value, one after another, so that a value
  // may have blanks that later ones fill.
  using Blanks = std::vector<std::pair<std::string, std::string>>;

  explicit Prelude(const CpuFeatures& features) : features_(features) {}

  // Adds a helper unless there is one called `name`, and returns the name, which fills "$n" and
  // must identify everything that the text depends on.
  std::string Define(const std::string& name, std::string text, const Blanks& blanks = {});
  const CpuFeatures& features() const { return features_; }
  const std::string& text() const { return text_; }

 private:
  const CpuFeatures features_;
  std::set<std::string> names_;
  std::string text_;
};

// Returns all typedefs that `text` needs, found by scanning it for their names.
std::string Typedefs(const std::string& text);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_PRELUDE_H_
