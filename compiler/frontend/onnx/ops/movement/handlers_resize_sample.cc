// Handlers: sampling an image at positions given as data, and the grids of such positions.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/frontend/onnx/ops/movement/handlers_resize.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr double kCubicA = -0.75;
constexpr size_t kMaxTaps = 256;

struct Sampling {
  std::string mode, padding;
  bool align_corners = false;
};

// Borders at which positions along an axis are reflected: its first and last, at centres or at
// edges.
struct Borders {
  Value low, high;
};
Borders BordersOf(OpBuilder& b, const Sampling& sampling, Elem elem, const Expr& size) {
  const Value last = Size(b, elem, size - 1, {});
  if (sampling.align_corners) return {b.Scalar(elem, 0), last};
  return {b.Scalar(elem, -0.5), Add(b, last, b.Scalar(elem, 0.5))};
}

// Reflects positions between the borders as often as needed; a position inside stays as it is.
Value Reflect(OpBuilder& b, const Value& x, const Borders& borders) {
  const auto number = [&](double v) { return b.Scalar(x.elem, v); };
  const Value range = Sub(b, borders.high, borders.low);
  const Value away = Abs(b, Sub(b, x, borders.low));
  const Value turns = Unary(b, Op::kFloor, Div(b, away, range));
  const Value rest = Sub(b, away, Mul(b, turns, range));
  const Value half = Mul(b, turns, number(0.5));
  const Value even = Equal(b, Unary(b, Op::kFloor, half), half);
  const Value folded = Select(b, even, Add(b, borders.low, rest), Sub(b, borders.high, rest));
  const Value outside = Or(b, Less(b, x, borders.low), Less(b, borders.high, x));
  // A single element is the only possible position.
  const Value single = Equal(b, range, number(0));
  return Select(b, outside, Select(b, single, borders.low, folded), x);
}

// Returns the positions along one axis of the image: unnormalised, and moved inside if the padding
// mode does so.
Value PositionsOf(OpBuilder& b, const Sampling& sampling, const Value& normal, const Expr& size) {
  const auto number = [&](double v) { return b.Scalar(normal.elem, v); };
  const Value length = Size(b, normal.elem, size, {}), one = number(1), two = number(2);
  const Value from_first = Add(b, normal, one);
  Value x = sampling.align_corners ? Mul(b, Div(b, from_first, two), Sub(b, length, one))
                                   : Div(b, Sub(b, Mul(b, from_first, length), one), two);
  if (sampling.mode == "nearest") x = Unary(b, Op::kRound, x);
  // In cubic mode a position outside stays there, as in PyTorch; only its neighbours are moved
  // inside.
  const bool stays = sampling.mode == "cubic";
  if (sampling.padding == "border" && !stays) {
    return Clamp(b, x, number(0), Sub(b, length, one));
  }
  if (sampling.padding != "reflection") return x;
  return Reflect(b, x, BordersOf(b, sampling, x.elem, size));
}

// A neighbour of a position along one axis: its position, whether it is inside, and its weight.
struct Tap {
  Value at, inside, weight;
};
std::vector<Tap> TapsOf(OpBuilder& b, const Sampling& sampling, const Value& x, const Expr& size) {
  const auto number = [&](double v) { return b.Scalar(x.elem, v); };
  const Value below = sampling.mode == "nearest" ? x : Unary(b, Op::kFloor, x);
  const Value ratio = Sub(b, x, below);
  const Value last = Size(b, x.elem, size - 1, {});
  int first = 0, count = 1;
  if (sampling.mode == "linear") count = 2;
  if (sampling.mode == "cubic") first = -1, count = 4;
  std::vector<Tap> taps;
  for (int i = 0; i < count; ++i) {
    const Value offset = number(first + i), distance = Sub(b, offset, ratio);
    Tap tap;
    Value place = Add(b, below, offset);
    tap.inside = And(b, LessEqual(b, number(0), place), LessEqual(b, place, last));
    if (sampling.padding == "reflection") {
      place = Reflect(b, place, BordersOf(b, sampling, x.elem, size));
    }
    tap.at = Clamp(b, Cast(b, place, Elem::kInt64), b.Integer(Elem::kInt64, 0),
                   Size(b, Elem::kInt64, size - 1, {}));
    tap.weight = sampling.mode == "cubic" ? CubicWeight(b, distance, kCubicA)
                                          : Sub(b, number(1), Abs(b, distance));
    taps.push_back(std::move(tap));
  }
  return taps;
}

