// Handlers of the movement family that are defined in other files.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_MOVEMENT_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_MOVEMENT_H_

#include "absl/status/status.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// handlers_movement_slice.cc: slices, splits and concatenations
absl::Status Slice1(HandlerContext& c);
absl::Status Slice10(HandlerContext& c);
absl::Status Split2(HandlerContext& c);
absl::Status Split13(HandlerContext& c);
absl::Status Split18(HandlerContext& c);
absl::Status Concat1(HandlerContext& c);
absl::Status Expand8(HandlerContext& c);
absl::Status Tile6(HandlerContext& c);
absl::Status Trilu14(HandlerContext& c);
absl::Status ReverseSequence10(HandlerContext& c);

// handlers_movement_pad.cc: padding and blocks
absl::Status Pad2(HandlerContext& c);
absl::Status Pad11(HandlerContext& c);
absl::Status CenterCropPad18(HandlerContext& c);
absl::Status DepthToSpace1(HandlerContext& c);
absl::Status DepthToSpace11(HandlerContext& c);
absl::Status SpaceToDepth1(HandlerContext& c);
absl::Status SpaceToDepth28(HandlerContext& c);
absl::Status Col2Im18(HandlerContext& c);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MOVEMENT_HANDLERS_MOVEMENT_H_
