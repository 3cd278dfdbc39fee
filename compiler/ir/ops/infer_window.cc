// Inference of ops that slide a window over spatial axes: Conv, Pool.
#include <string>
#include <vector>

#include "compiler/ir/ops/infer.h"
#include "compiler/ir/value/message.h"

namespace athanor {
namespace {

constexpr int kMaxSpatial = 6;
// Limit on window positions, so that they and every step of their computation fit well inside 64
// bits.
constexpr int64_t kMaxPosition = int64_t{1} << 60;
// Limit on a pool's window, which no operand's size bounds.
constexpr int64_t kMaxTaps = int64_t{1} << 24;

absl::Status CheckSpatialRank(const Shape& x) {
  const int spatial = static_cast<int>(x.size()) - 2;
  if (spatial >= 1 && spatial <= kMaxSpatial) return absl::OkStatus();
  return Invalid("x, operand 0, has shape ", ShapeToString(x),
                 "; it needs the axes [N, C] and 1 to ", kMaxSpatial, " spatial ones behind them");
}

absl::Status CheckCount(std::string_view attr, size_t count, size_t spatial) {
  if (count == spatial) return absl::OkStatus();
  return Invalid(attr, " holds ", count, " values; x has ", spatial,
                 " spatial axes, and it needs one for each");
}

absl::Status CheckSteps(std::string_view attr, const Attrs& attrs, size_t spatial) {
  const auto& steps = GetAttr<std::vector<int64_t>>(attrs, attr);
  if (absl::Status s = CheckCount(attr, steps.size(), spatial); !s.ok()) return s;
  for (int64_t step : steps) {
    if (step < 1) return Invalid(attr, " holds ", step, "; each must be 1 or more");
  }
  return absl::OkStatus();
}

absl::Status CheckPosition(std::string_view attr, size_t axis, const Expr& e,
                           const Bounds& bounds) {
  const std::optional<int64_t> least = bounds.Minimum(e), most = bounds.Maximum(e);
  if (least && most && *least >= -kMaxPosition && *most <= kMaxPosition) return absl::OkStatus();
  return Invalid(attr, " gives spatial axis ", axis, " positions up to ", e.ToString(),
                 ", which can be beyond 2^60; lower it, or tighten the dims' bounds");
}

// Checks the attributes that Conv and Pool share, for a window of shape `kernel`. Returns the
// result's shape.
absl::StatusOr<Shape> InferWindow(const Shape& x, const Shape& kernel, const Expr& channels,
                                  const Attrs& attrs, const Bounds& bounds) {
  const size_t spatial = x.size() - 2;
  absl::Status s = CheckSteps("strides", attrs, spatial);
  if (s.ok()) s = CheckSteps("dilations", attrs, spatial);
  for (std::string_view attr : {"begin", "out", "counted"}) {
    if (s.ok() && attrs.contains(attr)) {
      s = CheckCount(attr, GetAttr<Shape>(attrs, attr).size(), spatial);
    }
  }
  if (!s.ok()) return s;
  const auto& out = GetAttr<Shape>(attrs, "out");
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t stride = GetAttr<std::vector<int64_t>>(attrs, "strides")[i];
    const int64_t dilation = GetAttr<std::vector<int64_t>>(attrs, "dilations")[i];
    s = CheckPosition("strides", i, out[i] * stride, bounds);
    if (s.ok()) s = CheckPosition("dilations", i, kernel[i] * dilation, bounds);
    if (s.ok()) s = CheckPosition("begin", i, GetAttr<Shape>(attrs, "begin")[i], bounds);
    if (s.ok() && attrs.contains("counted")) {
      s = CheckPosition("counted", i, GetAttr<Shape>(attrs, "counted")[i], bounds);
    }
    if (!s.ok()) return s;
  }
  Shape result = {x[0], channels};
  result.insert(result.end(), out.begin(), out.end());
  return result;
}

}  // namespace

absl::StatusOr<TensorType> InferConv(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const TensorType &x = inputs[0], &w = inputs[1];
  absl::Status s = CheckDType("x, operand 0,", x.dtype, DTypeClass::kNumeric);
  if (s.ok()) s = CheckSameDType("x", x.dtype, "w", w.dtype);
  if (s.ok()) s = CheckSpatialRank(x.shape);
  if (s.ok()) s = CheckRank("w, operand 1,", w.shape, static_cast<int>(x.shape.size()));
  if (!s.ok()) return s;
  const int64_t group = GetAttrOr<int64_t>(attrs, "group", 1);
  if (group < 1) return Invalid("group=", group, " must be 1 or more");
  const Expr& maps = w.shape[0];
  if (!bounds.ProvablyEqual(group * w.shape[1], x.shape[1])) {
    return Invalid("x has ", x.shape[1].ToString(), " channels (axis 1), w takes ",
                   w.shape[1].ToString(), " (axis 1) in each of ", group,
                   " groups; x must provably have group times as many");
  }
  if (!bounds.ProvablyEqual(group * FloorDiv(maps, group), maps)) {
    return Invalid("w gives ", maps.ToString(), " channels (axis 0), which group=", group,
                   " does not provably divide");
  }
  absl::StatusOr<Shape> shape =
      InferWindow(x.shape, Shape(w.shape.begin() + 2, w.shape.end()), maps, attrs, bounds);
  if (!shape.ok()) return shape.status();
  return TensorType{x.dtype, *std::move(shape)};
}

absl::StatusOr<TensorType> InferPool(TypeSpan inputs, const Attrs& attrs, const Bounds& bounds) {
  const TensorType& x = inputs[0];
  const auto& mode = GetAttr<std::string>(attrs, "mode");
  if (mode != "max" && mode != "mean" && mode != "sum") {
    return Invalid("mode=", Quoted(mode), " must be \"max\", \"mean\" or \"sum\"");
  }
  if (mode != "mean" && attrs.contains("counted")) {
    return Invalid("counted says what a mean divides by; mode=", Quoted(mode), " has none");
  }
  absl::Status s = CheckDType("x, operand 0,", x.dtype,
                              mode == "max"   ? DTypeClass::kComputing
                              : mode == "sum" ? DTypeClass::kNumeric
                                              : DTypeClass::kFloats);
  if (s.ok()) s = CheckSpatialRank(x.shape);
  if (s.ok()) s = CheckSteps("kernel", attrs, x.shape.size() - 2);
  if (!s.ok()) return s;
  const auto& kernel = GetAttr<std::vector<int64_t>>(attrs, "kernel");
  int64_t taps = 1;
  for (int64_t k : kernel) {
    if (k > kMaxTaps / taps) return Invalid("kernel has more than ", kMaxTaps, " positions");
    taps *= k;
  }
  absl::StatusOr<Shape> shape =
      InferWindow(x.shape, Shape(kernel.begin(), kernel.end()), x.shape[1], attrs, bounds);
  if (!shape.ok()) return shape.status();
  return TensorType{x.dtype, *std::move(shape)};
}

}  // namespace athanor