// A neighbour along all axes together.
struct Corner {
  Value at;  // row-major
  Value inside, weight;
};
std::vector<Corner> CornersOf(OpBuilder& b, const std::vector<std::vector<Tap>>& taps,
                              const Shape& sizes) {
  std::vector<Corner> corners;
  for (const Tap& tap : taps[0]) corners.push_back({tap.at, tap.inside, tap.weight});
  for (size_t axis = 1; axis < taps.size(); ++axis) {
    const Value size = Size(b, Elem::kInt64, sizes[axis], {});
    std::vector<Corner> next;
    for (const Corner& corner : corners) {
      for (const Tap& tap : taps[axis]) {
        next.push_back({Add(b, Mul(b, corner.at, size), tap.at), And(b, corner.inside, tap.inside),
                        Mul(b, corner.weight, tap.weight)});
      }
    }
    corners = std::move(next);
  }
  return corners;
}

absl::Status GridSample(HandlerContext& c, const Sampling& sampling) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &grid = c.In(1);
  const int axes = x.rank() - 2;
  if (axes < 1 || grid.rank() != x.rank() || !b.bounds().ProvablyEqual(grid.shape.back(), axes)) {
    return Invalid("its operands have shapes ", ShapeToString(x.shape), " and ",
                   ShapeToString(grid.shape),
                   "; they must be [N, C, sizes..] and [N, sizes.., number of sizes]");
  }
  size_t taps_in_all = 1;
  for (int i = 0; i < axes; ++i) {
    taps_in_all *= sampling.mode == "cubic" ? 4 : sampling.mode == "linear" ? 2 : 1;
    if (taps_in_all > kMaxTaps) return Unimplemented("it has ", axes, " axes, too many to sample");
  }
  const Shape sizes(x.shape.begin() + 2, x.shape.end());
  const Value positions = Up(b, grid);
  std::vector<std::vector<Tap>> taps;
  for (int i = 0; i < axes; ++i) {
    // The last coordinate belongs to the first axis.
    const Value normal = Squeeze(b, Slice(b, positions, axes + 1, axes - 1 - i, 1), {axes + 1});
    taps.push_back(TapsOf(b, sampling, PositionsOf(b, sampling, normal, sizes[i]), sizes[i]));
  }
  // Arranges rows of all channels of a position.
  std::vector<int> order = {0}, back = {0, axes + 1};
  for (int i = 0; i < axes; ++i) {
    order.push_back(2 + i);
    back.push_back(1 + i);
  }
  order.push_back(1);
  const Expr area = ProductOf(sizes);
  const bool nearest = sampling.mode == "nearest";
  const Value rows = Reshape(b, Permute(b, x, order), {x.shape[0] * area, x.shape[1]});
  const Shape out(grid.shape.begin(), grid.shape.end() - 1);
  const Value image = Mul(b, b.Iota(Elem::kInt64, out, 0), Size(b, Elem::kInt64, area, {}));
  const Elem elem = nearest ? x.elem : InterpolationElem(x.elem);
  const Value zero = nearest ? ZeroOf(b, elem) : b.Scalar(elem, 0);
  Value y;
  bool first = true;
  for (const Corner& corner : CornersOf(b, taps, sizes)) {
    Value taken =
        b.Raw(Op::kGather, {rows, Add(b, image, corner.at)}, {{"axis", int64_t{0}}}, x.elem);
    if (!nearest) taken = Cast(b, taken, elem);
    if (sampling.padding == "zeros") {
      taken = Select(b, Unsqueeze(b, corner.inside, {axes + 1}), taken, zero);
    }
    if (!nearest) taken = Mul(b, taken, Unsqueeze(b, Cast(b, corner.weight, elem), {axes + 1}));
    y = first ? taken : Add(b, y, taken);
    first = false;
  }
  c.Set(0, Cast(b, Permute(b, y, back), x.elem));
  return absl::OkStatus();
}

