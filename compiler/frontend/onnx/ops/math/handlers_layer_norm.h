// Normalisations over the last axes, shared by ONNX's and com.microsoft's ops.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_LAYER_NORM_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_LAYER_NORM_H_

#include <vector>

#include "absl/status/status.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// Moments over axes that are kept with size 1; the variance is the population's. x is f32 or f64.
struct Moments {
  Value mean, difference, variance;
};
Moments MomentsOf(OpBuilder& b, const Value& x, const std::vector<int>& axes);
Value InverseRoot(OpBuilder& b, const Value& variance, double epsilon);  // 1 / sqrt(v + epsilon)
// Returns 1 / sqrt(mean(x^2) + epsilon) over the axes from `axis` on, which are kept.
Value InverseRms(OpBuilder& b, const Value& x, int axis, double epsilon);

// Normalises over the axes from `axis` on, in x's type. Uses the LayerNorm op if scale and bias
// have exactly those axes, otherwise its parts, with both broadcast. `bias` may be null.
Value LayerNormOf(OpBuilder& b, const Value& x, const Value& scale, const Value* bias, int axis,
                  double epsilon);
// Same for RMS normalisation; the result has scale's type.
Value RmsNormOf(OpBuilder& b, const Value& x, const Value& scale, int axis, double epsilon);

absl::Status LayerNormalization(HandlerContext& c);  // since 1 (com.microsoft), 17
absl::Status RmsNormalization(HandlerContext& c);    // since 23

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_LAYER_NORM_H_
