// A tensor on the client's side, and the dtypes as one table.
//
//   Tensor t{"f32", {2, 3}, std::string(24, '\0')};
//   CheckTensor(t);                         // bytes fit the shape
//   FindDType("f32")->datatype == "FP32";   // the protocol's name
//
// Plain data; functions are pure and thread-safe.
#ifndef ATHANOR_CLIENTS_CPP_TENSOR_H_
#define ATHANOR_CLIENTS_CPP_TENSOR_H_

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
  absl::string_view name;      // ours
  absl::string_view datatype;  // the protocol's
  absl::string_view npy;       // numpy's descr
  int bytes;
  NumberKind kind;
};

// Every dtype that can travel in a request.
absl::Span<const ClientDType> ClientDTypes();
const ClientDType* FindDType(absl::string_view name);         // by ours; null if there is none
const ClientDType* FindDatatype(absl::string_view datatype);  // by the protocol's

// Number of elements; INVALID_ARGUMENT for negative sizes and products beyond int64.
absl::StatusOr<int64_t> ElementCount(absl::Span<const int64_t> shape);
// Known dtype, and exactly the bytes that the shape needs.
absl::Status CheckTensor(const Tensor& tensor);

// "f32[2, 3]"
std::string TensorTypeText(absl::string_view dtype, absl::Span<const int64_t> shape);
// Element `i` as text that reads back as the same value: "1.5", "-3", "true", "nan".
std::string ElementText(const Tensor& tensor, int64_t i);
// Appends the number that `text` says to `tensor->bytes`. Floats round to nearest even; an integer
// outside its dtype is INVALID_ARGUMENT.
absl::Status AppendElement(absl::string_view text, Tensor* tensor);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_TENSOR_H_
