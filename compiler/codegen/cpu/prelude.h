// C helper functions of CPU kernels. A dialect asks for a helper by its purpose and gets the name
// to call; the helper, with those it needs, is then part of the kernel's text, once.
//
//   Prelude prelude(CpuFeatures::Of(target));
//   std::string call = Cat(prelude.Math(exp, "f32", 16), "(v3)");   // "exp_f32x16(v3)"
//   text = prelude.Text() + kernel;
//
// C types are named by element and lanes: f32, i64, f32x16, u16x8. Masks are i32 vectors of 0 and
// -1; a scalar bool is an i32 of 0 or 1. Element types of memory end in "u": they may lie at any
// address.
#ifndef ATHANOR_COMPILER_CODEGEN_CPU_PRELUDE_H_
#define ATHANOR_COMPILER_CODEGEN_CPU_PRELUDE_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/kir.h"
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
// Replaces "$x" for each pair, which keeps C templates readable.
std::string Fill(std::string text, const std::vector<std::pair<std::string, std::string>>& values);

class Prelude {
 public:
  explicit Prelude(const CpuFeatures& features) : features_(features) {}

  // Each function returns the helper's name. The comments give its signature in C, where T is f32xN
  // and so on.

  // T(T x) or, for kPow and kMod, T(T a, T b); element f32 or f64.
  std::string Math(Op op, const std::string& element, int lanes);
  // T(T a, T b): kMin and kMax of floats, NaN from either side.
  std::string Extreme(Op op, const std::string& element, int lanes);
  // T(T a, T b): kTruncDiv, kFloorDiv and kMod of integers.
  std::string Divide(Op op, const std::string& element, int lanes);
  // i64(i64 a, i64 b), b > 0.
  std::string FloorDivide(int lanes);

  // The library's product of f32 or f64 matrices: CpuGemm of runtime/kernel_abi.h.
  std::string Gemm(DType dtype);

  // void(key* keys, place* places, key*, place*, i64 n): kir::Opcode::kSort.
  std::string Sort(const std::string& key, const std::string& place);

  // u16 bits of f16 or bf16, u8 bits of f8 to f32 and back, rounding to nearest even.
  std::string Widen(DType dtype, int lanes);
  std::string Narrow(DType dtype, int lanes);
  // f32(f64), rounded to odd if inexact: rounding the result to a narrower dtype then gives the
  // same as rounding once (Boldo and Melquiond, 2008).
  std::string OddF32(int lanes);
  // f32(integer) for a later Narrow to `dtype`.
  std::string IntegerToF32(const std::string& element, DType dtype, int lanes);
  // Saturating float to integer, NaN to 0.
  std::string Saturate(const std::string& from, const std::string& to, int lanes);
  // u16(u16 a, u16 b, u16 c): a * b + c rounded once.
  std::string NarrowFma(DType dtype, int lanes);

  // T(const Tu* p, i64 n): lanes below n, zero elsewhere; and void(Tu* p, T x, i64 n).
  std::string LoadCount(const std::string& element, int lanes);
  std::string StoreCount(const std::string& element, int lanes);
  // T(const Tu* p, i32xN mask); and void(Tu* p, T x, i32xN mask).
  std::string LoadMask(const std::string& element, int lanes);
  std::string StoreMask(const std::string& element, int lanes);
  // T(const Tu* p, i64 stride) and T(const Tu* p, i64xN index); `masked` ones take a mask after
  // that. Stores take the value after p.
  std::string Gather(const std::string& element, int lanes, bool strided, bool masked);
  // T(const Tu* p) or T(const Tu* p, i32xN mask): lane l is p[l * step]. Reads whole vectors, none
  // of which begins before the first or ends behind the last lane's element.
  static constexpr int kMostStep = 4;
  std::string Every(const std::string& element, int lanes, int step, bool masked);
  std::string Scatter(const std::string& element, int lanes, bool strided, bool masked);

  // i32xN(i64 n): lane < n.
  std::string LaneMask(int lanes);
  // i32(i32xN): true if any lane is set.
  std::string AnyLane(int lanes);
  // i32xN(KernelError*, i64 item, index, extent, active).
  std::string CheckIndex(int lanes);
  // u32(i64 index, u64 seed).
  std::string RandomBits(int lanes);
  // U(T): the same bits of a scalar, both of one width.
  std::string Bits(const std::string& to, const std::string& from);

  // A helper of the caller's own; `name` must identify everything that `text` depends on.
  std::string Define(const std::string& name, const std::string& text);
  bool Has(const std::string& name) const { return names_.contains(name); }
  const std::string& text() const { return text_; }

 private:
  std::string Halves(const std::string& name, const std::string& half, const std::string& type,
                     int lanes, bool two);
  std::string LaneByLane(const std::string& name, const std::string& scalar,
                         const std::string& element, int lanes, bool two);
  std::string VectorMath(Op op, const std::string& element, int lanes);
  std::string InlineMath(Op op, int lanes);
  // Reports whether masked moves exist for vectors of so many lanes of `element`.
  bool NativeMask(const std::string& element, int lanes) const;
  // The same bits in a scalar or vector of 32 bits per lane.
  std::string Reinterpret(int lanes, const std::string& to, const std::string& from,
                          const std::string& x);
  std::string MaskBits(int lanes);
  std::string CountBits(int lanes);

  CpuFeatures features_;
  std::set<std::string> names_;
  std::string text_;
};

// Returns all typedefs that `text` needs, found by scanning it for their names.
std::string Typedefs(const std::string& text);

}  // namespace athanor::kir

#endif  // ATHANOR_COMPILER_CODEGEN_CPU_PRELUDE_H_
