// Handlers: Resize and Upsample, one axis at a time; also the family's rows.
#include "compiler/frontend/onnx/ops/movement/handlers_resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handlers_structure.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {

Value CubicWeight(OpBuilder& b, const Value& distance, double a) {
  const auto number = [&](double v) { return Nearest(b, distance.elem, v); };
  const Value x = Abs(b, distance), x2 = Mul(b, x, x);
  const Value near = Add(b, Mul(b, Sub(b, Mul(b, number(a + 2), x), number(a + 3)), x2), number(1));
  const Value outer = Add(b, Mul(b, Sub(b, Mul(b, number(a), x), number(5 * a)), x2),
                          Sub(b, Mul(b, number(8 * a), x), number(4 * a)));
  const Value far = Select(b, Less(b, x, number(2)), outer, number(0));
  return Select(b, LessEqual(b, x, number(1)), near, far);
}

Elem InterpolationElem(Elem elem) {
  const DType dtype = CarrierOf(elem);
  return dtype == DType::kF64 || (IsInteger(dtype) && DTypeBytes(dtype) >= 4) ? Elem::kDouble
                                                                              : Elem::kFloat;
}

namespace {

constexpr size_t kUnrolledTaps = 4;
constexpr int64_t kMaxTaps = 1024;
constexpr double kMaxSize = 0x1p40;  // largest size of a result's axis

struct Plan {
  std::string mode, coordinates, nearest;
  double cubic_a = -0.75;
  bool exclude_outside = false, antialias = false;
  double extrapolation = 0;
};

// An axis that is resized.
struct Axis {
  int axis = 0;
  Expr in, out;
  Value scale;                      // f64: as given, or out / in
  std::optional<double> number;     // the same if it is known
  std::optional<Value> start, end;  // f64: the region of tf_crop_and_resize
};

// Returns in * scale, rounded down. For a number, uses the product in f32, as the schema's shape
// inference does. For a dim, uses the shortest decimal that gives the f32, which agrees: 10 * 0.7
// is 7.
absl::StatusOr<Expr> Scaled(const Expr& in, double scale) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    return Invalid("its scales hold ", scale, "; they must be above 0");
  }
  const auto f32 = static_cast<float>(scale);
  if (const std::optional<int64_t> size = in.constant()) {
    const float product = static_cast<float>(*size) * f32;
    if (product < 0x1p40F) return Expr(static_cast<int64_t>(std::floor(product)));
  }
  if (f32 < 1e-6F || f32 > 1e6F) {
    return Invalid("its scales hold ", scale, ", outside the supported range");
  }
  std::string text;  // such as "2.6e+00"
  for (int digits = 0; digits <= 8; ++digits) {
    text = absl::StrFormat("%.*e", digits, f32);
    float back = 0;
    if (absl::SimpleAtof(text, &back) && back == f32) break;
  }
  int64_t mantissa = 0;
  int exponent = 0;
  const size_t e = text.find('e');
  bool behind = false;
  for (char c : text.substr(0, e)) {
    behind = behind || c == '.';
    if (c == '.') continue;
    mantissa = mantissa * 10 + (c - '0');
    exponent -= behind ? 1 : 0;
  }
  exponent += static_cast<int>(std::strtol(text.c_str() + e + 1, nullptr, 10));
  int64_t power = 1;
  for (int i = 0; i < std::abs(exponent); ++i) power *= 10;
  const Expr product = in * mantissa;
  return exponent >= 0 ? product * power : FloorDiv(product, power);
}

