// Handlers: pooling over regions given as data.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/frontend/onnx/ops/movement/handlers_resize.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr int64_t kMaxSamples = 64;  // per bin and axis

struct Align {
  bool half_pixel = true, maximum = false;
  int64_t height = 1, width = 1, ratio = 0;
  double scale = 1;
};

// Regions along one axis, each [R]: the start, the length of a bin, and the number of samples per
// bin, which is at most `most`.
struct Regions {
  Value start, bin, samples;
  int64_t most = 0;
};

absl::StatusOr<Regions> RegionsOf(HandlerContext& c, const Align& align, bool vertical) {
  OpBuilder& b = c.b();
  const Value rois = Up(b, c.In(1));
  const auto number = [&](double v) { return Nearest(b, rois.elem, v); };
  const int64_t bins = vertical ? align.height : align.width, at = vertical ? 1 : 0;
  const Value offset = number(align.half_pixel ? 0.5 : 0);
  const auto edge = [&](int64_t column) {
    const Value one = Squeeze(b, Slice(b, rois, 1, column, 1), {1});
    return Sub(b, Mul(b, one, number(align.scale)), offset);
  };
  Regions regions;
  regions.start = edge(at);
  Value extent = Sub(b, edge(at + 2), regions.start);
  // Empty or negative regions get the size of one element.
  if (!align.half_pixel) extent = Max(b, extent, number(1));
  regions.bin = Div(b, extent, number(static_cast<double>(bins)));
  if (align.ratio > 0) {
    regions.most = align.ratio;
    regions.samples = number(static_cast<double>(align.ratio));
    return regions;
  }
  // The number of samples per bin depends on the regions, so these must be known.
  ASSIGN_OR_RETURN(const std::vector<double> known, c.Numbers(1, "rois (with sampling_ratio 0)"));
  for (size_t i = 0; i + 3 < known.size(); i += 4) {
    const double length = (known[i + at + 2] - known[i + at]) * align.scale;
    const double longest = align.half_pixel ? length : std::max(length, 1.0);
    const double count = std::ceil(longest / static_cast<double>(bins));
    if (!(count <= kMaxSamples)) {
      return Unimplemented("region ", i / 4, " takes ", count, " samples of a bin; at most ",
                           kMaxSamples, " are taken");
    }
    regions.most = std::max(regions.most, static_cast<int64_t>(std::max(count, 0.0)));
  }
  regions.most = std::max<int64_t>(regions.most, 1);
  // -floor(-x) rounds up.
  regions.samples = Neg(b, Unary(b, Op::kFloor, Neg(b, regions.bin)));
  return regions;
}

// The samples along one axis, [R, bins, most]: the two elements around each, their weights, and
// whether the sample counts.
struct Samples {
  Value low, high, low_weight, high_weight;
  Value inside;  // sample is inside the image; otherwise its weights are 0
  Value taken;   // sample belongs to the bin
};
Samples SamplesOf(OpBuilder& b, const Regions& regions, int64_t bins, const Expr& size) {
  const Elem elem = regions.bin.elem;
  const auto number = [&](double v) { return b.Scalar(elem, v); };
  const auto column = [&](const Value& v) { return v.rank() == 0 ? v : Unsqueeze(b, v, {1, 2}); };
  const Value bin = b.Iota(elem, {bins, 1}, 0), sample = b.Iota(elem, {1, regions.most}, 1);
  const Value length = column(regions.bin), count = column(regions.samples);
  const Value within = Div(b, Mul(b, Add(b, sample, number(0.5)), length), count);
  Value at = Add(b, Add(b, column(regions.start), Mul(b, bin, length)), within);
  const Value extent = Size(b, elem, size, {}), last = Size(b, elem, size - 1, {});
  Samples samples;
  samples.inside = And(b, LessEqual(b, number(-1), at), LessEqual(b, at, extent));
  samples.taken = Less(b, sample, Broadcast(b, count, {regions.bin.shape[0], 1, 1}));
  at = Min(b, Max(b, at, number(0)), last);
  const Value below = Unary(b, Op::kFloor, at);
  samples.high_weight = Sub(b, at, below);
  samples.low_weight = Sub(b, number(1), samples.high_weight);
  const Value limit = Size(b, Elem::kInt64, size - 1, {}), zero = b.Integer(Elem::kInt64, 0);
  samples.low = Clamp(b, Cast(b, below, Elem::kInt64), zero, limit);
  samples.high = Min(b, Add(b, samples.low, b.Integer(Elem::kInt64, 1)), limit);
  return samples;
}

