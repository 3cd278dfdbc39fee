#include "compiler/frontend/onnx/ops/handlers_arith.h"

#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {

absl::Status SameShape(HandlerContext& c, absl::Span<const Value> values) {
  const Shape& first = values[0].shape;
  for (const Value& v : values) {
    bool same = v.shape.size() == first.size();
    for (size_t i = 0; same && i < first.size(); ++i) {
      same = c.b().bounds().ProvablyEqual(v.shape[i], first[i]);
    }
    if (!same) {
      return Invalid("operands have shapes ", ShapeToString(first), " and ", ShapeToString(v.shape),
                     "; they must be provably equal");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> ScalarOperand(HandlerContext& c, int i, std::string_view what) {
  const Value& v = c.In(i);
  if (v.rank() == 0) return v;
  for (const Expr& size : v.shape) {
    if (!c.b().bounds().ProvablyEqual(size, 1)) {
      return Invalid(what, " has shape ", ShapeToString(v.shape), "; it must be one number");
    }
  }
  return Reshape(c.b(), v, {});
}

Value LogSoftmaxAlong(OpBuilder& b, const Value& x, int axis) {
  const Value wide = Up(b, x);
  const Value shifted = Sub(b, wide, Reduce(b, Op::kMaxReduce, wide, {axis}, /*keepdims=*/true));
  const Value sum = Reduce(b, Op::kSumReduce, Unary(b, Op::kExp, shifted), {axis}, true);
  return Cast(b, Sub(b, shifted, Unary(b, Op::kLog, sum)), x.elem);
}

absl::StatusOr<Elem> ElemAttr(HandlerContext& c, std::string_view name) {
  const int64_t number = c.Int(name);
  if (number > 0 && number <= 64) {
    if (const std::optional<Elem> elem = ElemOf(number)) {
      if (Row(*elem).carry != Carry::kNone) return *elem;
      return Unimplemented(name, "=", number, " is ", ElemName(*elem), ", which is not supported");
    }
  }
  return Invalid(name, "=", number, " is not an element type of ONNX");
}

absl::Span<const HandlerRow> ElementwiseRows() {
  static const auto& rows = *[] {
    auto* all = new std::vector<HandlerRow>;
    for (const auto part : {ElementwiseUnaryRows(), ElementwiseBinaryRows()}) {
      all->insert(all->end(), part.begin(), part.end());
    }
    return all;
  }();
  return rows;
}

}  // namespace athanor::onnx
