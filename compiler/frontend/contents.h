// Reads the elements of an input tensor from the fields of InferTensorContents.
//
//   std::vector<std::unique_ptr<char[]>> owned;
//   ContentsBytes(tensor.contents(), *FindDatatype("INT8"), /*elements=*/4, &owned)   // 4 bytes
#ifndef ATHANOR_COMPILER_FRONTEND_CONTENTS_H_
#define ATHANOR_COMPILER_FRONTEND_CONTENTS_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/frontend/datatype.h"
#include "proto/inference/open_inference_grpc.pb.h"

namespace athanor {

bool HasContents(const inference::InferTensorContents& contents);

// Returns the bytes of exactly `elements` elements. If the field has the datatype's own width, they
// view the message; INT8, INT16, UINT8 and UINT16 are narrowed into a buffer added to `owned`.
// INVALID_ARGUMENT: another field is filled, the number of elements is not `elements`, a value does
// not fit its narrow type, or the datatype can only be sent raw.
absl::StatusOr<std::string_view> ContentsBytes(const inference::InferTensorContents& contents,
                                               const DatatypeRow& datatype, int64_t elements,
                                               std::vector<std::unique_ptr<char[]>>* owned);

}  // namespace athanor

#endif  // ATHANOR_COMPILER_FRONTEND_CONTENTS_H_