// Returns the positions in the source, [out], in f64.
Value PositionsOf(OpBuilder& b, const Plan& plan, const Axis& axis) {
  const auto number = [&](double v) { return b.Scalar(Elem::kDouble, v); };
  const Value x = b.Iota(Elem::kDouble, {axis.out}, 0);
  const Value in = Size(b, Elem::kDouble, axis.in, {});
  const Value length = Size(b, Elem::kDouble, axis.out, {});
  const Value out = Mul(b, axis.scale, in);  // not always an integer
  const Value half = Sub(b, Div(b, Add(b, x, number(0.5)), axis.scale), number(0.5));
  if (plan.coordinates == "asymmetric") return Div(b, x, axis.scale);
  if (plan.coordinates == "tf_half_pixel_for_nn") {
    return Div(b, Add(b, x, number(0.5)), axis.scale);
  }
  if (plan.coordinates == "pytorch_half_pixel") {
    return Select(b, Equal(b, length, number(1)), number(0), half);
  }
  if (plan.coordinates == "half_pixel_symmetric") {
    const Value offset = Mul(b, Div(b, in, number(2)), Sub(b, number(1), Div(b, length, out)));
    return Add(b, offset, half);
  }
  const Value last = Sub(b, in, number(1));
  if (plan.coordinates == "align_corners") {
    // The backend test suite uses the unrounded size only here.
    return Select(b, Equal(b, out, number(1)), number(0),
                  Div(b, Mul(b, x, last), Sub(b, out, number(1))));
  }
  if (plan.coordinates == "tf_crop_and_resize") {
    const Value span = Mul(b, Sub(b, *axis.end, *axis.start), last);
    const Value at = Select(b, Equal(b, length, number(1)), Div(b, span, number(2)),
                            Div(b, Mul(b, x, span), Sub(b, length, number(1))));
    return Add(b, at, Mul(b, *axis.start, last));
  }
  return half;
}

// Converts integers in f64 to positions on the axis, clamped to it.
Value Inside(OpBuilder& b, const Value& whole, const Expr& size) {
  const Value last = Size(b, Elem::kInt64, size - 1, {});
  return Clamp(b, Cast(b, whole, Elem::kInt64), b.Integer(Elem::kInt64, 0), last);
}

Value Take(OpBuilder& b, const Value& x, const Value& positions, int axis) {
  return b.Raw(Op::kGather, {x, positions}, {{"axis", int64_t{axis}}}, x.elem);
}

// Reports whether the axis is enlarged by an integer, so that every element is repeated that often.
bool Repeats(const Plan& plan, const Axis& axis) {
  if (!axis.number.has_value() || *axis.number != std::floor(*axis.number)) return false;
  if (*axis.number < 1 || *axis.number > 0x1p30) return false;
  if (plan.coordinates == "asymmetric") return plan.nearest == "floor";
  const bool half = plan.coordinates == "half_pixel" || plan.coordinates == "half_pixel_symmetric";
  return half && plan.nearest.starts_with("round");
}

Value ResizeNearest(OpBuilder& b, const Plan& plan, const Axis& axis, const Value& x) {
  if (Repeats(plan, axis)) {
    Shape shape = x.shape;
    shape[axis.axis] = axis.out;
    std::vector<Expr> coordinates = AllAxes(x.rank());
    coordinates[axis.axis] = FloorDiv(Expr::Axis(axis.axis), static_cast<int64_t>(*axis.number));
    return Map(b, x, std::move(shape), std::move(coordinates));
  }
  const auto number = [&](double v) { return b.Scalar(Elem::kDouble, v); };
  const Value at = PositionsOf(b, plan, axis);
  const Value below = Unary(b, Op::kFloor, at), ratio = Sub(b, at, below);
  Value above = Less(b, number(0), ratio);  // for mode "ceil"
  if (plan.nearest == "floor") above = Splat(b, b.Integer(Elem::kBool, 0), at.shape);
  if (plan.nearest == "round_prefer_floor") above = Less(b, number(0.5), ratio);
  if (plan.nearest == "round_prefer_ceil") above = LessEqual(b, number(0.5), ratio);
  const Value whole = Select(b, above, Add(b, below, number(1)), below);
  return Take(b, x, Inside(b, whole, axis.in), axis.axis);
}

