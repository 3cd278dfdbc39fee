// Inference of ops of transformer models besides attention: Rotary, Dequantize.
#include <string>
#include <string_view>

#include "compiler/ir/ops/infer.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr std::string_view kCos = "cos, operand 1,", kSin = "sin, operand 2,";

// Checks that cos is of rank 2, or of x's rank with leading axes equal to x's or 1.
absl::Status CheckAngles(const TensorType& cos, const TensorType& x, const Bounds& bounds) {
  const int full = static_cast<int>(x.shape.size()), rank = static_cast<int>(cos.shape.size());
  if (rank != 2 && rank != full) {
    return Invalid(kCos, " has shape ", ShapeToString(cos.shape), "; its rank must be 2 or ", full,
                   ", that of x");
  }
  for (int i = 0; i + 2 < rank; ++i) {
    if (cos.shape[i].IsConstant(1)) continue;
    absl::Status s = CheckSameSize("x", i, x.shape[i], kCos, i, cos.shape[i], bounds);
    if (!s.ok()) return s;
  }
  absl::Status s =
      CheckSameSize("x", full - 2, x.shape[full - 2], kCos, rank - 2, cos.shape[rank - 2], bounds);
  if (!s.ok()) return s;
  const Expr rotated = 2 * cos.shape.back();
  if (bounds.NonNegative(x.shape.back() - rotated)) return absl::OkStatus();
  return Invalid(kCos, " rotates ", rotated.ToString(),
                 " elements, twice its last axis, which is "
                 "not provably at most ",
                 x.shape.back().ToString(), ", the last axis of x");
}

// Returns the result's shape for Dequantize.
absl::StatusOr<Shape> UnpackedShape(const TensorType& packed, const Attrs& attrs,
                                    const Bounds& bounds) {
  const int64_t width = 8 * DTypeBytes(packed.dtype);
  const int64_t bits = GetAttrOr<int64_t>(attrs, "bits", width);
  const bool split = width == 8 && (bits == 2 || bits == 4);
  if (bits != width && !split) {
    return Invalid("bits=", bits, " must be ", width, ", the width of ", DTypeName(packed.dtype),
                   width == 8 ? ", or 4 or 2, packed" : "; fewer are packed in u8 or i8");
  }
  Shape shape = packed.shape;
  if (!split) {
    if (!attrs.contains("size")) return shape;
    return Invalid("has the attribute size, but nothing is packed: leave it out");
  }
  if (shape.empty()) return Invalid("packed, operand 0, has rank 0; it needs an axis to unpack");
  shape.back() *= width / bits;
  if (!attrs.contains("size")) return shape;
  const Shape& size = GetAttr<Shape>(attrs, "size");
  if (size.size() != 1) return Invalid("size holds ", size.size(), " sizes; it must hold one");
  if (!bounds.NonNegative(shape.back() - size[0])) {
    return Invalid("size=", size[0].ToString(), " is not provably at most ",
                   shape.back().ToString(), ", what is packed along the last axis");
  }
  shape.back() = size[0];
  return shape;
}

absl::Status CheckScale(const TensorType& scale, const Shape& result, const Attrs& attrs,
                        const Bounds& bounds) {
  constexpr std::string_view kScale = "scale, operand 1,";
  const int64_t block = GetAttrOr<int64_t>(attrs, "block", 0);
  if (absl::Status s = CheckDType(kScale, scale.dtype, DTypeClass::kFloats); !s.ok()) return s;
  if (block < 0) return Invalid("block=", block, " must not be negative");
  if (scale.shape.empty()) {
    if (block == 0) return absl::OkStatus();
    return Invalid(kScale, " has rank 0, which has no blocks: leave out block");
  }
  const int64_t axis = GetAttrOr<int64_t>(attrs, "axis", 0);
  if (absl::Status s = CheckAxis("axis", axis, result); !s.ok()) return s;
  if (block == 0) {
    if (absl::Status s = CheckRank(kScale, scale.shape, 1); !s.ok()) return s;
    return CheckSameSize("the result", static_cast<int>(axis), result[axis], kScale, 0,
                         scale.shape[0], bounds);
  }
  Shape blocks = result;
  blocks[axis] = CeilDiv(result[axis], block);
  return CheckSameShape(kScale, scale.shape, "the result's blocks", blocks, bounds);
}

}  // namespace

absl::StatusOr<TensorType> InferRotary(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const TensorType& x = inputs[0];
  if (x.shape.size() < 2) {
    return Invalid("x, operand 0, has shape ", ShapeToString(x.shape),
                   "; it needs at least the axes [L, D]");
  }
  absl::Status s = CheckDType("x, operand 0,", x.dtype, DTypeClass::kFloats);
  if (s.ok()) s = CheckSameDType("x", x.dtype, "cos", inputs[1].dtype);
  if (s.ok()) s = CheckSameDType("x", x.dtype, "sin", inputs[2].dtype);
  if (s.ok()) s = CheckSameShape(kCos, inputs[1].shape, kSin, inputs[2].shape, bounds);
  if (s.ok()) s = CheckAngles(inputs[1], x, bounds);
  if (!s.ok()) return s;
  return x;
}

absl::StatusOr<TensorType> InferDequantize(TypeSpan inputs, const Attrs& attrs,
                                           const Bounds& bounds) {
  const TensorType& packed = inputs[0];
  const DType dtype = GetAttr<DType>(attrs, "dtype");
  absl::Status s = CheckDType("packed, operand 0,", packed.dtype, DTypeClass::kIntegers);
  if (s.ok() && DTypeBytes(packed.dtype) > 4) {
    s = Unimplemented("packed, operand 0, has dtype ", DTypeName(packed.dtype),
                      ", but the op takes integers of up to 32 bits: convert it with "
                      "Cast(dtype=i32)");
  }
  if (s.ok()) s = CheckDType("the result", dtype, DTypeClass::kFloats);
  if (!s.ok()) return s;
  absl::StatusOr<Shape> shape = UnpackedShape(packed, attrs, bounds);
  if (!shape.ok()) return shape.status();
  s = CheckScale(inputs[1], *shape, attrs, bounds);
  if (s.ok() && inputs.size() > 2) {
    s = CheckSameDType("packed", packed.dtype, "zero, operand 2,", inputs[2].dtype);
    if (s.ok()) {
      s = CheckSameShape("scale", inputs[1].shape, "zero, operand 2,", inputs[2].shape, bounds);
    }
  }
  if (!s.ok()) return s;
  return TensorType{dtype, *std::move(shape)};
}

}  // namespace athanor
