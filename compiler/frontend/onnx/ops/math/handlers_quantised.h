// Helpers that the quantised ops of ONNX's domain and com.microsoft's share.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_QUANTISED_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_QUANTISED_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// Returns Round(x) + zero, saturated to the integer type `to`. x has a float type; `zero` has type
// `to` and may be null. NaN gives the zero point.
Value RoundedTo(OpBuilder& b, const Value& x, const Value* zero, Elem to);

// An f32 tensor quantised to u8, with scale and zero point from its range extended to 0
// (DynamicQuantizeLinear).
struct Quantised {
  Value values, scale, zero_point;
};
Quantised QuantisedDynamically(OpBuilder& b, const Value& x);

// Returns operand i, a scale or zero point of a matrix, shaped to broadcast against the matrix. It
// holds one number, one per row, or has the matrix's rank.
absl::StatusOr<Value> RowParameter(HandlerContext& c, int i, std::string_view what);
// Same by column; a vector broadcasts unchanged.
absl::StatusOr<Value> ColumnParameter(HandlerContext& c, int i, std::string_view what);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_QUANTISED_H_
