// A tensor on the client's side, and the table of dtypes.
//
//   Tensor t{"f32", {2, 3}, std::string(24, '\0')};
//   CheckTensor(t);                         // bytes fit the shape
//   FindDType("f32")->datatype == "FP32";   // the protocol's name
//
// Plain data; functions are pure and thread-safe.
#ifndef ATHANOR_CLIENTS_CPP_CLIENT_TENSOR_H_
#define ATHANOR_CLIENTS_CPP_CLIENT_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor::client {

struct Tensor {
  std::string dtype;  // "f32"
  std::vector<int64_t> shape;
  std::string bytes;  // dense, row-major, little-endian
};

enum class NumberKind : uint8_t { kBool, kSigned, kUnsigned, kFloat };

struct ClientDType {
  absl::string_view name;      // Athanor's name
  absl::string_view datatype;  // the protocol's name
  absl::string_view npy;       // numpy's descr
  int bytes;
  NumberKind kind;
};

// Returns every dtype that can be sent in a request.
absl::Span<const ClientDType> ClientDTypes();
const ClientDType* FindDType(absl::string_view name);  // by Athanor's name; null if there is none
const ClientDType* FindDatatype(
    absl::string_view datatype);  // by the protocol's name; null if there is none

// Returns the number of elements. INVALID_ARGUMENT for negative sizes and for products beyond
// int64.
absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape);
// Checks that the dtype is known and that the bytes are exactly as many as the shape needs.
absl::Status CheckTensor(const Tensor& tensor);

// Formats a type: "f32[2, 3]".
std::string TensorTypeText(absl::string_view dtype, absl::Span<const int64_t> shape);
// Returns element `i` as text that parses back to the same value: "1.5", "-3", "true", "nan".
std::string ElementText(const Tensor& tensor, int64_t i);
// Parses `text` as a number and appends it to `tensor->bytes`. Floats round to nearest even; an
// integer out of the dtype's range is INVALID_ARGUMENT.
absl::Status AppendElement(absl::string_view text, Tensor* tensor);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_CLIENT_TENSOR_H_
