// numpy's .npy files: one array of plain numbers. What would need pickle or a copy in another order
// is refused with a message that says how to save it instead.
//
//   absl::StatusOr<Tensor> image = ParseNpy(bytes, "f32");
//   std::string file = FormatNpy(tensor);
#ifndef ATHANOR_CLIENTS_CPP_NPY_H_
#define ATHANOR_CLIENTS_CPP_NPY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "clients/cpp/tensor.h"

namespace athanor::client {

// `dtype` is the one that is wanted; an array of another is refused, never converted. For bf16,
// which numpy lacks, the elements are two plain bytes (`V2`, as ml_dtypes saves it) or `u2`.
absl::StatusOr<Tensor> ParseNpy(absl::string_view file, absl::string_view dtype);

// REQUIRES: CheckTensor(tensor) is OK.
std::string FormatNpy(const Tensor& tensor);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_NPY_H_
