// Table of the element types of tensors; everything else is derived from it.
//
//   DTypeName(DType::kF32) == "f32"; DTypeBytes(DType::kF32) == 4;
//   ParseDType("bf16") == DType::kBF16; AccumulatorOf(DType::kBF16) == DType::kF32;
//
// `computes` is true if the dtype has arithmetic. The f8 types are storage: only Cast, Bitcast and
// movement take them.
#ifndef ATHANOR_COMPILER_IR_VALUE_DTYPE_H_
#define ATHANOR_COMPILER_IR_VALUE_DTYPE_H_

#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace athanor {

enum class DTypeKind : uint8_t { kBool, kSigned, kUnsigned, kFloat };

//  enum     name      bytes  kind       computes
#define ATHANOR_DTYPES(X)                \
  X(kBool, "bool", 1, kBool, true)       \
  X(kI8, "i8", 1, kSigned, true)         \
  X(kU8, "u8", 1, kUnsigned, true)       \
  X(kI16, "i16", 2, kSigned, true)       \
  X(kU16, "u16", 2, kUnsigned, true)     \
  X(kI32, "i32", 4, kSigned, true)       \
  X(kU32, "u32", 4, kUnsigned, true)     \
  X(kI64, "i64", 8, kSigned, true)       \
  X(kU64, "u64", 8, kUnsigned, true)     \
  X(kF16, "f16", 2, kFloat, true)        \
  X(kBF16, "bf16", 2, kFloat, true)      \
  X(kF32, "f32", 4, kFloat, true)        \
  X(kF64, "f64", 8, kFloat, true)        \
  X(kF8E4M3, "f8e4m3", 1, kFloat, false) \
  X(kF8E5M2, "f8e5m2", 1, kFloat, false) \
  X(kF8E8M0, "f8e8m0", 1, kFloat, false)

enum class DType : uint8_t {
#define ATHANOR_X(e, n, b, k, c) e,
  ATHANOR_DTYPES(ATHANOR_X)
#undef ATHANOR_X
};

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bytes;
  DTypeKind kind;
  bool computes;
};

inline constexpr DTypeRow kDTypes[] = {
#define ATHANOR_X(e, n, b, k, c) {DType::e, n, b, DTypeKind::k, c},
    ATHANOR_DTYPES(ATHANOR_X)
#undef ATHANOR_X
};

constexpr const DTypeRow& DTypeInfo(DType t) { return kDTypes[static_cast<int>(t)]; }
constexpr std::string_view DTypeName(DType t) { return DTypeInfo(t).name; }
constexpr int DTypeBytes(DType t) { return DTypeInfo(t).bytes; }
constexpr bool IsFloat(DType t) { return DTypeInfo(t).kind == DTypeKind::kFloat; }
constexpr bool IsSigned(DType t) { return DTypeInfo(t).kind == DTypeKind::kSigned; }
constexpr bool IsUnsigned(DType t) { return DTypeInfo(t).kind == DTypeKind::kUnsigned; }
constexpr bool IsInteger(DType t) { return IsSigned(t) || IsUnsigned(t); }
constexpr bool Computes(DType t) { return DTypeInfo(t).computes; }

constexpr std::optional<DType> ParseDType(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

// Returns the dtype in which sums and contractions of `t` accumulate: f32 for f16 and bf16,
// otherwise `t` itself (integers wrap, so a wider accumulator would change nothing).
constexpr DType AccumulatorOf(DType t) {
  return t == DType::kF16 || t == DType::kBF16 ? DType::kF32 : t;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_IR_VALUE_DTYPE_H_
