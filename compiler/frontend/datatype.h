// Table of the Open Inference Protocol's datatypes and our dtypes.
//
//   DatatypeOf(DType::kF32)->name == "FP32"
//   FindDatatype("INT8")->dtype == DType::kI8; FindDatatype("INT8")->contents == Contents::kInt
//
// The f8 types have no row: the protocol cannot carry them, so no input or output has one. BYTES
// has none either: it means strings, and our tensors hold no strings.
#ifndef ATHANOR_COMPILER_FRONTEND_DATATYPE_H_
#define ATHANOR_COMPILER_FRONTEND_DATATYPE_H_

#include <cstdint>
#include <string_view>

#include "compiler/ir/value/dtype.h"

namespace athanor {

// Field of InferTensorContents that holds a datatype's elements.
enum class Contents : uint8_t { kRawOnly, kBool, kInt, kInt64, kUint, kUint64, kFp32, kFp64 };

struct DatatypeRow {
  std::string_view name;
  DType dtype;
  Contents contents;
};

inline constexpr DatatypeRow kDatatypes[] = {
    {"BOOL", DType::kBool, Contents::kBool},    {"INT8", DType::kI8, Contents::kInt},
    {"INT16", DType::kI16, Contents::kInt},     {"INT32", DType::kI32, Contents::kInt},
    {"INT64", DType::kI64, Contents::kInt64},   {"UINT8", DType::kU8, Contents::kUint},
    {"UINT16", DType::kU16, Contents::kUint},   {"UINT32", DType::kU32, Contents::kUint},
    {"UINT64", DType::kU64, Contents::kUint64}, {"FP16", DType::kF16, Contents::kRawOnly},
    {"BF16", DType::kBF16, Contents::kRawOnly}, {"FP32", DType::kF32, Contents::kFp32},
    {"FP64", DType::kF64, Contents::kFp64},
};

// Returns nullptr if there is no row.
constexpr const DatatypeRow* FindDatatype(std::string_view name) {
  for (const DatatypeRow& row : kDatatypes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}
constexpr const DatatypeRow* DatatypeOf(DType dtype) {
  for (const DatatypeRow& row : kDatatypes) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

// Returns the field's name, such as "fp32_contents"; "raw_input_contents" for kRawOnly.
constexpr std::string_view ContentsField(Contents contents) {
  switch (contents) {
    case Contents::kRawOnly:
      return "raw_input_contents";
    case Contents::kBool:
      return "bool_contents";
    case Contents::kInt:
      return "int_contents";
    case Contents::kInt64:
      return "int64_contents";
    case Contents::kUint:
      return "uint_contents";
    case Contents::kUint64:
      return "uint64_contents";
    case Contents::kFp32:
      return "fp32_contents";
    case Contents::kFp64:
      return "fp64_contents";
  }
  return "";
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_DATATYPE_H_
