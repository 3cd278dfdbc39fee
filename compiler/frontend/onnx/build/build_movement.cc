#include "compiler/frontend/onnx/build/build_movement.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

constexpr size_t kJoinedAtOnce = 8;

Shape AxesOf(int rank) {
  Shape axes;
  for (int i = 0; i < rank; ++i) axes.push_back(Expr::Axis(i));
  return axes;
}

Expr Product(const Shape& shape, absl::Span<const int> axes) {
  Expr product = 1;
  for (int i : axes) product *= shape[i];
  return product;
}

Shape Without(Shape shape, int axis) {
  shape.erase(shape.begin() + axis);
  return shape;
}

bool Divides(const Expr& divisor, const Expr& e) { return FloorDiv(e, divisor) * divisor == e; }

std::vector<int> AxesNotOne(const Shape& shape) {
  std::vector<int> axes;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!shape[i].IsConstant(1)) axes.push_back(static_cast<int>(i));
  }
  return axes;
}

int TakeFirst(std::vector<int>* axes) {
  const int axis = axes->front();
  axes->erase(axes->begin());
  return axis;
}

// Runs of axes of two shapes with equal products, without axes of size 1. An element's coordinates
// within one run depend only on its coordinates in the other run.
struct Group {
  std::vector<int> ours, theirs;
};
std::vector<Group> GroupAxes(const Shape& a, const Shape& b, const Bounds& bounds) {
  std::vector<int> left = AxesNotOne(a), right = AxesNotOne(b);
  std::vector<Group> groups;
  while (!left.empty() || !right.empty()) {
    Group group;
    if (!left.empty()) group.ours.push_back(TakeFirst(&left));
    if (!right.empty()) group.theirs.push_back(TakeFirst(&right));
    while (!left.empty() || !right.empty()) {
      const Expr p = Product(a, group.ours), q = Product(b, group.theirs);
      if (p == q || bounds.ProvablyEqual(p, q)) break;
      const bool grow_theirs = !right.empty() && (left.empty() || Divides(q, p));
      const bool grow_ours = !grow_theirs && !left.empty() && (right.empty() || Divides(p, q));
      if (grow_ours || (!grow_theirs && !left.empty())) group.ours.push_back(TakeFirst(&left));
      if (grow_theirs || (!grow_ours && !right.empty())) group.theirs.push_back(TakeFirst(&right));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

// Returns the operand's coordinates at the result's flat position, group by group.
std::vector<Expr> ReshapeCoordinates(const Shape& from, const Shape& to, const Bounds& bounds) {
  std::vector<Expr> coordinates(from.size(), Expr(0));
  for (const Group& group : GroupAxes(from, to, bounds)) {
    Expr flat = 0;
    for (int i : group.theirs) flat = flat * to[i] + Expr::Axis(i);
    Expr below = 1;
    for (size_t k = group.ours.size(); k-- > 0;) {
      const int i = group.ours[k];
      const Expr above = below * from[i];
      coordinates[i] = FloorDiv(flat, below);
      if (k > 0) coordinates[i] = coordinates[i] - FloorDiv(flat, above) * from[i];
      below = above;
    }
  }
  return coordinates;
}

bool HasEmptyAxis(const Shape& shape) {
  return std::any_of(shape.begin(), shape.end(), [](const Expr& e) { return e.IsConstant(0); });
}

}  // namespace

Value Map(OpBuilder& b, const Value& x, Shape shape, std::vector<Expr> coordinates) {
  if (!b.status().ok()) return FailedValue(x.elem);
  if (shape == x.shape && coordinates == AxesOf(x.rank())) return x;
  Value operand = x;
  operand.node = b.Node(x);  // one node for both attempts
  Attrs attrs = {{"map", IndexMap{std::move(shape), std::move(coordinates)}}};
  if (absl::StatusOr<Value> y = b.Try(Op::kIndexMap, {operand}, attrs, x.elem); y.ok()) return *y;
  attrs.emplace("fill", Tensor::Zeros(x.dtype(), {}));
  return b.Raw(Op::kIndexMap, {operand}, std::move(attrs), x.elem);
}

Value MapOr(OpBuilder& b, const Value& x, Shape shape, std::vector<Expr> coordinates,
            const Value& outside) {
  if (!b.status().ok()) return FailedValue(x.elem);
  Tensor fill = Tensor::Zeros(x.dtype(), {});
  const bool literal = outside.known != nullptr && outside.known->literal.has_value() &&
                       outside.known->literal->elements() == 1;
  if (literal) fill.bytes = outside.known->literal->bytes;
  const IndexMap map = {std::move(shape), std::move(coordinates)};
  const Value inside = b.Raw(Op::kIndexMap, {x}, {{"map", map}, {"fill", fill}}, x.elem);
  if (literal) return inside;
  const Value all = Splat(b, b.Integer(Elem::kBool, 1), x.shape);
  const Value mask = b.Raw(Op::kIndexMap, {all},
                           {{"map", map}, {"fill", Tensor::Zeros(DType::kBool, {})}}, Elem::kBool);
  return Select(b, mask, inside, outside);
}

Value Splat(OpBuilder& b, const Value& scalar, Shape shape) {
  if (!b.status().ok()) return FailedValue();
  if (scalar.rank() != 0) {
    b.Fail(absl::InternalError(Cat("a splat of ", ShapeToString(scalar.shape), ", not a scalar")));
    return FailedValue();
  }
  if (shape.empty()) return scalar;
  return b.Raw(Op::kIndexMap, {scalar}, {{"map", IndexMap{std::move(shape), {}}}}, scalar.elem);
}

Value Reshape(OpBuilder& b, const Value& x, Shape shape) {
  if (!b.status().ok()) return FailedValue(x.elem);
  if (shape == x.shape) return x;
  Expr from = 1, to = 1;
  for (const Expr& size : x.shape) from *= size;
  for (const Expr& size : shape) to *= size;
  if (from != to && !b.bounds().ProvablyEqual(from, to)) {
    b.Fail(Invalid("a reshape of ", ShapeToString(x.shape), " to ", ShapeToString(shape), ": ",
                   from.ToString(), " elements become ", to.ToString(),
                   from.constant() && to.constant()
                       ? "; the numbers must be equal"
                       : "; the numbers must be equal for every size of the dims, which is not "
                         "proved",
                   b.hints().Of({{from, to}})));
    return FailedValue(x.elem);
  }
  if (HasEmptyAxis(x.shape) || HasEmptyAxis(shape)) {
    return Map(b, x, std::move(shape), std::vector<Expr>(x.shape.size(), Expr(0)));
  }
  std::vector<Expr> coordinates = ReshapeCoordinates(x.shape, shape, b.bounds());
  return Map(b, x, std::move(shape), std::move(coordinates));
}

Value Permute(OpBuilder& b, const Value& x, absl::Span<const int> axes) {
  if (!b.status().ok()) return FailedValue(x.elem);
  std::vector<int> sorted(axes.begin(), axes.end());
  std::sort(sorted.begin(), sorted.end());
  bool once = sorted.size() == x.shape.size();
  for (size_t i = 0; i < sorted.size() && once; ++i) once = sorted[i] == static_cast<int>(i);
  if (!once) {
    b.Fail(Invalid("a permutation of ", ShapeToString(x.shape), " must name each of its ", x.rank(),
                   " axes once"));
    return FailedValue(x.elem);
  }
  Shape shape(axes.size());
  std::vector<Expr> coordinates(axes.size());
  for (int i = 0; i < x.rank(); ++i) {
    shape[i] = x.shape[axes[i]];
    coordinates[axes[i]] = Expr::Axis(i);
  }
  return Map(b, x, std::move(shape), std::move(coordinates));
}

Value Squeeze(OpBuilder& b, const Value& x, absl::Span<const int> axes) {
  if (!b.status().ok()) return FailedValue(x.elem);
  Shape shape;
  std::vector<Expr> coordinates(x.shape.size(), Expr(0));
  for (int i = 0; i < x.rank(); ++i) {
    if (std::find(axes.begin(), axes.end(), i) == axes.end()) {
      coordinates[i] = Expr::Axis(static_cast<int>(shape.size()));
      shape.push_back(x.shape[i]);
    } else if (!x.shape[i].IsConstant(1) && !b.bounds().ProvablyEqual(x.shape[i], 1)) {
      b.Fail(Invalid("axis ", i, " of ", ShapeToString(x.shape), " is to be removed and has size ",
                     x.shape[i].ToString(), "; it must be 1",
                     x.shape[i].constant() ? "" : " for every size of the dims"));
      return FailedValue(x.elem);
    }
  }
  return Map(b, x, std::move(shape), std::move(coordinates));
}

Value Unsqueeze(OpBuilder& b, const Value& x, absl::Span<const int> axes) {
  if (!b.status().ok()) return FailedValue(x.elem);
  Shape shape;
  std::vector<Expr> coordinates;
  const int rank = x.rank() + static_cast<int>(axes.size());
  for (int i = 0; i < rank; ++i) {
    if (std::find(axes.begin(), axes.end(), i) != axes.end()) {
      shape.push_back(1);
    } else if (coordinates.size() < x.shape.size()) {
      shape.push_back(x.shape[coordinates.size()]);
      coordinates.push_back(Expr::Axis(i));
    } else {
      b.Fail(Invalid("new axes of a value of rank ", x.rank(), " must be different and in [0, ",
                     rank - 1, "]"));
      return FailedValue(x.elem);
    }
  }
  return Map(b, x, std::move(shape), std::move(coordinates));
}

Value Slice(OpBuilder& b, const Value& x, int axis, Expr begin, Expr size, int64_t step) {
  if (!b.status().ok()) return FailedValue(x.elem);
  Shape shape = x.shape;
  shape[axis] = std::move(size);
  std::vector<Expr> coordinates = AxesOf(x.rank());
  coordinates[axis] = begin + Expr(step) * Expr::Axis(axis);
  return Map(b, x, std::move(shape), std::move(coordinates));
}

Value Reverse(OpBuilder& b, const Value& x, int axis) {
  if (!b.status().ok()) return FailedValue(x.elem);
  return Slice(b, x, axis, x.shape[axis] - 1, x.shape[axis], -1);
}

Value Concat(OpBuilder& b, absl::Span<const Value> parts, int axis) {
  if (!b.status().ok()) return FailedValue(parts.empty() ? Elem::kFloat : parts[0].elem);
  const Value& first = parts[0];
  std::vector<Value> kept;
  for (const Value& part : parts) {
    if (part.elem != first.elem || part.rank() != first.rank()) {
      b.Fail(Invalid("joined values must have one element type and one rank, not ",
                     ElemName(first.elem), ShapeToString(first.shape), " and ", ElemName(part.elem),
                     ShapeToString(part.shape)));
      return FailedValue(first.elem);
    }
    for (int i = 0; i < first.rank(); ++i) {
      if (i == axis || b.bounds().ProvablyEqual(part.shape[i], first.shape[i])) continue;
      b.Fail(Invalid("values joined along axis ", axis, " have shapes ", ShapeToString(first.shape),
                     " and ", ShapeToString(part.shape), ": axis ", i, " must be equal",
                     first.shape[i].constant() && part.shape[i].constant()
                         ? ""
                         : " for every size of the dims, which is not proved",
                     b.hints().Of(Without(first.shape, axis), Without(part.shape, axis))));
      return FailedValue(first.elem);
    }
    if (!part.shape[axis].IsConstant(0)) kept.push_back(part);
  }
  if (kept.empty()) return first;
  // Joins in layers, so that each selection is among few values.
  while (kept.size() > kJoinedAtOnce) {
    std::vector<Value> joined;
    for (size_t i = 0; i < kept.size(); i += kJoinedAtOnce) {
      const size_t count = std::min(kJoinedAtOnce, kept.size() - i);
      joined.push_back(Concat(b, absl::MakeConstSpan(kept).subspan(i, count), axis));
    }
    if (!b.status().ok()) return FailedValue(first.elem);
    kept = std::move(joined);
  }
  if (kept.size() == 1) return kept[0];
  Shape shape = kept[0].shape;
  std::vector<Expr> begins;
  shape[axis] = 0;
  for (const Value& part : kept) {
    begins.push_back(shape[axis]);
    shape[axis] += part.shape[axis];
  }
  const Value position = b.Iota(Elem::kInt64, shape, axis);
  Value result;
  for (size_t k = kept.size(); k-- > 0;) {
    std::vector<Expr> coordinates = AxesOf(first.rank());
    coordinates[axis] = coordinates[axis] - begins[k];
    const Value spread =
        b.Raw(Op::kIndexMap, {kept[k]},
              {{"map", IndexMap{shape, coordinates}}, {"fill", Tensor::Zeros(first.dtype(), {})}},
              first.elem);
    result = k + 1 == kept.size()
                 ? spread
                 : Select(b, Less(b, position, Size(b, Elem::kInt64, begins[k + 1], shape)), spread,
                          result);
  }
  return result;
}

}  // namespace athanor::onnx