// Support of the kernel: taps at first, first + 1, ... relative to the position rounded down, and
// the factor by which the kernel is stretched.
struct Kernel {
  int64_t first = 0, taps = 2;
  double stretch = 1;
};
absl::StatusOr<Kernel> KernelOf(const Plan& plan, const Axis& axis) {
  const int64_t radius = plan.mode == "cubic" ? 2 : 1;
  Kernel kernel = {1 - radius, 2 * radius, 1};
  if (!plan.antialias) return kernel;
  if (!axis.number.has_value()) {
    return Unimplemented("axis ", axis.axis, " is resized from ", axis.in.ToString(), " to ",
                         axis.out.ToString(),
                         " with antialias, which needs a factor that does not depend on the dims");
  }
  if (*axis.number >= 1) return kernel;
  kernel.stretch = *axis.number;
  // A scale of 0 makes this minus infinity.
  const double first = std::floor(-static_cast<double>(radius) / *axis.number) + 1;
  const double taps = 2 - 2 * first;
  if (!(taps <= kMaxTaps)) {
    return Unimplemented("axis ", axis.axis, " is reduced by ", *axis.number, ", for which ", taps,
                         " elements are averaged; at most ", kMaxTaps, " are");
  }
  kernel.first = static_cast<int64_t>(first);
  kernel.taps = static_cast<int64_t>(taps);
  return kernel;
}

// Returns a vector along `axis`, shaped to broadcast to a tensor of this rank.
Value Along(OpBuilder& b, const Value& vector, int axis, int rank) {
  std::vector<int> added;
  for (int i = vector.rank(); i < rank - axis; ++i) added.push_back(i);
  return Unsqueeze(b, vector, added);
}

absl::StatusOr<Value> Interpolate(OpBuilder& b, const Plan& plan, const Axis& axis,
                                  const Value& x) {
  ASSIGN_OR_RETURN(const Kernel kernel, KernelOf(plan, axis));
  const auto number = [&](double v) { return b.Scalar(Elem::kDouble, v); };
  const Value at = PositionsOf(b, plan, axis);
  const Value below = Unary(b, Op::kFloor, at), ratio = Sub(b, at, below);
  const bool unrolled = kernel.taps <= static_cast<int64_t>(kUnrolledTaps);
  const Value last = Sub(b, Size(b, Elem::kDouble, axis.in, {}), number(1));
  std::vector<Value> weights, positions;
  Value sum;
  const auto add_tap = [&](const Value& offset, const Value& from, const Value& part) {
    const Value distance = Mul(b, Sub(b, offset, part), number(kernel.stretch));
    const Value place = Add(b, from, offset);
    Value weight = plan.mode == "cubic" ? CubicWeight(b, distance, plan.cubic_a)
                                        : Max(b, Sub(b, number(1), Abs(b, distance)), number(0));
    if (plan.exclude_outside) {
      const Value outside = Or(b, Less(b, place, number(0)), Less(b, last, place));
      weight = Select(b, outside, number(0), weight);
    }
    sum = weights.empty() ? weight : Add(b, sum, weight);
    weights.push_back(weight);
    positions.push_back(Inside(b, place, axis.in));
  };
  if (unrolled) {
    for (int64_t t = 0; t < kernel.taps; ++t) {
      add_tap(number(static_cast<double>(kernel.first + t)), below, ratio);
    }
  } else {
    const Value tap = Add(b, b.Iota(Elem::kDouble, {1, kernel.taps}, 1),
                          number(static_cast<double>(kernel.first)));
    add_tap(tap, Unsqueeze(b, below, {1}), Unsqueeze(b, ratio, {1}));
    sum = Reduce(b, Op::kSumReduce, sum, {1}, /*keepdims=*/true);
  }
  const bool normalise = plan.antialias || plan.exclude_outside;
  Value y;
  for (size_t t = 0; t < weights.size(); ++t) {
    if (normalise) weights[t] = Div(b, weights[t], sum);
    const Value weight = Cast(b, weights[t], x.elem);
    const Value taken = Take(b, x, positions[t], axis.axis);
    const int rank = x.rank() + (unrolled ? 0 : 1);
    const Value term = Mul(b, taken, Along(b, weight, axis.axis, rank));
    y = t == 0 ? term : Add(b, y, term);
  }
  return unrolled ? y : Reduce(b, Op::kSumReduce, y, {axis.axis + 1}, /*keepdims=*/false);
}

