// What quantised ops of ONNX's domain and com.microsoft's share.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_QUANTISED_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_QUANTISED_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// Round(x) + zero, saturated to the integer type `to`: x has a float type, `zero` (may be null)
// `to`'s. NaN gives the zero point.
Value RoundedTo(OpBuilder& b, const Value& x, const Value* zero, Elem to);

// f32 as u8 with a scale and zero point from its range with 0 in it (DynamicQuantizeLinear).
struct Quantised {
  Value values, scale, zero_point;
};
Quantised QuantisedDynamically(OpBuilder& b, const Value& x);

// Operand i, a scale or zero point of a matrix: one number, one for each row, or one of the
// matrix's rank; to be broadcast against the matrix.
absl::StatusOr<Value> RowParameter(HandlerContext& c, int i, std::string_view what);
// Likewise by column, where a vector broadcasts as it is.
absl::StatusOr<Value> ColumnParameter(HandlerContext& c, int i, std::string_view what);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_MATH_HANDLERS_QUANTISED_H_
