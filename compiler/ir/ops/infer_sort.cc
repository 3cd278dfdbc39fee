// Inference of ops that order or accumulate along one axis: Sort, TopK, Cumulate.
#include <string>

#include "compiler/ir/ops/infer.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

// Highest rank for Cumulate: its decomposition adds an axis, to pair the axis with itself.
constexpr size_t kMostAxes = 15;

absl::Status CheckAxisOf(const TensorType& x, const Attrs& attrs) {
  return CheckAxis("axis", GetAttr<int64_t>(attrs, "axis"), x.shape);
}

absl::Status CheckRankOf(const TensorType& x) {
  if (x.shape.size() <= kMostAxes) return absl::OkStatus();
  return Invalid("operand 0 has rank ", x.shape.size(), "; it must be at most ", kMostAxes);
}

}  // namespace

absl::StatusOr<TensorType> InferSort(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  absl::Status s = CheckDType("operand 0", inputs[0].dtype, DTypeClass::kComputing);
  if (s.ok()) s = CheckAxisOf(inputs[0], attrs);
  if (!s.ok()) return s;
  return TensorType{DType::kI64, inputs[0].shape};
}

absl::StatusOr<TensorType> InferTopK(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  absl::StatusOr<TensorType> type = InferSort(inputs, attrs, bounds);
  if (!type.ok()) return type;
  const Shape& k = GetAttr<Shape>(attrs, "k");
  if (k.size() != 1) return Invalid("k holds ", k.size(), " sizes; it must hold one");
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  Expr& size = type->shape[axis];
  if (!bounds.NonNegative(size - k[0])) {
    return Invalid("k=", k[0].ToString(), " is not provably at most ", size.ToString(),
                   ", the size of axis ", axis, ": give a smaller k, or tighten the dims' bounds");
  }
  size = k[0];
  return type;
}

absl::StatusOr<TensorType> InferCumulate(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  const std::string& op = GetAttr<std::string>(attrs, "op");
  if (op != "add" && op != "mul") {
    return Invalid("op=", Quoted(op), " must be \"add\" or \"mul\"");
  }
  absl::Status s = CheckDType("operand 0", inputs[0].dtype, DTypeClass::kNumeric);
  if (s.ok()) s = CheckAxisOf(inputs[0], attrs);
  if (s.ok()) s = CheckRankOf(inputs[0]);
  if (!s.ok()) return s;
  return inputs[0];
}

}  // namespace athanor
