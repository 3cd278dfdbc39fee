// Handler of DeformConv: samples at positions given as data, then a contraction.
#include <cstdint>
#include <utility>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/build/build_window.h"
#include "compiler/frontend/onnx/ops/networks/handlers_window.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// Limit on the number of kernel elements, small enough to avoid overflow.
constexpr int64_t kMaxTaps = int64_t{1} << 31;

// The samples [N, C, T, out...], where T counts the kernel's elements in row-major order.
struct Samples {
  Shape shape;
  std::vector<int64_t> kernel, strides, dilations;
  Shape begin;
  int64_t taps = 1, offset_groups = 1;
  Expr channels_per_offset;  // channels of x per offset group

  int rank() const { return static_cast<int>(kernel.size()); }
  Expr OffsetGroup() const { return FloorDiv(Expr::Axis(1), channels_per_offset); }
  // Returns the kernel's coordinate on a spatial axis.
  Expr Tap(int axis) const {
    int64_t behind = 1;
    for (int i = axis + 1; i < rank(); ++i) behind *= kernel[i];
    return Mod(FloorDiv(Expr::Axis(2), behind), kernel[axis]);
  }
  // Returns coordinates in a tensor [N, offset_groups * T * per_tap, out...].
  std::vector<Expr> InOffsets(int64_t per_tap, int64_t which) const {
    std::vector<Expr> at = {Expr::Axis(0),
                            (OffsetGroup() * taps + Expr::Axis(2)) * per_tap + which};
    for (int i = 0; i < rank(); ++i) at.push_back(Expr::Axis(3 + i));
    return at;
  }
};

// Returns the position of each sample on a spatial axis of x, as floats: the convolution's position
// plus the offset.
Value Place(OpBuilder& b, const Samples& s, const Value& offset, int axis) {
  const Expr at = Expr::Axis(3 + axis) * s.strides[axis] + s.Tap(axis) * s.dilations[axis];
  const Expr count = s.shape[3 + axis] * s.strides[axis] + s.kernel[axis] * s.dilations[axis];
  const Value numbers = b.Iota(Elem::kInt64, {count}, 0);
  const Value begin = Size(b, Elem::kInt64, s.begin[axis], {count});
  const Value whole = Map(b, Cast(b, Sub(b, numbers, begin), offset.elem), s.shape, {at});
  return Add(b, whole, Map(b, offset, s.shape, s.InOffsets(s.rank(), axis)));
}

// Interpolates linearly between the elements around each position; elements outside x are 0.
Value Interpolated(OpBuilder& b, const Value& x, const Samples& s, absl::Span<const Value> places) {
  std::vector<Value> floors, fractions;
  for (const Value& p : places) {
    const Value floor = Unary(b, Op::kFloor, p);
    fractions.push_back(Sub(b, p, floor));
    floors.push_back(Cast(b, floor, Elem::kInt64));
  }
  const Value one = b.Scalar(x.elem, 1), zero = b.Integer(Elem::kInt64, 0);
  Value sum;
  for (int corner = 0; corner < 1 << s.rank(); ++corner) {
    std::vector<Value> at = {b.Iota(Elem::kInt64, s.shape, 0), b.Iota(Elem::kInt64, s.shape, 1)};
    Value inside, weight;
    for (int i = 0; i < s.rank(); ++i) {
      const bool upper = (corner >> i & 1) != 0;
      const Value index = upper ? Add(b, floors[i], b.Integer(Elem::kInt64, 1)) : floors[i];
      const Value last = Size(b, Elem::kInt64, x.shape[2 + i] - 1, s.shape);
      const Value in = And(b, LessEqual(b, zero, index), LessEqual(b, index, last));
      const Value part = upper ? fractions[i] : Sub(b, one, fractions[i]);
      inside = i == 0 ? in : And(b, inside, in);
      weight = i == 0 ? part : Mul(b, weight, part);
      at.push_back(Max(b, zero, Min(b, index, last)));
    }
    const Value term = Select(b, inside, Mul(b, GatherAt(b, x, at), weight), b.Scalar(x.elem, 0));
    sum = corner == 0 ? term : Add(b, sum, term);
  }
  return sum;
}

struct Groups {
  int64_t channels, maps, group;
};

