// Elementwise functions, with numpy's broadcasting. Functions that the op table lacks are built
// exactly from ops it has, also for NaN, infinities and wrapping integers.
//
//   const Value y = Select(b, Less(b, x, zero), Neg(b, x), x);
//
// Axes that are neither provably equal nor provably 1 fail. The error names both expressions and
// suggests bounds for the dims.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_ELEMENTWISE_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_ELEMENTWISE_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/build.h"

namespace athanor::onnx {

absl::StatusOr<Shape> BroadcastShape(OpBuilder& b, absl::Span<const Shape> shapes);
Value Broadcast(OpBuilder& b, const Value& x, const Shape& shape);

// Add any elementwise row of the op table.
Value Unary(OpBuilder& b, Op op, const Value& x, Attrs attrs = {});
Value Binary(OpBuilder& b, Op op, const Value& x, const Value& y, Attrs attrs = {});
Value Select(OpBuilder& b, const Value& condition, const Value& x, const Value& y);

Value Add(OpBuilder& b, const Value& x, const Value& y);
Value Sub(OpBuilder& b, const Value& x, const Value& y);
Value Mul(OpBuilder& b, const Value& x, const Value& y);
Value Div(OpBuilder& b, const Value& x, const Value& y);  // integers round towards zero
Value Min(OpBuilder& b, const Value& x, const Value& y);
Value Max(OpBuilder& b, const Value& x, const Value& y);
Value Clamp(OpBuilder& b, const Value& x, const Value& low, const Value& high);  // keeps NaN
Value Neg(OpBuilder& b, const Value& x);
Value Abs(OpBuilder& b, const Value& x);
Value CopySign(OpBuilder& b, const Value& magnitude, const Value& sign);

Value And(OpBuilder& b, const Value& x, const Value& y);
Value Or(OpBuilder& b, const Value& x, const Value& y);
Value Not(OpBuilder& b, const Value& x);

// Comparisons are false if either operand is NaN.
Value Less(OpBuilder& b, const Value& x, const Value& y);
Value LessEqual(OpBuilder& b, const Value& x, const Value& y);
Value Equal(OpBuilder& b, const Value& x, const Value& y);
Value IsNaN(OpBuilder& b, const Value& x);

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_BUILD_BUILD_ELEMENTWISE_H_
