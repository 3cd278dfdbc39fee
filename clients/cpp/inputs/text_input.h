// Parses inputs given on a command line.
//
//   x=1,2,3          values; the dtype is the model's, a single free size follows from the count
//   x[2,2]=1,2,3,4   values with their shape
//   x=@image.npy     an .npy file
#ifndef ATHANOR_CLIENTS_CPP_INPUTS_TEXT_INPUT_H_
#define ATHANOR_CLIENTS_CPP_INPUTS_TEXT_INPUT_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "clients/cpp/client/tensor.h"
#include "proto/athanor/v1/model.pb.h"

namespace athanor::client {

// Returns the input's name and its tensor. INVALID_ARGUMENT names the input and what would be
// right.
absl::StatusOr<std::pair<std::string, Tensor>> ParseInput(absl::string_view text,
                                                          const v1::Model& model);

// "digits", "digits/2", "org/digits" or "org/digits/2": digits after the last slash are a version.
struct ModelName {
  std::string name, version;
};
ModelName ParseModelName(const std::string& text);

// Returns the bytes of a file. NOT_FOUND, PERMISSION_DENIED and other errors name the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);
absl::Status WriteFile(const std::string& path, absl::string_view bytes);

}  // namespace athanor::client

#endif  // ATHANOR_CLIENTS_CPP_INPUTS_TEXT_INPUT_H_
