// Helpers that the handlers of shapes, movement and indexing share.
#ifndef ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_STRUCTURE_H_
#define ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_STRUCTURE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {

inline std::vector<Expr> AllAxes(int rank) {
  std::vector<Expr> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(Expr::Axis(i));
  return axes;
}

inline Expr ProductOf(absl::Span<const Expr> sizes) {
  Expr product = 1;
  for (const Expr& size : sizes) product *= size;
  return product;
}

inline std::vector<Expr> ExprsOf(absl::Span<const int64_t> values) {
  return {values.begin(), values.end()};
}

// Returns a / b if b divides a for every size of the dims.
inline std::optional<Expr> ExactQuotient(const Expr& a, const Expr& b, const Bounds& bounds) {
  for (const Expr& quotient : {FloorDiv(a, b), bounds.Simplify(FloorDiv(a, b))}) {
    if (quotient * b == a || bounds.ProvablyEqual(quotient * b, a)) return quotient;
  }
  return std::nullopt;
}

// Returns `value` as the nearest number of a float type, or as a literal of any other type.
inline Value Nearest(OpBuilder& b, Elem elem, double value) {
  Tensor t = Tensor::Zeros(CarrierOf(elem), {});
  if (!IsFloat(t.dtype) || !Computes(t.dtype)) return b.Scalar(elem, value);
  StoreScalar(t, 0, ::athanor::Scalar::Float(t.dtype, value));
  return b.Literal(elem, std::move(t));
}

// Returns a scalar of zero bytes, whatever they mean in the type.
inline Value ZeroOf(OpBuilder& b, Elem elem) {
  return b.Literal(elem, Tensor::Zeros(CarrierOf(elem), {}));
}

// Returns operand i, which has one element, as a scalar.
inline absl::StatusOr<Value> OneElement(HandlerContext& c, int i, std::string_view what) {
  const Value& x = c.In(i);
  if (!c.b().bounds().ProvablyEqual(ProductOf(x.shape), 1)) {
    return Invalid("its ", what, " has shape ", ShapeToString(x.shape),
                   "; it must have one element");
  }
  if (x.rank() == 0) return x;
  if (x.known != nullptr && x.known->literal.has_value()) {
    return c.b().Literal(x.elem, Tensor{x.dtype(), {}, x.known->literal->bytes});
  }
  return Reshape(c.b(), x, {});
}

// Combines the errors about several operands' contents, so that the user can give all missing
// values in one upload.
inline absl::Status Together(absl::Span<const absl::Status> statuses) {
  std::string text;
  for (const absl::Status& status : statuses) {
    if (status.ok()) continue;
    if (status.code() != absl::StatusCode::kUnimplemented) return status;
    text += Cat(text.empty() ? "" : "; ", std::string(absl::string_view(status.message())));
  }
  return text.empty() ? absl::OkStatus() : Unimplemented(text);
}

// Returns the attribute `name` as axes of a tensor of rank `rank`.
inline absl::StatusOr<std::vector<int>> AxesAttr(HandlerContext& c, std::string_view name,
                                                 int rank) {
  return c.Axes(c.Ints(name), rank);
}

// Checks the sizes of a result: none may be negative for any size of the dims.
inline absl::Status CheckSizes(std::string_view what, absl::Span<const Expr> sizes,
                               const Bounds& bounds) {
  for (const Expr& size : sizes) {
    if (bounds.NonNegative(size)) continue;
    const std::optional<int64_t> constant = size.constant();
    if (constant.has_value())
      return Invalid("its ", what, " holds ", *constant, ", a negative size");
    return Unimplemented("its ", what, " holds ", size.ToString(),
                         ", which is not provably 0 or more for every size of the dims; tighten "
                         "their bounds");
  }
  return absl::OkStatus();
}

}  // namespace athanor::onnx

#endif  // ATHANOR_COMPILER_FRONTEND_ONNX_OPS_HANDLERS_STRUCTURE_H_
