// Arithmetic on known values: the chains by which exporters compute shapes (Shape, Gather, Concat,
// Div, ...) become expressions over dims, without any nodes.
//
//   std::optional<std::vector<Value>> v = ComputeKnown(call, bounds);   // Gather of Shape: {b}
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_KNOWN_SIZES_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_KNOWN_SIZES_H_

#include <optional>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "compiler/frontend/onnx/model/value.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// Computes the results of a call as known values without nodes. Returns nullopt if the op is not
// one of KnownOps() or a result is not known exactly: an undecided comparison, a division whose
// sign is not proved, int64 overflow, an operand or a result of more than `most` elements. Shape
// and Size do not need the contents of their operand; every other op needs those of all operands.
// Never fails: the handler computes what this function does not.
std::optional<std::vector<Value>> ComputeKnown(const HandlerContext& call, const Bounds& bounds,
                                               int64_t most = kMaxKnownElements);

// Returns the ops that ComputeKnown handles, for tests: Constant Shape Size ConstantOfShape
// Identity Cast CastLike Gather Slice Concat Split Squeeze Unsqueeze Reshape Flatten Transpose
// Expand Tile Range Where Add Sub Mul Div Mod Neg Abs Sign Min Max Relu Floor Ceil Round Equal Less
// LessOrEqual Greater GreaterOrEqual Not And Or ReduceSum ReduceProd ReduceMin ReduceMax CumSum
// ScatterND.
absl::Span<const std::string_view> KnownOps();

// KnownOf returns a literal with its integers as expressions, unless one is outside int64.
// IntegersOf does the reverse; nullopt unless every element is a number.
Known KnownOf(Tensor literal);
std::optional<std::vector<int64_t>> IntegersOf(const Known& known);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_KNOWN_SIZES_H_
