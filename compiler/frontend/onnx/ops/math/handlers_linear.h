// Handlers of the linear family that are defined in other files.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_LINEAR_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_LINEAR_H_

#include "absl/status/status.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

absl::Status Einsum12(HandlerContext& c);  // handlers_linear_einsum.cc

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_LINEAR_H_