absl::StatusOr<Samples> SamplesOf(const HandlerContext& c, OpBuilder& b, const Groups& groups) {
  const Value &x = c.In(0), &w = c.In(1), &offset = c.In(2);
  ASSIGN_OR_RETURN(Shape sizes, SpatialSizes("X", x));
  std::vector<int64_t> kernel;
  for (int i = 2; i < w.rank(); ++i) kernel.push_back(w.shape[i].constant().value_or(0));
  const std::vector<int64_t> stated = IntsOrNone(c, "kernel_shape");
  if (!stated.empty() && stated != kernel) {
    return Invalid("attribute kernel_shape is not that of W, ", ShapeToString(w.shape));
  }
  ASSIGN_OR_RETURN(Window window,
                   WindowOf(sizes, kernel, IntsOrNone(c, "strides"), IntsOrNone(c, "dilations"),
                            IntsOrNone(c, "pads"), "NOTSET", false));
  Samples s;
  s.kernel = kernel;
  s.strides = window.strides;
  s.dilations = window.dilations;
  s.begin = window.begin;
  Expr taps = 1;
  for (int64_t k : kernel) taps *= k;
  if (!taps.constant() || *taps.constant() >= kMaxTaps) {
    return Invalid("W has shape ", ShapeToString(w.shape), "; a kernel has at most ", kMaxTaps,
                   " elements");
  }
  s.taps = *taps.constant();
  s.offset_groups = c.Int("offset_group");
  if (s.offset_groups < 1 || groups.channels % s.offset_groups != 0) {
    return Invalid("attribute offset_group is ", s.offset_groups, "; it must divide the ",
                   groups.channels, " channels of X");
  }
  s.channels_per_offset = groups.channels / s.offset_groups;
  s.shape = {x.shape[0], x.shape[1], s.taps};
  s.shape.insert(s.shape.end(), window.out.begin(), window.out.end());
  const auto check = [&](std::string_view what, const Value& v, int64_t per_tap) -> absl::Status {
    Shape right = {x.shape[0], Expr(s.offset_groups) * s.taps * per_tap};
    right.insert(right.end(), window.out.begin(), window.out.end());
    bool same = v.rank() == static_cast<int>(right.size());
    for (int i = 0; same && i < v.rank(); ++i) {
      same = b.bounds().ProvablyEqual(v.shape[i], right[i]);
    }
    if (same) return absl::OkStatus();
    return Invalid(what, " has shape ", ShapeToString(v.shape), "; it must be ",
                   ShapeToString(right));
  };
  absl::Status status = check("offset", offset, s.rank());
  if (status.ok() && c.Has(4)) status = check("mask", c.In(4), 1);
  if (!status.ok()) return status;
  return s;
}

absl::StatusOr<Groups> GroupsOf(const HandlerContext& c) {
  const Value &x = c.In(0), &w = c.In(1);
  const int64_t group = c.Int("group");
  bool fits = w.rank() == x.rank() && w.rank() >= 3 && group >= 1;
  for (const Expr& size : w.shape) fits = fits && size.constant().has_value();
  if (fits) {
    const int64_t maps = *w.shape[0].constant();
    const std::optional<int64_t> channels = (w.shape[1] * group).constant();
    if (maps % group == 0 && maps > 0 && channels && x.shape[1].IsConstant(*channels)) {
      return Groups{*channels, maps, group};
    }
  }
  return Invalid("X has shape ", ShapeToString(x.shape), ", W has ", ShapeToString(w.shape),
                 ", group is ", group,
                 "; W must be [M, C/group, ...] of constant sizes, C the channels of X, and group "
                 "must divide both");
}

}  // namespace

absl::Status DeformConv(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(Groups groups, GroupsOf(c));
  ASSIGN_OR_RETURN(Samples s, SamplesOf(c, b, groups));
  const Value x = Up(b, c.In(0)), w = Up(b, c.In(1)), offset = Up(b, c.In(2));
  if (!b.status().ok()) return b.status();
  std::vector<Value> places;
  for (int i = 0; i < s.rank(); ++i) places.push_back(Place(b, s, offset, i));
  Value samples = Interpolated(b, x, s, places);
  if (c.Has(4)) samples = Mul(b, samples, Map(b, Up(b, c.In(4)), s.shape, s.InOffsets(1, 0)));
  const int64_t group = groups.group, per_group = groups.channels / group;
  Shape split = {x.shape[0], group, per_group};
  split.insert(split.end(), s.shape.begin() + 2, s.shape.end());
  const std::string outs = std::string("uvwxyz").substr(0, s.rank());
  const Value sum = Contract(b, "ngct" + outs + ",gmct->ngm" + outs, Reshape(b, samples, split),
                             Reshape(b, w, {group, groups.maps / group, per_group, s.taps}));
  Shape shape = {x.shape[0], groups.maps};
  shape.insert(shape.end(), s.shape.begin() + 3, s.shape.end());
  Value y = Reshape(b, sum, shape);
  if (c.Has(3)) {
    const Value& bias = c.In(3);
    if (bias.rank() != 1 || !bias.shape[0].IsConstant(groups.maps)) {
      return Invalid("B has shape ", ShapeToString(bias.shape), "; it must be [", groups.maps, "]");
    }
    y = Add(b, y, Map(b, Up(b, bias), shape, {Expr::Axis(1)}));
  }
  c.Set(0, Cast(b, y, c.In(0).elem));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
