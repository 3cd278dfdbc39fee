#include "compiler/frontend/onnx/build/build_index.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
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

// Returns indices from 0: known ones that are inside as they are; of others, negative ones are
// resolved and guards applied.
Value Checked(OpBuilder& b, const Value& index, const Expr& size) {
  if (!b.status().ok()) return FailedValue(index.elem);
  if (const auto inside = KnownInside(index, size, b.bounds()); inside.has_value()) {
    return *inside == index.known->sizes ? index : b.Sizes(index.elem, *inside, index.known->shape);
  }
  Value result = index;
  const DType dtype = index.dtype();
  if (IsSigned(dtype) && !CountsWithin(b.graph(), index.node, size, b.bounds())) {
    const int64_t widest = INT64_MAX >> (64 - 8 * DTypeBytes(dtype));
    const std::optional<int64_t> largest = b.bounds().Maximum(size);
    if (!largest.has_value() || *largest > widest) result = Cast(b, result, Elem::kInt64);
    const Value from_end = Add(b, result, Size(b, result.elem, size, result.shape));
    result = Select(b, Less(b, result, b.Integer(result.elem, 0)), from_end, result);
  }
  return b.Guarded(result);
}

// Merges the leading axes.
Shape Joined(const Shape& shape, size_t leading) {
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

// Returns row-major positions for indices per leading axis of `shape`; -1 if an index is outside.
Value Flat(OpBuilder& b, const Shape& shape, absl::Span<const Value> at) {
  if (!b.status().ok()) return FailedValue(Elem::kInt64);
  if (at.empty() || at.size() > shape.size()) {
    b.Fail(Invalid("elements of ", ShapeToString(shape), " are chosen by 1 to ", shape.size(),
                   " indices, not by ", at.size()));
    return FailedValue(Elem::kInt64);
  }
  Value flat;
  std::optional<Value> valid;
  for (size_t i = 0; i < at.size(); ++i) {
    const bool inside = KnownInside(at[i], shape[i], b.bounds()).has_value() ||
                        CountsWithin(b.graph(), at[i].node, shape[i], b.bounds());
    const Value index = Cast(b, Checked(b, at[i], shape[i]), Elem::kInt64);
    const Value size = Size(b, Elem::kInt64, shape[i], {});
    if (at.size() > 1 && !inside) {
      const Value here =
          And(b, Not(b, Less(b, index, b.Integer(Elem::kInt64, 0))), Less(b, index, size));
      valid = valid.has_value() ? And(b, *valid, here) : here;
    }
    flat = i == 0 ? index : Add(b, Mul(b, flat, size), index);
    if (!b.status().ok()) return FailedValue(Elem::kInt64);
  }
  return valid.has_value() ? Select(b, *valid, flat, b.Integer(Elem::kInt64, -1)) : flat;
}

}  // namespace

Value Gather(OpBuilder& b, const Value& data, const Value& indices, int axis) {
  if (!b.status().ok()) return FailedValue(data.elem);
  if (axis < 0 || axis >= data.rank()) {
    b.Fail(Invalid("rows of ", ShapeToString(data.shape), " are chosen along axis ", axis,
                   ", which it does not have"));
    return FailedValue(data.elem);
  }
  const Expr& size = data.shape[axis];
  // A known arithmetic sequence of positions is a slice.
  const auto inside = KnownInside(indices, size, b.bounds());
  if (inside.has_value() && indices.rank() <= 1 && !inside->empty()) {
    if (const std::optional<int64_t> step = StepOf(*inside); step.has_value()) {
      const Value part =
          Slice(b, data, axis, inside->front(), static_cast<int64_t>(inside->size()), *step);
      return indices.rank() == 1 ? part : Squeeze(b, part, {axis});
    }
  }
  return b.Raw(Op::kGather, {data, Checked(b, indices, size)}, {{"axis", int64_t{axis}}},
               data.elem);
}

Value GatherAt(OpBuilder& b, const Value& data, absl::Span<const Value> at) {
  const Value flat = Flat(b, data.shape, at);
  return b.Raw(Op::kGather, {Reshape(b, data, Joined(data.shape, at.size())), flat},
               {{"axis", int64_t{0}}}, data.elem);
}

Value ScatterAt(OpBuilder& b, const Value& data, absl::Span<const Value> at, const Value& updates,
                std::string_view mode) {
  const Value flat = Flat(b, data.shape, at);
  const Value result =
      b.Raw(Op::kScatter, {Reshape(b, data, Joined(data.shape, at.size())), flat, updates},
            {{"axis", int64_t{0}}, {"mode", std::string(mode)}}, data.elem);
  return Reshape(b, result, data.shape);
}

}  // namespace athanor::onnx
