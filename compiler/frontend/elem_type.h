// Table of ONNX's element types and of the dtype that carries each in our graphs and in requests.
//
//   ElemOf(10) == Elem::kFloat16;  Row(Elem::kInt4).carrier == DType::kI8
//   Row(Elem::kFloat8E4M3FNUZ).carry == Carry::kCode    // u8: only casts know what a code means
//
// Types that neither our graphs nor the protocol have are never converted silently. An input or
// output of such a type is declared with its carrier, and its `element` names the meaning of the
// carrier's values.
#ifndef ATHANOR_COMPILER_FRONTEND_ELEM_TYPE_H_
#define ATHANOR_COMPILER_FRONTEND_ELEM_TYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "compiler/ir/value/dtype.h"

namespace athanor::onnx {

enum class Carry : uint8_t {
  kSame,    // our dtype is the same type
  kBits,    // our dtype is the type, but cannot be sent: requests carry its bits as u8
  kCode,    // u8 codes; Cast, QuantizeLinear and DequantizeLinear encode and decode them
  kNarrow,  // values of a wider integer, all within [low, high]
  kNone,    // refused by name
};

//  enum, TensorProto.DataType, name as in the schemas, carrier, carry, bits, low, high
#define ATHANOR_ONNX_ELEMS(X)                                     \
  X(kFloat, 1, "float", kF32, kSame, 32, 0, 0)                    \
  X(kUInt8, 2, "uint8", kU8, kSame, 8, 0, 0)                      \
  X(kInt8, 3, "int8", kI8, kSame, 8, 0, 0)                        \
  X(kUInt16, 4, "uint16", kU16, kSame, 16, 0, 0)                  \
  X(kInt16, 5, "int16", kI16, kSame, 16, 0, 0)                    \
  X(kInt32, 6, "int32", kI32, kSame, 32, 0, 0)                    \
  X(kInt64, 7, "int64", kI64, kSame, 64, 0, 0)                    \
  X(kString, 8, "string", kU8, kNone, 0, 0, 0)                    \
  X(kBool, 9, "bool", kBool, kSame, 8, 0, 0)                      \
  X(kFloat16, 10, "float16", kF16, kSame, 16, 0, 0)               \
  X(kDouble, 11, "double", kF64, kSame, 64, 0, 0)                 \
  X(kUInt32, 12, "uint32", kU32, kSame, 32, 0, 0)                 \
  X(kUInt64, 13, "uint64", kU64, kSame, 64, 0, 0)                 \
  X(kComplex64, 14, "complex64", kU8, kNone, 64, 0, 0)            \
  X(kComplex128, 15, "complex128", kU8, kNone, 128, 0, 0)         \
  X(kBFloat16, 16, "bfloat16", kBF16, kSame, 16, 0, 0)            \
  X(kFloat8E4M3FN, 17, "float8e4m3fn", kF8E4M3, kBits, 8, 0, 0)   \
  X(kFloat8E4M3FNUZ, 18, "float8e4m3fnuz", kU8, kCode, 8, 0, 255) \
  X(kFloat8E5M2, 19, "float8e5m2", kF8E5M2, kBits, 8, 0, 0)       \
  X(kFloat8E5M2FNUZ, 20, "float8e5m2fnuz", kU8, kCode, 8, 0, 255) \
  X(kUInt4, 21, "uint4", kU8, kNarrow, 4, 0, 15)                  \
  X(kInt4, 22, "int4", kI8, kNarrow, 4, -8, 7)                    \
  X(kFloat4E2M1, 23, "float4e2m1", kU8, kCode, 4, 0, 15)          \
  X(kFloat8E8M0, 24, "float8e8m0", kF8E8M0, kBits, 8, 0, 0)       \
  X(kUInt2, 25, "uint2", kU8, kNarrow, 2, 0, 3)                   \
  X(kInt2, 26, "int2", kI8, kNarrow, 2, -2, 1)                    \
  X(kFloat6E2M3, 27, "float6e2m3", kU8, kCode, 6, 0, 63)          \
  X(kFloat6E3M2, 28, "float6e3m2", kU8, kCode, 6, 0, 63)

enum class Elem : uint8_t {
#define ATHANOR_X(e, number, name, carrier, carry, bits, low, high) e,
  ATHANOR_ONNX_ELEMS(ATHANOR_X)
#undef ATHANOR_X
};

struct ElemRow {
  Elem elem;
  int32_t number;         // value in TensorProto.DataType
  std::string_view name;  // also the `element` of inputs and outputs; kSame types have none
  DType carrier;          // dtype in graphs
  Carry carry;
  int bits;       // bits of one element in raw_data; below 8, packed from the lowest bits up
  int low, high;  // range of the carrier's values, for kCode and kNarrow
};

inline constexpr ElemRow kElems[] = {
#define ATHANOR_X(e, number, name, carrier, carry, bits, low, high) \
  {Elem::e, number, name, DType::carrier, Carry::carry, bits, low, high},
    ATHANOR_ONNX_ELEMS(ATHANOR_X)
#undef ATHANOR_X
};

constexpr const ElemRow& Row(Elem e) { return kElems[static_cast<int>(e)]; }
constexpr DType CarrierOf(Elem e) { return Row(e).carrier; }
constexpr std::string_view ElemName(Elem e) { return Row(e).name; }
// Returns the dtype in requests: u8 for kBits and kCode, otherwise the carrier.
constexpr DType WireOf(Elem e) {
  return Row(e).carry == Carry::kBits ? DType::kU8 : Row(e).carrier;
}
constexpr std::optional<Elem> ElemOf(int64_t number) {
  for (const ElemRow& row : kElems) {
    if (row.number == number) return row.elem;
  }
  return std::nullopt;
}
// Returns the ONNX type of one of our dtypes.
constexpr Elem ElemOf(DType dtype) {
  for (const ElemRow& row : kElems) {
    const bool same = row.carry == Carry::kSame || row.carry == Carry::kBits;
    if (same && row.carrier == dtype) return row.elem;
  }
  return Elem::kFloat;
}

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ELEM_TYPE_H_
