// Elements of tensors as JSON has them, and as bytes: dense, row-major, little-endian.
//
//   std::string raw;
//   RETURN_IF_ERROR(ReadElements(*FindDatatype("FP32"), data, /*elements=*/4, &raw));
//   WriteElements(*FindDatatype("FP32"), raw, &text);    // "[1,2.5,3,4]"
//
// Pure functions.
#ifndef ATHANOR_SERVER_REST_TENSOR_JSON_H_
#define ATHANOR_SERVER_REST_TENSOR_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "compiler/frontend/datatype.h"
#include "server/http/json_body.h"

namespace athanor {

// Reports whether JSON can hold the datatype's elements: not FP16 and BF16, as in Triton.
bool HasJsonForm(const DatatypeRow& datatype);

// Adds the elements of `data` to `raw`: a list of them, or of lists inside each other, read in
// their order. INVALID_ARGUMENT says which element is wrong, or that there are not `elements` of
// them; then `raw` may have some of them. REQUIRES: HasJsonForm
absl::Status ReadElements(const DatatypeRow& datatype, const Json& data, int64_t elements,
                          std::string* raw);

// Returns an upper bound on the bytes that WriteElements adds.
int64_t MostElementBytes(const DatatypeRow& datatype, int64_t elements);
// Adds a flat list of the elements to `text`. What is no number is NaN, Infinity or -Infinity, as
// Triton has it, which is no JSON. REQUIRES: HasJsonForm; `raw` has whole elements.
void WriteElements(const DatatypeRow& datatype, std::string_view raw, std::string* text);

}  // namespace athanor

#endif  // ATHANOR_SERVER_REST_TENSOR_JSON_H_
