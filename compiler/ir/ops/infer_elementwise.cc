// Inference of leaves, and of elementwise ops other than those with operands of one type.
#include <cmath>
#include <string>

#include "compiler/ir/ops/infer.h"
#include "compiler/ir/value/message.h"

namespace athanor {

absl::StatusOr<TensorType> InferDeclared(TypeSpan, const Attrs&, const Bounds&) {
  return Invalid(
      "its type is declared, not inferred: add it with GraphBuilder::Input or Parameter");
}

absl::StatusOr<TensorType> InferConstant(TypeSpan, const Attrs& attrs, const Bounds&) {
  const Tensor& value = GetAttr<Tensor>(attrs, "value");
  TensorType type{value.dtype, {}};
  for (int64_t size : value.shape) type.shape.push_back(size);
  return type;
}

absl::StatusOr<TensorType> InferIota(TypeSpan, const Attrs& attrs, const Bounds&) {
  const TensorType type{GetAttr<DType>(attrs, "dtype"), GetAttr<Shape>(attrs, "shape")};
  if (absl::Status s = CheckDType("the result", type.dtype, DTypeClass::kNumeric); !s.ok())
    return s;
  if (absl::Status s = CheckAxis("axis", GetAttr<int64_t>(attrs, "axis"), type.shape); !s.ok()) {
    return s;
  }
  return type;
}

absl::StatusOr<TensorType> InferRandomBits(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  if (inputs[0].dtype != DType::kU64) {
    return Unimplemented("the seed has dtype ", DTypeName(inputs[0].dtype),
                         ", but the op takes u64: convert it with Cast(dtype=u64)");
  }
  if (absl::Status s = CheckRank("the seed", inputs[0].shape, 0); !s.ok()) return s;
  return TensorType{DType::kU32, GetAttr<Shape>(attrs, "shape")};
}

absl::StatusOr<TensorType> InferCast(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  return TensorType{GetAttr<DType>(attrs, "dtype"), inputs[0].shape};
}

absl::StatusOr<TensorType> InferBitcast(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  const DType from = inputs[0].dtype;
  const DType to = GetAttr<DType>(attrs, "dtype");
  if (from == DType::kBool || to == DType::kBool) {
    return Unimplemented("bool has no bit pattern of its own: convert with Cast(dtype=",
                         DTypeName(to == DType::kBool ? DType::kBool : DType::kU8), ") instead");
  }
  if (DTypeBytes(from) != DTypeBytes(to)) {
    return Invalid("operand 0 has dtype ", DTypeName(from), " of ", DTypeBytes(from),
                   " bytes, dtype=", DTypeName(to), " has ", DTypeBytes(to),
                   "; the widths must be equal (to convert values use Cast(dtype=", DTypeName(to),
                   "))");
  }
  return TensorType{to, inputs[0].shape};
}

absl::StatusOr<TensorType> InferShift(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const std::string& direction = GetAttr<std::string>(attrs, "direction");
  if (direction != "left" && direction != "right") {
    return Invalid("direction=", Quoted(direction), " must be \"left\" or \"right\"");
  }
  return InferSame(inputs, bounds, DTypeClass::kIntegers);
}

absl::StatusOr<TensorType> InferLessThan(TypeSpan inputs, const Attrs&, const Bounds& bounds) {
  absl::StatusOr<TensorType> type = InferSame(inputs, bounds, DTypeClass::kComputing);
  if (type.ok()) type->dtype = DType::kBool;
  return type;
}

absl::StatusOr<TensorType> InferSelect(TypeSpan inputs, const Attrs&, const Bounds& bounds) {
  if (inputs[0].dtype != DType::kBool) {
    return Invalid("the condition, operand 0, has dtype ", DTypeName(inputs[0].dtype),
                   " and must be bool: compare, or convert it with Cast(dtype=bool)");
  }
  absl::Status s = CheckSameDType("operand 1", inputs[1].dtype, "operand 2", inputs[2].dtype);
  if (s.ok()) {
    s = CheckSameShape("operand 1", inputs[1].shape, "operand 2", inputs[2].shape, bounds);
  }
  if (s.ok()) {
    s = CheckSameShape("operand 1", inputs[1].shape, "operand 0", inputs[0].shape, bounds);
  }
  if (!s.ok()) return s;
  return inputs[1];
}

}  // namespace athanor