absl::Status RoiAlign(HandlerContext& c, const Align& align) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &rois = c.In(1), &images = c.In(2);
  if (x.rank() != 4 || rois.rank() != 2 || images.rank() != 1 ||
      !b.bounds().ProvablyEqual(rois.shape[1], 4)) {
    return Invalid("its operands have shapes ", ShapeToString(x.shape), ", ",
                   ShapeToString(rois.shape), " and ", ShapeToString(images.shape),
                   "; they must be [N, C, H, W], [R, 4] and [R]");
  }
  if (align.height < 1 || align.width < 1 || align.ratio < 0 || align.ratio > kMaxSamples) {
    return Invalid("its output_height, output_width and sampling_ratio are ", align.height, ", ",
                   align.width, " and ", align.ratio,
                   "; a result needs sizes of 1 or more, and a ratio is 0 to ", kMaxSamples);
  }
  ASSIGN_OR_RETURN(const Regions vertical, RegionsOf(c, align, true));
  ASSIGN_OR_RETURN(const Regions horizontal, RegionsOf(c, align, false));
  if (!b.status().ok()) return absl::OkStatus();  // the builder reports the failure
  const Expr &height = x.shape[2], &width = x.shape[3], &count = rois.shape[0];
  const Samples v = SamplesOf(b, vertical, align.height, height),
                h = SamplesOf(b, horizontal, align.width, width);
  // [R, bins, samples, 1, 1] and [R, 1, 1, bins, samples]
  const auto down = [&](const Value& s) { return Unsqueeze(b, s, {3, 4}); };
  const auto across = [&](const Value& s) { return Unsqueeze(b, s, {1, 2}); };
  const Value rows =
      Reshape(b, Permute(b, x, {0, 2, 3, 1}), {x.shape[0] * height * width, x.shape[1]});
  const Value first =
      Mul(b, Cast(b, images, Elem::kInt64), Size(b, Elem::kInt64, height * width, {}));
  // A wrong image index could still give a valid flat position, so it is checked itself.
  const Value there = And(b, LessEqual(b, b.Integer(images.elem, 0), images),
                          Less(b, images, Size(b, images.elem, x.shape[0], {})));
  const Value image =
      Unsqueeze(b, Select(b, there, first, b.Integer(Elem::kInt64, -1)), {1, 2, 3, 4});
  const Value inside = And(b, down(v.inside), across(h.inside));
  const Value none = b.Scalar(Up(b, x).elem, 0);
  const Value line = Size(b, Elem::kInt64, width, {});
  const auto corner = [&](bool lower, bool right) {
    const Value at =
        Add(b, Mul(b, down(lower ? v.high : v.low), line), across(right ? h.high : h.low));
    const Value place =
        Select(b, Less(b, image, b.Integer(Elem::kInt64, 0)), image, Add(b, image, at));
    const Value weight = Mul(b, down(lower ? v.high_weight : v.low_weight),
                             across(right ? h.high_weight : h.low_weight));
    const Value used = Cast(b, Select(b, inside, weight, b.Scalar(weight.elem, 0)), none.elem);
    const Value taken = Up(b, b.Raw(Op::kGather, {rows, place}, {{"axis", int64_t{0}}}, x.elem));
    return Mul(b, taken, Unsqueeze(b, used, {5}));
  };
  const Value p[] = {corner(false, false), corner(false, true), corner(true, false),
                     corner(true, true)};
  const Value counts = Unsqueeze(b, And(b, down(v.taken), across(h.taken)), {5});
  Value y;
  if (align.maximum) {
    // Takes the largest weighted corner, as the operator is defined, not the largest interpolated
    // sample.
    const Value best = Max(b, Max(b, p[0], p[1]), Max(b, p[2], p[3]));
    const Value lowest = b.Scalar(none.elem, -std::numeric_limits<double>::infinity());
    y = Reduce(b, Op::kMaxReduce, Select(b, counts, best, lowest), {2, 4}, /*keepdims=*/false);
    const Value any = Reduce(b, Op::kMaxReduce, counts, {2, 4}, /*keepdims=*/false);
    y = Select(b, any, y, none);
  } else {
    const Value sample = Add(b, Add(b, p[0], p[1]), Add(b, p[2], p[3]));
    const Value sum =
        Reduce(b, Op::kSumReduce, Select(b, counts, sample, none), {2, 4}, /*keepdims=*/false);
    const Value taken = Mul(b, vertical.samples, horizontal.samples);
    const Value divisor = Cast(b, Max(b, taken, b.Scalar(taken.elem, 1)), none.elem);
    y = Div(b, sum, Unsqueeze(b, Broadcast(b, divisor, {count}), {1, 2, 3}));
  }
  c.Set(0, Cast(b, Permute(b, y, {0, 3, 1, 2}), x.elem));
  return absl::OkStatus();
}

