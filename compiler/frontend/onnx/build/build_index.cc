// Gathering and scattering. Our ops move whole slices along one axis by indices from 0; ONNX's
// indices may also count from the end and select single elements.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

// Reports whether a node's values are provably in [0, size) by their construction: positions along
// an axis that is not longer.
bool CountsWithin(const Graph& graph, NodeId id, const Expr& size, const Bounds& bounds) {
  if (id == kNoNode) return false;
  const athanor::Node& node = graph.node(id);
  if (IsIndexMap(node.op) && !node.attrs.contains("fill")) {
    return CountsWithin(graph, node.inputs[0], size, bounds);
  }
  if (node.op != Op::kIota) return false;
  const Shape& shape = GetAttr<Shape>(node.attrs, "shape");
  return bounds.NonNegative(size - shape[GetAttr<int64_t>(node.attrs, "axis")]);
}

// Returns known contents, with negative ones counted from the end; nullopt unless all are provably
// inside.
std::optional<std::vector<Expr>> KnownInside(const Value& index, const Expr& size,
                                             const Bounds& bounds) {
  if (index.known == nullptr || index.known->divisor != 1) return std::nullopt;
  int64_t elements = 1;
  for (int64_t extent : index.known->shape) elements *= extent;
  if (static_cast<int64_t>(index.known->sizes.size()) != elements) return std::nullopt;
  std::vector<Expr> inside;
  for (const Expr& e : index.known->sizes) {
    const bool below = bounds.Less(e, 0);
    const Expr position = below ? e + size : e;
    if (!bounds.NonNegative(position) || !bounds.Less(position, size)) return std::nullopt;
    inside.push_back(position);
  }
  return inside;
}

// Returns the constant distance of neighbours; 1 for a single position.
std::optional<int64_t> StepOf(const std::vector<Expr>& positions) {
  if (positions.size() < 2) return 1;
  const std::optional<int64_t> step = (positions[1] - positions[0]).constant();
  for (size_t i = 2; i < positions.size() && step.has_value(); ++i) {
    if ((positions[i] - positions[i - 1]).constant() != step) return std::nullopt;
  }
  return step;
}

}  // namespace

Value OpBuilder::Checked(const Value& index, const Expr& size) {
  if (!status_.ok()) return FailedValue(index.elem);
  if (const auto inside = KnownInside(index, size, bounds_); inside.has_value()) {
    return *inside == index.known->sizes ? index : Sizes(*inside, index.known->shape, index.elem);
  }
  Value result = index;
  const DType dtype = index.dtype();
  if (IsSigned(dtype) && !CountsWithin(*graph_, index.node, size, bounds_)) {
    const int64_t widest = INT64_MAX >> (64 - 8 * DTypeBytes(dtype));
    const std::optional<int64_t> largest = bounds_.Maximum(size);
    if (!largest.has_value() || *largest > widest) result = Cast(result, Elem::kInt64);
    const Value from_end = Add(result, Size(result.elem, size, result.shape));
    result = Select(Less(result, Integer(result.elem, 0)), from_end, result);
  }
  for (const auto& [condition, when] : guards_) {
    const Value none = Integer(result.elem, 0);
    result = when ? Select(condition, result, none) : Select(condition, none, result);
  }
  return result;
}

Value OpBuilder::Gather(const Value& data, const Value& indices, int axis) {
  if (!status_.ok()) return FailedValue(data.elem);
  if (axis < 0 || axis >= data.rank()) {
    Fail(Invalid("rows of ", ShapeToString(data.shape), " are chosen along axis ", axis,
                 ", which it does not have"));
    return FailedValue(data.elem);
  }
  const Expr& size = data.shape[axis];
  // A known arithmetic sequence of positions is a slice.
  const auto inside = KnownInside(indices, size, bounds_);
  if (inside.has_value() && indices.rank() <= 1 && !inside->empty()) {
    if (const std::optional<int64_t> step = StepOf(*inside); step.has_value()) {
      const Value part =
          Slice(data, axis, inside->front(), static_cast<int64_t>(inside->size()), *step);
      return indices.rank() == 1 ? part : Squeeze(part, {axis});
    }
  }
  return Raw(Op::kGather, {data, Checked(indices, size)}, {{"axis", int64_t{axis}}}, data.elem);
}

Shape OpBuilder::Joined(const Shape& shape, size_t leading) {
  Shape joined = {1};
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i < leading) {
      joined[0] *= shape[i];
    } else {
      joined.push_back(shape[i]);
    }
  }
  return joined;
}

Value OpBuilder::Flat(const Shape& shape, absl::Span<const Value> at) {
  if (!status_.ok()) return FailedValue(Elem::kInt64);
  if (at.empty() || at.size() > shape.size()) {
    Fail(Invalid("elements of ", ShapeToString(shape), " are chosen by 1 to ", shape.size(),
                 " indices, not by ", at.size()));
    return FailedValue(Elem::kInt64);
  }
  Value flat;
  std::optional<Value> valid;
  for (size_t i = 0; i < at.size(); ++i) {
    const bool inside = KnownInside(at[i], shape[i], bounds_).has_value() ||
                        CountsWithin(*graph_, at[i].node, shape[i], bounds_);
    const Value index = Cast(Checked(at[i], shape[i]), Elem::kInt64);
    const Value size = Size(Elem::kInt64, shape[i], {});
    if (at.size() > 1 && !inside) {
      const Value here = And(Not(Less(index, Integer(Elem::kInt64, 0))), Less(index, size));
      valid = valid.has_value() ? And(*valid, here) : here;
    }
    flat = i == 0 ? index : Add(Mul(flat, size), index);
    if (!status_.ok()) return FailedValue(Elem::kInt64);
  }
  return valid.has_value() ? Select(*valid, flat, Integer(Elem::kInt64, -1)) : flat;
}

Value OpBuilder::GatherAt(const Value& data, absl::Span<const Value> at) {
  const Value flat = Flat(data.shape, at);
  return Raw(Op::kGather, {Reshape(data, Joined(data.shape, at.size())), flat},
             {{"axis", int64_t{0}}}, data.elem);
}

Value OpBuilder::ScatterAt(const Value& data, absl::Span<const Value> at, const Value& updates,
                           std::string_view mode) {
  const Value flat = Flat(data.shape, at);
  const Value result =
      Raw(Op::kScatter, {Reshape(data, Joined(data.shape, at.size())), flat, updates},
          {{"axis", int64_t{0}}, {"mode", std::string(mode)}}, data.elem);
  return Reshape(result, data.shape);
}

}  // namespace athanor::onnx
