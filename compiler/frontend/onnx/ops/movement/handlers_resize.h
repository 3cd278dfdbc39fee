// Handlers of the resize family that are defined in other files.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_RESIZE_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_RESIZE_H_

#include "absl/status/status.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// handlers_resize_sample.cc: sampling at computed positions
absl::Status GridSample16(HandlerContext& c);
absl::Status GridSample20(HandlerContext& c);
absl::Status AffineGrid20(HandlerContext& c);
// handlers_resize_roi.cc: pooling over regions
absl::Status RoiAlign10(HandlerContext& c);
absl::Status RoiAlign16(HandlerContext& c);
absl::Status MaxRoiPool1(HandlerContext& c);

// Returns Keys' cubic convolution kernel with coefficient `a` at |distance|; 0 from distance 2 on
// (R. Keys, "Cubic convolution interpolation for digital image processing", 1981).
Value CubicWeight(OpBuilder& b, const Value& distance, double a);
// Returns the type that interpolation computes in: f64 for types that f32 cannot hold.
Elem InterpolationElem(Elem elem);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_RESIZE_H_
