#include "compiler/ir/ops/infer.h"

#include <string>

#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

struct ClassText {
  std::string_view takes;
  std::string_view cast_to;  // dtype of the class that holds most values of the others
};

ClassText TextOf(DTypeClass dtype_class) {
  switch (dtype_class) {
    case DTypeClass::kFloats:
      return {"f16, bf16, f32 or f64", "f32"};
    case DTypeClass::kIntegers:
      return {"integers (i8 to u64)", "i64"};
    case DTypeClass::kNumeric:
      return {"integers and f16, bf16, f32 or f64", "f32"};
    case DTypeClass::kLogical:
      return {"bool and integers", "i64"};
    case DTypeClass::kComputing:
      return {"every dtype but the storage-only f8 types", "f32"};
  }
  return {"no dtype", "f32"};
}

}  // namespace

bool InClass(DType dtype, DTypeClass dtype_class) {
  if (!Computes(dtype)) return false;
  switch (dtype_class) {
    case DTypeClass::kFloats:
      return IsFloat(dtype);
    case DTypeClass::kIntegers:
      return IsInteger(dtype);
    case DTypeClass::kNumeric:
      return dtype != DType::kBool;
    case DTypeClass::kLogical:
      return !IsFloat(dtype);
    case DTypeClass::kComputing:
      return true;
  }
  return false;
}

absl::Status CheckDType(std::string_view what, DType dtype, DTypeClass dtype_class) {
  if (InClass(dtype, dtype_class)) return absl::OkStatus();
  const ClassText text = TextOf(dtype_class);
  std::string hint = Cat("convert it with Cast(dtype=", text.cast_to, ")");
  if (dtype == DType::kBool && dtype_class == DTypeClass::kNumeric) {
    hint = "use Or, And or Xor for logic, or convert it with Cast(dtype=i32)";
  }
  return Unimplemented(what, " has dtype ", DTypeName(dtype), ", but the op takes ", text.takes,
                       ": ", hint);
}

absl::Status CheckSameDType(std::string_view what_a, DType a, std::string_view what_b, DType b) {
  if (a == b) return absl::OkStatus();
  return Invalid(what_a, " has dtype ", DTypeName(a), ", ", what_b, " has ", DTypeName(b),
                 "; they must be equal: convert ", what_b, " with Cast(dtype=", DTypeName(a),
                 ") or ", what_a, " with Cast(dtype=", DTypeName(b), ")");
}

absl::Status CheckRank(std::string_view what, const Shape& shape, int rank) {
  if (static_cast<int>(shape.size()) == rank) return absl::OkStatus();
  return Invalid(what, " has shape ", ShapeToString(shape), " of rank ", shape.size(),
                 "; its rank must be ", rank);
}

absl::Status CheckAxis(std::string_view attr, int64_t axis, const Shape& shape) {
  if (axis >= 0 && axis < static_cast<int64_t>(shape.size())) return absl::OkStatus();
  if (shape.empty()) return Invalid(attr, "=", axis, ": the shape [] has no axes");
  return Invalid(attr, "=", axis, " is not an axis of shape ", ShapeToString(shape),
                 ": it must be in [0, ", shape.size() - 1, "]");
}

absl::Status CheckSameSize(std::string_view what_a, int axis_a, const Expr& a,
                           std::string_view what_b, int axis_b, const Expr& b,
                           const Bounds& bounds) {
  if (a == b || bounds.ProvablyEqual(a, b)) return absl::OkStatus();
  const bool differ = a.constant() && b.constant();
  return Invalid("axis ", axis_a, " of ", what_a, " has size ", a.ToString(), ", axis ", axis_b,
                 " of ", what_b, " has size ", b.ToString(),
                 differ ? "; they must be equal"
                        : "; they must be equal for every size of the dims, which is not proved");
}

absl::Status CheckSameShape(std::string_view what_a, const Shape& a, std::string_view what_b,
                            const Shape& b, const Bounds& bounds) {
  if (a.size() != b.size()) {
    return Invalid(what_a, " has shape ", ShapeToString(a), ", ", what_b, " has ", ShapeToString(b),
                   "; they must be equal (nothing is broadcast implicitly: expand "
                   "with IndexMap)");
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const int axis = static_cast<int>(i);
    absl::Status status = CheckSameSize(what_a, axis, a[i], what_b, axis, b[i], bounds);
    if (!status.ok()) {
      return Invalid(std::string(status.message()), " (shapes ", ShapeToString(a), " and ",
                     ShapeToString(b), "; nothing is broadcast implicitly: expand with IndexMap)");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorType> InferSame(TypeSpan inputs, const Bounds& bounds,
                                     DTypeClass dtype_class) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string what = Cat("operand ", i);
    absl::Status status = CheckDType(what, inputs[i].dtype, dtype_class);
    if (status.ok()) status = CheckSameDType("operand 0", inputs[0].dtype, what, inputs[i].dtype);
    if (status.ok()) {
      status = CheckSameShape("operand 0", inputs[0].shape, what, inputs[i].shape, bounds);
    }
    if (!status.ok()) return status;
  }
  return inputs[0];
}

}  // namespace athanor
