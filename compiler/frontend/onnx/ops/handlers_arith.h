// What handlers of arithmetic share.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_ARITH_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_ARITH_H_

#include <initializer_list>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// INVALID_ARGUMENT unless all have provably the shape of the first.
absl::Status SameShape(HandlerContext& c, absl::Span<const Value> values);
inline absl::Status SameShape(HandlerContext& c, std::initializer_list<Value> values) {
  return SameShape(c, absl::Span<const Value>(values.begin(), values.size()));
}

// Operand i, of one element, as one of rank 0; `what` is its name in the schema.
absl::StatusOr<Value> ScalarOperand(HandlerContext& c, int i, std::string_view what);

// x - log(sum(exp(x))) along the axis, f16 and bf16 in f32 and rounded once.
Value LogSoftmaxAlong(OpBuilder& b, const Value& x, int axis);

// The attribute in the accumulator of `like`, f32 or f64, in which it is exact.
inline Value FloatAttr(HandlerContext& c, const Value& like, std::string_view name) {
  return c.b().Scalar(like.elem, c.Float(name));
}
inline Value NumberLike(HandlerContext& c, const Value& like, double value) {
  return c.b().Scalar(like.elem, value);
}

// The type that attribute `name` names by its number in TensorProto.DataType.
absl::StatusOr<Elem> ElemAttr(HandlerContext& c, std::string_view name);

// Parts of families that are split over files.
absl::Span<const HandlerRow> ElementwiseUnaryRows();
absl::Span<const HandlerRow> ElementwiseBinaryRows();
absl::Span<const HandlerRow> MicrosoftQuantisedRows();

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_ARITH_H_
