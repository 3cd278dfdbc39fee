// Layout of elements in TensorProto's fields, shared by describing a tensor and reading its bytes.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_INTERNAL_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_INTERNAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/frontend/elem_type.h"

namespace athanor::onnx {

// Returns the field's name: "int32_data" for 5.
std::string PayloadFieldName(uint32_t number);
// Reports whether several elements share a byte. Elements of less than a byte do, in typed data
// too, except those of 6 bits.
bool IsPacked(Elem elem, uint32_t field);
// True for int32_data, int64_data and uint64_data.
bool IsVarints(uint32_t field);
int64_t PackedBytes(Elem elem, int64_t elements);
// Returns the number of values in a field of this number: bytes of raw data, else elements or
// packed bytes.
int64_t UnitsOf(Elem elem, int64_t elements, uint32_t field);
// Returns the element that a varint stands for, or the byte of packed elements; nullopt if it does
// not fit. Signed types are sign-extended; floats are given by their bits.
std::optional<uint64_t> Narrowed(Elem elem, uint32_t field, uint64_t value);
void AppendLow(uint64_t value, int bytes, std::string* out);  // little-endian
// Unpacks elements, from the lowest bit of the first byte up, into one byte each.
std::string Unpacked(Elem elem, int64_t elements, std::string_view packed);
// Returns INVALID_ARGUMENT if the elements are bools and one is neither 0 nor 1.
absl::Status CheckBools(Elem elem, std::string_view bytes);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_INTERNAL_H_