absl::StatusOr<Sampling> SamplingOf(HandlerContext& c, absl::Span<const std::string_view> modes) {
  ASSIGN_OR_RETURN(const std::string mode, c.OneOf("mode", modes));
  ASSIGN_OR_RETURN(const std::string padding,
                   c.OneOf("padding_mode", {"zeros", "border", "reflection"}));
  const std::string renamed = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
  return Sampling{renamed, padding, c.Int("align_corners") != 0};
}

}  // namespace

absl::Status GridSample16(HandlerContext& c) {
  const absl::StatusOr<Sampling> sampling = SamplingOf(c, {"bilinear", "nearest", "bicubic"});
  return sampling.ok() ? GridSample(c, *sampling) : sampling.status();
}
absl::Status GridSample20(HandlerContext& c) {
  const absl::StatusOr<Sampling> sampling = SamplingOf(c, {"linear", "nearest", "cubic"});
  return sampling.ok() ? GridSample(c, *sampling) : sampling.status();
}

absl::Status AffineGrid20(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& theta = c.In(0);
  ASSIGN_OR_RETURN(const std::vector<Expr> size, c.Sizes(1, "size"));
  const int axes = static_cast<int>(size.size()) - 2;
  if ((axes != 2 && axes != 3) || theta.rank() != 3 ||
      !b.bounds().ProvablyEqual(theta.shape[1], axes) ||
      !b.bounds().ProvablyEqual(theta.shape[2], axes + 1)) {
    return Invalid("its theta has shape ", ShapeToString(theta.shape), " and its size ",
                   size.size(), " numbers; it needs [N, 2, 3] and 4, or [N, 3, 4] and 5");
  }
  RETURN_IF_ERROR(CheckSizes("size", size, b.bounds()));
  const auto number = [&](double v) { return b.Scalar(Elem::kDouble, v); };
  const Value matrix = Cast(b, theta, Elem::kDouble);
  // Returns column k of theta as [N, 1.., axes]. The first column belongs to the last axis; the
  // offset comes after all axes.
  const auto column = [&](int k) {
    const Value picked = Slice(b, matrix, 2, k, 1);
    Shape shape = {theta.shape[0]};
    shape.resize(1 + axes, Expr(1));
    shape.push_back(axes);
    return Reshape(b, picked, shape);
  };
  Value y = column(axes);
  for (int k = 0; k < axes; ++k) {
    const Expr& extent = size[2 + axes - 1 - k];
    const Value i = b.Iota(Elem::kDouble, {extent}, 0), length = Size(b, Elem::kDouble, extent, {});
    Value at;
    if (c.Int("align_corners") != 0) {
      const Value steps = Sub(b, length, number(1));
      const Value spread = Sub(b, Div(b, Mul(b, i, number(2)), steps), number(1));
      at = Select(b, Equal(b, length, number(1)), number(0), spread);  // one element: the centre
    } else {
      at = Sub(b, Div(b, Add(b, Mul(b, i, number(2)), number(1)), length), number(1));
    }
    std::vector<int> added;
    for (int j = 0; j <= k; ++j) added.push_back(1 + j);
    y = Add(b, y, Mul(b, column(k), Unsqueeze(b, at, added)));
  }
  c.Set(0, Cast(b, y, theta.elem));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
