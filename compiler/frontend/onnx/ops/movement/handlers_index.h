// Handlers of the index family that are defined in other files.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_INDEX_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_INDEX_H_

#include "absl/status/status.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// handlers_index_counted.cc: ops on known contents
absl::Status NonZero9(HandlerContext& c);
absl::Status Unique11(HandlerContext& c);
absl::Status NonMaxSuppression10(HandlerContext& c);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_INDEX_H_