absl::Status ResizeAxes(HandlerContext& c, const Plan& plan, const std::vector<Axis>& axes) {
  OpBuilder& b = c.b();
  const Elem elem = c.In(0).elem;
  const bool nearest = plan.mode == "nearest";
  Value y = nearest ? c.In(0) : Cast(b, c.In(0), InterpolationElem(elem));
  for (const Axis& axis : axes) {
    const bool crops = plan.coordinates == "tf_crop_and_resize";
    if (axis.number == 1.0 && !crops && b.bounds().ProvablyEqual(axis.in, axis.out)) continue;
    ASSIGN_OR_RETURN(const Value resized,
                     nearest ? ResizeNearest(b, plan, axis, y) : Interpolate(b, plan, axis, y));
    if (!b.status().ok()) return absl::OkStatus();  // the builder reports the failure
    const int rank = y.rank();
    y = resized;
    if (!crops) continue;
    const Value at = PositionsOf(b, plan, axis);
    const Value last = Size(b, Elem::kDouble, axis.in - 1, {});
    const Value outside = Or(b, Less(b, at, b.Scalar(Elem::kDouble, 0)), Less(b, last, at));
    y = Select(b, Along(b, outside, axis.axis, rank), Nearest(b, y.elem, plan.extrapolation), y);
  }
  // Integers are rounded to nearest, halves to even.
  if (!nearest && IsInteger(CarrierOf(elem))) y = Unary(b, Op::kRound, y);
  c.Set(0, nearest ? y : Cast(b, y, elem));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Axis>> AxesByScales(HandlerContext& c, absl::Span<const double> scales,
                                               absl::Span<const int> listed,
                                               absl::Span<const double> spans) {
  OpBuilder& b = c.b();
  if (scales.size() != listed.size()) {
    return Invalid("it has ", scales.size(), " scales for ", listed.size(),
                   " axes; each needs one");
  }
  std::vector<Axis> axes;
  for (size_t i = 0; i < listed.size(); ++i) {
    const Expr& in = c.In(0).shape[listed[i]];
    const double span = spans.empty() ? 1 : spans[i];
    absl::StatusOr<Expr> out = Scaled(in, scales[i]);
    if (!out.ok()) return out.status();
    if (span != 1) {
      if (!in.constant().has_value()) {
        return Unimplemented("axis ", listed[i], " of size ", in.ToString(),
                             " is cropped and scaled; give its sizes instead of scales");
      }
      const double size = static_cast<double>(*in.constant()) * span * scales[i];
      if (!(size >= 0 && size < kMaxSize)) return Invalid("its roi and scales leave no size");
      out = Expr(static_cast<int64_t>(std::floor(size)));
    }
    axes.push_back({listed[i], in, *out, b.Scalar(Elem::kDouble, scales[i]), scales[i], {}, {}});
  }
  return axes;
}

absl::StatusOr<std::vector<Axis>> AxesBySizes(HandlerContext& c, absl::Span<const Expr> sizes,
                                              absl::Span<const int> listed,
                                              const std::string& policy) {
  OpBuilder& b = c.b();
  if (sizes.size() != listed.size()) {
    return Invalid("it has ", sizes.size(), " sizes for ", listed.size(), " axes; each needs one");
  }
  RETURN_IF_ERROR(CheckSizes("sizes", sizes, b.bounds()));
  std::vector<Axis> axes;
  std::optional<double> common;
  for (size_t i = 0; i < listed.size(); ++i) {
    Axis axis;
    axis.axis = listed[i];
    axis.in = c.In(0).shape[listed[i]];
    axis.out = sizes[i];
    const auto in = axis.in.constant(), out = axis.out.constant();
    if (in && out && *in > 0) {
      axis.number = static_cast<double>(*out) / static_cast<double>(*in);
      axis.scale = b.Scalar(Elem::kDouble, *axis.number);
      if (!common) common = axis.number;
      common = policy == "not_smaller" ? std::max(*common, *axis.number)
                                       : std::min(*common, *axis.number);
    } else {
      if (b.bounds().ProvablyEqual(axis.in, axis.out)) axis.number = 1;
      axis.scale =
          Div(b, Size(b, Elem::kDouble, axis.out, {}), Size(b, Elem::kDouble, axis.in, {}));
      if (policy != "stretch") {
        return Unimplemented("its keep_aspect_ratio_policy is ", Quoted(policy), " and axis ",
                             axis.axis, " goes from ", axis.in.ToString(), " to ",
                             axis.out.ToString(), "; both must be numbers then");
      }
    }
    axes.push_back(std::move(axis));
  }
  if (policy == "stretch") return axes;
  for (Axis& axis : axes) {
    axis.number = common;
    axis.scale = b.Scalar(Elem::kDouble, *common);
    const double size = *common * static_cast<double>(*axis.in.constant());
    if (!(size >= 0 && size < kMaxSize)) {
      return Invalid("axis ", axis.axis, " of size ", axis.in.ToString(), " becomes ", size,
                     ", outside the supported range");
    }
    axis.out = static_cast<int64_t>(std::floor(size + 0.5));
  }
  return axes;
}

bool Filled(const HandlerContext& c, int i) {
  return c.Has(i) && !(c.In(i).rank() == 1 && c.In(i).shape[0].IsConstant(0));
}

// Adds the regions' starts and ends per axis, as data.
absl::Status AddRegions(HandlerContext& c, std::vector<Axis>* axes) {
  OpBuilder& b = c.b();
  const auto count = static_cast<int64_t>(axes->size());
  if (!Filled(c, 1) || c.In(1).rank() != 1 ||
      !b.bounds().ProvablyEqual(c.In(1).shape[0], 2 * count)) {
    return Invalid("tf_crop_and_resize needs a roi of ", 2 * count,
                   " numbers: where each axis starts, then where each ends");
  }
  const Value roi = Cast(b, c.In(1), Elem::kDouble);
  const auto at = [&](int64_t i) { return Squeeze(b, Slice(b, roi, 0, i, 1), {0}); };
  for (int64_t i = 0; i < count; ++i) {
    (*axes)[i].start = at(i);
    (*axes)[i].end = at(count + i);
  }
  return absl::OkStatus();
}

std::vector<int> EveryAxis(const HandlerContext& c) {
  std::vector<int> axes;
  for (int i = 0; i < c.In(0).rank(); ++i) axes.push_back(i);
  return axes;
}

// Upsample and the first Resize: source positions are the quotient, without centring.
absl::Status ByScales(HandlerContext& c, absl::Span<const double> scales) {
  const bool first = c.version() == 1;
  ASSIGN_OR_RETURN(const std::string mode,
                   c.OneOf("mode", {"nearest", first ? "bilinear" : "linear"}));
  ASSIGN_OR_RETURN(const std::vector<Axis> axes, AxesByScales(c, scales, EveryAxis(c), {}));
  const std::string renamed = first && mode == "bilinear" ? "linear" : mode;
  return ResizeAxes(c, {.mode = renamed, .coordinates = "asymmetric", .nearest = "floor"}, axes);
}
absl::Status Upsample1(HandlerContext& c) {
  if (c.In(0).rank() != 4) {
    return Invalid("its input has shape ", ShapeToString(c.In(0).shape),
                   "; it must be [N, C, H, W]");
  }
  return ByScales(c, {1, 1, c.Float("height_scale"), c.Float("width_scale")});
}
absl::Status Upsample7(HandlerContext& c) { return ByScales(c, c.Floats("scales")); }
absl::Status Resize10(HandlerContext& c) {
  const absl::StatusOr<std::vector<double>> scales = c.Numbers(1, "scales");
  return scales.ok() ? ByScales(c, *scales) : scales.status();
}

absl::StatusOr<Plan> PlanOf(HandlerContext& c) {
  Plan plan;
  ASSIGN_OR_RETURN(plan.mode, c.OneOf("mode", {"nearest", "linear", "cubic"}));
  std::vector<std::string_view> allowed = {"half_pixel", "pytorch_half_pixel", "align_corners",
                                           "asymmetric", "tf_crop_and_resize"};
  if (c.version() < 13) allowed.push_back("tf_half_pixel_for_nn");
  if (c.version() >= 19) allowed.push_back("half_pixel_symmetric");
  ASSIGN_OR_RETURN(plan.coordinates, c.OneOf("coordinate_transformation_mode", allowed));
  ASSIGN_OR_RETURN(plan.nearest, c.OneOf("nearest_mode", {"round_prefer_floor", "round_prefer_ceil",
                                                          "floor", "ceil"}));
  plan.cubic_a = c.Float("cubic_coeff_a");
  plan.exclude_outside = c.Int("exclude_outside") != 0;
  plan.extrapolation = c.Float("extrapolation_value");
  if (c.version() < 18) return plan;
  plan.antialias = c.Int("antialias") != 0;
  if (plan.antialias && plan.mode == "nearest") {
    return Invalid("its mode is \"nearest\", which has no antialias");
  }
  return plan;
}

absl::Status Resize11(HandlerContext& c) {
  ASSIGN_OR_RETURN(const Plan plan, PlanOf(c));
  absl::StatusOr<std::vector<int>> listed = EveryAxis(c);
  std::string policy = "stretch";
  if (c.version() >= 18) {
    if (c.Given("axes")) listed = AxesAttr(c, "axes", c.In(0).rank());
    ASSIGN_OR_RETURN(policy,
                     c.OneOf("keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"}));
  }
  if (!listed.ok()) return listed.status();
  if (Filled(c, 2) == Filled(c, 3)) {
    return Invalid("it has ", Filled(c, 2) ? "both" : "neither", " scales and sizes; it needs one");
  }
  const bool crops = plan.coordinates == "tf_crop_and_resize";
  absl::StatusOr<std::vector<Axis>> axes = std::vector<Axis>();
  if (Filled(c, 2)) {
    const absl::StatusOr<std::vector<double>> scales = c.Numbers(2, "scales");
    absl::StatusOr<std::vector<double>> roi = std::vector<double>();
    if (crops && Filled(c, 1)) roi = c.Numbers(1, "roi");
    RETURN_IF_ERROR(Together({scales.status(), roi.status()}));
    std::vector<double> spans;
    if (crops && Filled(c, 1)) {
      const size_t half = roi->size() / 2;
      for (size_t i = 0; i < half && half == listed->size(); ++i) {
        spans.push_back((*roi)[half + i] - (*roi)[i]);
      }
    }
    axes = AxesByScales(c, *scales, *listed, spans);
  } else {
    ASSIGN_OR_RETURN(const std::vector<Expr> sizes, c.Sizes(3, "sizes"));
    axes = AxesBySizes(c, sizes, *listed, policy);
  }
  if (!axes.ok()) return axes.status();
  if (crops) {
    RETURN_IF_ERROR(AddRegions(c, &*axes));
  }
  return ResizeAxes(c, plan, *axes);
}

constexpr HandlerRow kRows[] = {
    {"", "Upsample", 1, Upsample1},       {"", "Upsample", 7, Upsample7},
    {"", "Upsample", 9, Resize10},        {"", "Resize", 10, Resize10},
    {"", "Resize", 11, Resize11},         {"", "GridSample", 16, GridSample16},
    {"", "GridSample", 20, GridSample20}, {"", "AffineGrid", 20, AffineGrid20},
    {"", "RoiAlign", 10, RoiAlign10},     {"", "RoiAlign", 16, RoiAlign16},
    {"", "MaxRoiPool", 1, MaxRoiPool1},
};

}  // namespace

absl::Span<const HandlerRow> ResizeRows() { return kRows; }

}  // namespace athanor::onnx
