// Handlers: reshapes; also the family's rows.
#include "compiler/frontend/onnx/ops/movement/handlers_movement.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// Resolves a shape: 0 copies a size unless `allowzero`; -1 takes the rest.
absl::StatusOr<Shape> ReshapedTo(const Shape& from, std::vector<Expr> to, bool allowzero,
                                 OpBuilder& b) {
  const Bounds& bounds = b.bounds();
  std::optional<size_t> unknown;
  bool zero = false;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].IsConstant(-1)) {
      if (unknown.has_value()) return Invalid("its shape holds -1 twice; at most one size is open");
      unknown = i;
    } else if (to[i].IsConstant(0) && !allowzero) {
      if (i >= from.size()) {
        return Invalid("its shape holds 0 at ", i, ", which copies axis ", i, " of ",
                       ShapeToString(from), ", but there is no such axis");
      }
      to[i] = from[i];
    }
    zero = zero || to[i].IsConstant(0);
  }
  const std::optional<size_t> open = unknown;
  std::vector<Expr> rest;
  for (size_t i = 0; i < to.size(); ++i) {
    if (i != open) rest.push_back(to[i]);
  }
  RETURN_IF_ERROR(CheckSizes("shape", rest, bounds));
  if (!open.has_value()) return to;
  const Expr total = ProductOf(from), others = ProductOf(rest);
  if (zero) {
    return Invalid("its shape holds -1 and 0, so the size of -1 is undefined");
  }
  const std::optional<Expr> quotient = ExactQuotient(total, others, bounds);
  if (!quotient.has_value()) {
    return Invalid("its shape holds -1, but the ", total.ToString(), " elements of ",
                   ShapeToString(from), " do not divide by ", others.ToString(),
                   total.constant() && others.constant() ? "" : " for every size of the dims",
                   b.hints().OfDivisible(total, others));
  }
  to[*open] = *quotient;
  return to;
}

absl::Status ReshapeTo(HandlerContext& c, bool allowzero) {
  ASSIGN_OR_RETURN(std::vector<Expr> to, c.Sizes(1, "shape"));
  ASSIGN_OR_RETURN(Shape shape, ReshapedTo(c.In(0).shape, std::move(to), allowzero, c.b()));
  c.Set(0, Reshape(c.b(), c.In(0), std::move(shape)));
  return absl::OkStatus();
}
absl::Status Reshape5(HandlerContext& c) { return ReshapeTo(c, /*allowzero=*/false); }
absl::Status Reshape14(HandlerContext& c) { return ReshapeTo(c, c.Int("allowzero") != 0); }

absl::Status Flatten1(HandlerContext& c) {
  const Shape& shape = c.In(0).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  const int64_t given = c.Int("axis"), axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis > rank) {
    return Invalid("attribute \"axis\" is ", given, "; it must be in [", -rank, ", ", rank, "]");
  }
  const absl::Span<const Expr> all = shape;
  c.Set(0, Reshape(c.b(), c.In(0), {ProductOf(all.first(axis)), ProductOf(all.subspan(axis))}));
  return absl::OkStatus();
}

absl::Status Transpose1(HandlerContext& c) {
  const int rank = c.In(0).rank();
  std::vector<int> axes;
  for (int64_t axis : c.Ints("perm")) {
    if (axis < 0 || axis >= rank) {
      return Invalid("attribute \"perm\" holds ", axis, ", and its operand has shape ",
                     ShapeToString(c.In(0).shape), "; it must hold each of its axes once");
    }
    axes.push_back(static_cast<int>(axis));
  }
  if (!c.Given("perm")) {
    for (int i = rank; i-- > 0;) axes.push_back(i);
  }
  c.Set(0, Permute(c.b(), c.In(0), axes));
  return absl::OkStatus();
}

absl::Status SqueezeAxes(HandlerContext& c, const std::optional<std::vector<int64_t>>& given) {
  const Value& x = c.In(0);
  std::vector<int> axes;
  if (given.has_value()) {
    ASSIGN_OR_RETURN(axes, c.Axes(*given, x.rank()));
  } else {
    const Bounds& bounds = c.b().bounds();
    for (int i = 0; i < x.rank(); ++i) {
      if (bounds.ProvablyEqual(x.shape[i], 1)) {
        axes.push_back(i);
      } else if (bounds.Minimum(x.shape[i]).value_or(0) <= 1 && !x.shape[i].IsConstant(0)) {
        return Unimplemented("it has no axes, and axis ", i, " of ", ShapeToString(x.shape),
                             " may or may not be 1: how many axes are left must not depend on "
                             "the dims; name the axes");
      }
    }
  }
  c.Set(0, Squeeze(c.b(), x, axes));
  return absl::OkStatus();
}
absl::Status Squeeze1(HandlerContext& c) {
  if (!c.Given("axes")) return SqueezeAxes(c, std::nullopt);
  return SqueezeAxes(c, c.Ints("axes"));
}
absl::Status Squeeze13(HandlerContext& c) {
  if (!c.Has(1)) return SqueezeAxes(c, std::nullopt);
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.Integers(1, "axes"));
  return SqueezeAxes(c, axes);
}

absl::Status UnsqueezeAxes(HandlerContext& c, absl::Span<const int64_t> given) {
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(std::vector<int> axes, c.Axes(given, x.rank() + static_cast<int>(given.size())));
  c.Set(0, Unsqueeze(c.b(), x, axes));
  return absl::OkStatus();
}
absl::Status Unsqueeze1(HandlerContext& c) { return UnsqueezeAxes(c, c.Ints("axes")); }
absl::Status Unsqueeze13(HandlerContext& c) {
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, c.Integers(1, "axes"));
  return UnsqueezeAxes(c, axes);
}

constexpr HandlerRow kRows[] = {
    {"", "Reshape", 5, Reshape5},
    {"", "Reshape", 14, Reshape14},
    {"", "Flatten", 1, Flatten1},
    {"", "Transpose", 1, Transpose1},
    {"", "Squeeze", 1, Squeeze1},
    {"", "Squeeze", 13, Squeeze13},
    {"", "Unsqueeze", 1, Unsqueeze1},
    {"", "Unsqueeze", 13, Unsqueeze13},
    {"", "Slice", 1, Slice1},
    {"", "Slice", 10, Slice10},
    {"", "Split", 2, Split2},
    {"", "Split", 13, Split13},
    {"", "Split", 18, Split18},
    {"", "Concat", 1, Concat1},
    {"", "Expand", 8, Expand8},
    {"", "Tile", 6, Tile6},
    {"", "Trilu", 14, Trilu14},
    {"", "ReverseSequence", 10, ReverseSequence10},
    {"", "Pad", 2, Pad2},
    {"", "Pad", 11, Pad11},
    {"", "CenterCropPad", 18, CenterCropPad18},
    {"", "DepthToSpace", 1, DepthToSpace1},
    {"", "DepthToSpace", 11, DepthToSpace11},
    {"", "SpaceToDepth", 1, SpaceToDepth1},
    {"", "SpaceToDepth", 28, SpaceToDepth28},
    {"", "Col2Im", 18, Col2Im18},
};

}  // namespace

absl::Span<const HandlerRow> MovementRows() { return kRows; }

}  // namespace athanor::onnx
