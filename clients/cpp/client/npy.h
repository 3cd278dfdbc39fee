// Reads and writes numpy's .npy files that hold one array of plain numbers. Refuses an array that
// needs pickle or a copy into another order, with a message that says how to save it instead.
//
//   absl::StatusOr<Tensor> image = ParseNpy(bytes, "f32");
//   std::string file = FormatNpy(tensor);
#ifndef ATHANOR_CLIENTS_CPP_CLIENT_NPY_H_
#define ATHANOR_CLIENTS_CPP_CLIENT_NPY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "clients/cpp/client/tensor.h"

namespace athanor::client {

// Parses an array of the wanted `dtype`; refuses one of another dtype rather than convert it. numpy
// lacks bf16: its elements are two plain bytes (`V2`, as ml_dtypes saves them) or `u2`.
absl::StatusOr<Tensor> ParseNpy(absl::string_view file, absl::string_view dtype);

// Returns the tensor as an .npy file. REQUIRES: CheckTensor(tensor) is OK.
std::string FormatNpy(const Tensor& tensor);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_CLIENT_NPY_H_