absl::StatusOr<Align> AlignOf(HandlerContext& c) {
  Align align;
  ASSIGN_OR_RETURN(const std::string mode, c.OneOf("mode", {"avg", "max"}));
  align.maximum = mode == "max";
  align.height = c.Int("output_height");
  align.width = c.Int("output_width");
  align.ratio = c.Int("sampling_ratio");
  align.scale = c.Float("spatial_scale");
  return align;
}

// Returns as [R, bins, size] which elements belong to each bin of the regions along one axis.
Value BinsOf(OpBuilder& b, const Value& rois, int64_t column, double scale, int64_t bins,
             const Expr& size) {
  const auto number = [&](double v) { return Nearest(b, rois.elem, v); };
  const auto edge = [&](int64_t at) {
    const Value x = Mul(b, Slice(b, rois, 1, at, 1), number(scale));  // [R, 1]
    // Rounds halves away from 0.
    return CopySign(b, Unary(b, Op::kFloor, Add(b, Abs(b, x), number(0.5))), x);
  };
  const Value first = edge(column);
  const Value extent = Max(b, Add(b, Sub(b, edge(column + 2), first), number(1)), number(1));
  const Value length = Div(b, extent, number(static_cast<double>(bins)));
  const Value bin = b.Iota(rois.elem, {bins}, 0);
  const Value begin = Add(b, Unary(b, Op::kFloor, Mul(b, bin, length)), first);
  const Value end =
      Sub(b, first, Unary(b, Op::kFloor, Neg(b, Mul(b, Add(b, bin, number(1)), length))));
  const Value at = b.Iota(rois.elem, {size}, 0);
  return And(b, LessEqual(b, Unsqueeze(b, begin, {2}), at), Less(b, at, Unsqueeze(b, end, {2})));
}

}  // namespace

absl::Status RoiAlign10(HandlerContext& c) {
  ASSIGN_OR_RETURN(Align align, AlignOf(c));
  align.half_pixel = false;
  return RoiAlign(c, align);
}
absl::Status RoiAlign16(HandlerContext& c) {
  ASSIGN_OR_RETURN(Align align, AlignOf(c));
  ASSIGN_OR_RETURN(const std::string mode,
                   c.OneOf("coordinate_transformation_mode", {"half_pixel", "output_half_pixel"}));
  align.half_pixel = mode == "half_pixel";
  return RoiAlign(c, align);
}

// R. Girshick, "Fast R-CNN", 2015: bins consist of whole elements; an empty bin gives 0.
absl::Status MaxRoiPool1(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &rois = c.In(1);
  const std::vector<int64_t> pooled = c.Ints("pooled_shape");
  if (x.rank() != 4 || rois.rank() != 2 || !b.bounds().ProvablyEqual(rois.shape[1], 5) ||
      pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1) {
    return Invalid("its operands have shapes ", ShapeToString(x.shape), " and ",
                   ShapeToString(rois.shape), " and pooled_shape ", pooled.size(),
                   " sizes; it needs [N, C, H, W], [R, 5] and two sizes of 1 or more");
  }
  const Value regions = Up(b, rois);
  const double scale = c.Float("spatial_scale");
  const Value image = Cast(b, Squeeze(b, Slice(b, regions, 1, 0, 1), {1}), Elem::kInt64);
  const Value taken = b.Raw(Op::kGather, {x, image}, {{"axis", int64_t{0}}}, x.elem);
  const Value lowest = b.Scalar(x.elem, -std::numeric_limits<double>::infinity());
  const Value down = BinsOf(b, regions, 2, scale, pooled[0], x.shape[2]),
              across = BinsOf(b, regions, 1, scale, pooled[1], x.shape[3]);
  // [R, C, H, bins, W], then [R, C, bins, H, bins]
  const Value wide =
      Reduce(b, Op::kMaxReduce,
             Select(b, Unsqueeze(b, across, {1, 2}), Unsqueeze(b, taken, {3}), lowest), {4},
             /*keepdims=*/false);
  const Value rows = Unsqueeze(b, down, {1, 4});
  const Value best =
      Reduce(b, Op::kMaxReduce, Select(b, rows, Unsqueeze(b, wide, {2}), lowest), {3},
             /*keepdims=*/false);
  const auto any = [&](const Value& bins) {
    return Reduce(b, Op::kMaxReduce, bins, {2}, /*keepdims=*/false);
  };
  const Value filled = And(b, Unsqueeze(b, any(down), {1, 3}), Unsqueeze(b, any(across), {1, 2}));
  c.Set(0, Select(b, filled, best, b.Scalar(x.elem, 0)));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
