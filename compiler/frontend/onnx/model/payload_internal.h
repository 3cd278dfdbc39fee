// What describing a tensor and reading its bytes share: how elements lie in each of TensorProto's
// fields.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_INTERNAL_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_INTERNAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/frontend/elem_type.h"

namespace athanor::onnx {

// "int32_data" of 5.
std::string PayloadFieldName(uint32_t number);
// Elements of less than a byte lie several in one, in typed data too but for those of 6 bits.
bool IsPacked(Elem elem, uint32_t field);
// int32_data, int64_data, uint64_data.
bool IsVarints(uint32_t field);
int64_t PackedBytes(Elem elem, int64_t elements);
// How many values a field of this number holds: bytes of raw data, else elements or packed bytes.
int64_t UnitsOf(Elem elem, int64_t elements, uint32_t field);
// A varint as the element it stands for, or as a byte of packed ones; nullopt where it does not
// fit. Signed types have their sign extended, floats are their bits.
std::optional<uint64_t> Narrowed(Elem elem, uint32_t field, uint64_t value);
void AppendLow(uint64_t value, int bytes, std::string* out);  // little-endian
// Packed elements, from the lowest bit of the first byte up, as one byte each.
std::string Unpacked(Elem elem, int64_t elements, std::string_view packed);
// INVALID_ARGUMENT if these are bools and one is neither 0 nor 1.
absl::Status CheckBools(Elem elem, std::string_view bytes);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_MODEL_PAYLOAD_INTERNAL_H_
