// Helpers that the handlers of arithmetic share.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_ARITH_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_ARITH_H_

#include <initializer_list>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/ops/handler.h"

namespace athanor::onnx {

// Returns INVALID_ARGUMENT unless all values have provably the shape of the first.
absl::Status SameShape(HandlerContext& c, absl::Span<const Value> values);
inline absl::Status SameShape(HandlerContext& c, std::initializer_list<Value> values) {
  return SameShape(c, absl::Span<const Value>(values.begin(), values.size()));
}

// Returns operand i, of one element, as a scalar; `what` is its name in the schema.
absl::StatusOr<Value> ScalarOperand(HandlerContext& c, int i, std::string_view what);

// Returns x - log(sum(exp(x))) along the axis; f16 and bf16 are computed in f32 and rounded once.
Value LogSoftmaxAlong(OpBuilder& b, const Value& x, int axis);

// Returns the attribute in the accumulator type of `like`, f32 or f64, which holds it exactly.
inline Value FloatAttr(HandlerContext& c, const Value& like, std::string_view name) {
  return c.b().Scalar(like.elem, c.Float(name));
}
inline Value NumberLike(HandlerContext& c, const Value& like, double value) {
  return c.b().Scalar(like.elem, value);
}

// Returns the type whose number in TensorProto.DataType attribute `name` holds.
absl::StatusOr<Elem> ElemAttr(HandlerContext& c, std::string_view name);

// Parts of families that span several files.
absl::Span<const HandlerRow> ElementwiseUnaryRows();
absl::Span<const HandlerRow> ElementwiseBinaryRows();
absl::Span<const HandlerRow> MicrosoftQuantisedRows();

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_ARITH_H_
