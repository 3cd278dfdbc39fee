// Helpers that the handlers of windows share. Private to handlers_window*.cc.
//
// Conv and Pool take a window's geometry as attributes. Results that these ops do not give
// (positions of maxima, sums of powers) are built from the same windows as index maps.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_WINDOW_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_WINDOW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/build_window.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// Returns the sizes behind [N, C]. INVALID_ARGUMENT names `what` if there are none.
absl::StatusOr<Shape> SpatialSizes(std::string_view what, const Value& x);
// Returns an integer list attribute; empty if the node does not have it.
std::vector<int64_t> IntsOrNone(const HandlerContext& c, std::string_view name);
// Reads strides, dilations (which a version may lack), pads, auto_pad and ceil_mode of the node.
absl::StatusOr<Window> NodeWindow(const HandlerContext& c, const Shape& sizes,
                                  std::vector<int64_t> kernel, bool dilated, bool ceil_mode);
// Returns the geometry as attributes of Conv and Pool.
Attrs WindowAttrs(const Window& w);

// Handlers of the family that are defined in other files.
absl::Status Conv(HandlerContext& c);
absl::Status ConvTranspose(HandlerContext& c);
absl::Status ConvInteger(HandlerContext& c);
absl::Status QLinearConv(HandlerContext& c);
absl::Status DeformConv(HandlerContext& c);
absl::Status CausalConvWithState(HandlerContext& c);
absl::Status MaxPool1(HandlerContext& c);  // without dilations and ceil_mode
absl::Status MaxPool10(HandlerContext& c);
absl::Status AveragePool1(HandlerContext& c);  // padding never counts
absl::Status AveragePool7(HandlerContext& c);
absl::Status AveragePool10(HandlerContext& c);  // ceil_mode
absl::Status AveragePool19(HandlerContext& c);  // dilations
absl::Status LpPool2(HandlerContext& c);
absl::Status LpPool18(HandlerContext& c);  // dilations and ceil_mode
absl::Status GlobalAveragePool(HandlerContext& c);
// Returns means of windows of x, [N, C, sizes..], by the node's attributes, without dilations.
absl::StatusOr<Value> MeansOfWindows(HandlerContext& c, const Value& x);
absl::Status GlobalMaxPool(HandlerContext& c);
absl::Status GlobalLpPool(HandlerContext& c);
absl::Status MaxUnpool(HandlerContext& c);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_NETWORKS_HANDLERS_WINDOW_H_
