// Inference of movement and indexing: IndexMap, Gather, Scatter, EmbeddingBag.
#include <string>

#include "compiler/ir/ops/infer.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

absl::Status CheckFill(const Attrs& attrs, DType dtype) {
  const Tensor& fill = GetAttr<Tensor>(attrs, "fill");
  if (!fill.shape.empty()) {
    return Invalid("fill has rank ", fill.shape.size(), "; it must be a scalar (rank 0)");
  }
  return CheckSameDType("operand 0", dtype, "fill", fill.dtype);
}

// Checks that every coordinate is inside the operand, for every size of the dims and every output
// element.
absl::Status CheckInside(const IndexMap& map, const Shape& operand, const Bounds& dims) {
  Bounds bounds = dims;
  for (size_t i = 0; i < map.shape.size(); ++i) {
    if (map.shape[i].IsConstant(0)) return absl::OkStatus();  // there is no output element
    bounds.SetExtent(Expr::Axis(static_cast<int>(i)).ToString(), map.shape[i]);
  }
  for (size_t i = 0; i < operand.size(); ++i) {
    const Expr& coordinate = map.coordinates[i];
    if (bounds.NonNegative(coordinate) && bounds.Less(coordinate, operand[i])) continue;
    return Invalid("coordinate ", i, ", ", coordinate.ToString(), ", is not provably inside [0, ",
                   operand[i].ToString(), ") for every element of the result ",
                   ShapeToString(map.shape),
                   ": give `fill` for elements outside, or tighten the shape or the dims' bounds");
  }
  return absl::OkStatus();
}

Shape GatherShape(const Shape& data, const Shape& indices, int64_t axis) {
  Shape shape(data.begin(), data.begin() + axis);
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), data.begin() + axis + 1, data.end());
  return shape;
}

absl::Status CheckIndices(std::string_view what, DType dtype) {
  return CheckDType(what, dtype, DTypeClass::kIntegers);
}

}  // namespace

absl::StatusOr<TensorType> InferIndexMap(TypeSpan inputs, const Attrs& attrs,
                                         const Bounds& bounds) {
  const IndexMap& map = GetAttr<IndexMap>(attrs, "map");
  const Shape& operand = inputs[0].shape;
  if (map.coordinates.size() != operand.size()) {
    return Invalid("map has ", map.coordinates.size(), " coordinates, operand 0 has shape ",
                   ShapeToString(operand), "; it needs one coordinate per axis, ", operand.size());
  }
  absl::Status status = attrs.contains("fill") ? CheckFill(attrs, inputs[0].dtype)
                                               : CheckInside(map, operand, bounds);
  if (!status.ok()) return status;
  return TensorType{inputs[0].dtype, map.shape};
}

absl::StatusOr<TensorType> InferGather(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  if (absl::Status s = CheckAxis("axis", axis, inputs[0].shape); !s.ok()) return s;
  if (absl::Status s = CheckIndices("indices, operand 1,", inputs[1].dtype); !s.ok()) return s;
  return TensorType{inputs[0].dtype, GatherShape(inputs[0].shape, inputs[1].shape, axis)};
}

absl::StatusOr<TensorType> InferScatter(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const TensorType& data = inputs[0];
  const int64_t axis = GetAttr<int64_t>(attrs, "axis");
  const std::string& mode = GetAttr<std::string>(attrs, "mode");
  const bool computes = mode == "add" || mode == "mul";
  if (mode != "set" && !computes && mode != "max" && mode != "min") {
    return Invalid("mode=", Quoted(mode), " must be \"set\", \"add\", \"mul\", \"max\" or \"min\"");
  }
  absl::Status s = CheckDType("data, operand 0,", data.dtype,
                              computes ? DTypeClass::kNumeric : DTypeClass::kComputing);
  if (s.ok()) s = CheckAxis("axis", axis, data.shape);
  if (s.ok()) s = CheckIndices("indices, operand 1,", inputs[1].dtype);
  if (s.ok()) s = CheckSameDType("data", data.dtype, "updates", inputs[2].dtype);
  if (s.ok()) {
    s = CheckSameShape("updates", inputs[2].shape, "the place they go to",
                       GatherShape(data.shape, inputs[1].shape, axis), bounds);
  }
  if (!s.ok()) return s;
  return data;
}

absl::StatusOr<TensorType> InferEmbeddingBag(TypeSpan inputs, const Attrs& attrs, const Bounds&) {
  const std::string& mode = GetAttr<std::string>(attrs, "mode");
  if (mode != "sum" && mode != "mean" && mode != "max") {
    return Invalid("mode=", Quoted(mode), " must be \"sum\", \"mean\" or \"max\"");
  }
  absl::Status s = CheckDType("table, operand 0,", inputs[0].dtype, DTypeClass::kFloats);
  if (s.ok()) s = CheckRank("table, operand 0,", inputs[0].shape, 2);
  if (s.ok()) s = CheckIndices("ids, operand 1,", inputs[1].dtype);
  if (s.ok()) s = CheckRank("ids, operand 1,", inputs[1].shape, 1);
  if (s.ok()) s = CheckIndices("offsets, operand 2,", inputs[2].dtype);
  if (s.ok()) s = CheckRank("offsets, operand 2,", inputs[2].shape, 1);
  if (!s.ok()) return s;
  return TensorType{inputs[0].dtype, {inputs[2].shape[0], inputs[0].shape[1]}};
}

}  // namespace athanor
