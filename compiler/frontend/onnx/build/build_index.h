// Gathering and scattering. Our ops move whole slices along one axis by indices from 0; ONNX's
// indices may also count from the end and select single elements. Any other index outside is an
// error of the request.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_INDEX_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_INDEX_H_

#include <string_view>

#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/build.h"

namespace athanor::onnx {

Value Gather(OpBuilder& b, const Value& data, const Value& indices, int axis);
// Returns result[i, s] = data[at[0][i], at[1][i], ..., s]: `at` has one value of indices per
// leading axis of data, all of one shape; the other axes are copied whole.
Value GatherAt(OpBuilder& b, const Value& data, absl::Span<const Value> at);
Value ScatterAt(OpBuilder& b, const Value& data, absl::Span<const Value> at, const Value& updates,
                std::string_view mode);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_INDEX_H_
