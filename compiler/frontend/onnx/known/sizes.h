// Arithmetic on what is known of values: the chains by which exporters compute shapes (Shape,
// Gather, Concat, Div, ...) become expressions over dims and no nodes at all.
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

// The results, known and without nodes, of a call whose op is known to this file; nullopt where any
// is not known exactly: an undecided comparison, a division whose sign is not proved, int64
// overflow, an operand or a result of more than `most` elements. Shape and Size need no contents of
// their operand; every other op that all of its operands' are known. Never fails: what it does not
// know, the handler computes.
std::optional<std::vector<Value>> ComputeKnown(const HandlerContext& call, const Bounds& bounds,
                                               int64_t most = kMaxKnownElements);

// The ops it knows, for tests: Constant Shape Size ConstantOfShape Identity Cast CastLike Gather
// Slice Concat Split Squeeze Unsqueeze Reshape Flatten Transpose Expand Tile Range Where Add Sub
// Mul Div Mod Neg Abs Sign Min Max Relu Floor Ceil Round Equal Less LessOrEqual Greater
// GreaterOrEqual Not And Or ReduceSum ReduceProd ReduceMin ReduceMax CumSum ScatterND.
absl::Span<const std::string_view> KnownOps();

// A literal with its integers as expressions, unless one is beyond int64, and back: nullopt unless
// every element is a number.
Known KnownOf(Tensor literal);
std::optional<std::vector<int64_t>> IntegersOf(const Known& known);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_KNOWN_SIZES_H_
