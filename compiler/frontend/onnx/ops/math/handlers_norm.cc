// Handlers: normalisations. Statistics are computed in f32 or f64, and results are rounded once.
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/frontend/onnx/ops/math/handlers_layer_norm.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

using Axes = std::vector<int>;

Axes AxesFrom(int first, int rank) {
  Axes axes;
  for (int i = first; i < rank; ++i) axes.push_back(i);
  return axes;
}

// Returns a vector over channels (axis 1), shaped to broadcast against a value of x's rank.
absl::StatusOr<Value> PerChannel(HandlerContext& c, const Value& v, std::string_view what,
                                 const Value& x, Elem elem) {
  OpBuilder& b = c.b();
  const Expr channels = x.rank() > 1 ? x.shape[1] : Expr(1);
  if (v.rank() != 1 || !b.bounds().ProvablyEqual(v.shape[0], channels)) {
    return Invalid(what, " has shape ", ShapeToString(v.shape), "; it must be [",
                   channels.ToString(), "], one for each channel of ", ShapeToString(x.shape));
  }
  Axes after;
  for (int i = 2; i < x.rank(); ++i) after.push_back(i - 1);
  return Unsqueeze(b, Cast(b, v, elem), after);
}

absl::Status Training(std::string_view what) {
  return Unimplemented(what,
                       " is training, which is not supported; export the model for inference");
}

// --- BatchNormalization

// Returns the type of all computations: f64 if any operand has it.
Elem WidestOf(HandlerContext& c) {
  for (int i = 0; i < 5; ++i) {
    if (c.In(i).elem == Elem::kDouble) return Elem::kDouble;
  }
  return Elem::kFloat;
}

absl::Status SetBatchNorm(HandlerContext& c, bool training) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  if (x.rank() < 1) return Invalid("X is a scalar; it needs an axis for the batch");
  const Elem elem = WidestOf(c);
  static constexpr std::string_view kNames[] = {"X", "scale", "B", "input_mean", "input_var"};
  Value parts[5];
  for (int i = 1; i < 5; ++i) {
    ASSIGN_OR_RETURN(parts[i], PerChannel(c, c.In(i), kNames[i], x, elem));
  }
  const Value wide = Cast(b, x, elem);
  Value mean = parts[3], variance = parts[4];
  if (training) {
    Axes axes = AxesFrom(0, x.rank());
    if (x.rank() > 1) axes.erase(axes.begin() + 1);
    const Moments now = MomentsOf(b, wide, axes);
    mean = now.mean, variance = now.variance;
    const Value momentum = FloatAttr(c, wide, "momentum");
    const Value rest = Sub(b, NumberLike(c, wide, 1), momentum);
    const auto set = [&](int o, const Value& before, const Value& current) {
      if (!c.Wants(o)) return;
      const Value next = Add(b, Mul(b, before, momentum), Mul(b, current, rest));
      c.Set(o, Cast(b, Reshape(b, next, c.In(o + 2).shape), c.In(o + 2).elem));
    };
    set(1, parts[3], mean);
    set(2, parts[4], variance);
  }
  const Value factor = Mul(b, parts[1], InverseRoot(b, variance, c.Float("epsilon")));
  c.Set(0, Cast(b, Add(b, Mul(b, Sub(b, wide, mean), factor), parts[2]), x.elem));
  return absl::OkStatus();
}

absl::Status BatchNorm(HandlerContext& c) {
  const bool training = c.Int("training_mode") != 0;
  for (int o = 1; o < c.outputs() && !training; ++o) {
    if (c.Wants(o)) return Invalid("only Y is a result; the others need training_mode=1");
  }
  return SetBatchNorm(c, training);
}

absl::Status InferenceBatchNorm(HandlerContext& c) {
  if (c.version() < 7 && c.Int("is_test") == 0) return Training("is_test=0");
  if (c.version() < 9 && c.Int("spatial") == 0) {
    return Unimplemented("spatial=0 normalises each place by itself, which is not supported");
  }
  for (int o = 1; o < c.outputs(); ++o) {
    if (c.Wants(o)) return Training("a result other than Y");
  }
  return SetBatchNorm(c, /*training=*/false);
}

// --- normalisations of each element of the batch

absl::Status InstanceNorm(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value x = Up(b, c.In(0));
  if (c.In(0).rank() < 2) {
    return Invalid("input has shape ", ShapeToString(c.In(0).shape),
                   "; it needs axes for batch and channels");
  }
  const absl::StatusOr<Value> scale = PerChannel(c, c.In(1), "scale", c.In(0), x.elem);
  const absl::StatusOr<Value> bias = PerChannel(c, c.In(2), "B", c.In(0), x.elem);
  if (!scale.ok()) return scale.status();
  if (!bias.ok()) return bias.status();
  const Moments m = MomentsOf(b, x, AxesFrom(2, c.In(0).rank()));
  const Value factor = Mul(b, InverseRoot(b, m.variance, c.Float("epsilon")), *scale);
  c.Set(0, Cast(b, Add(b, Mul(b, m.difference, factor), *bias), c.In(0).elem));
  return absl::OkStatus();
}

// Returns [N, C, ...] as [N, groups, elements of a group].
absl::StatusOr<Shape> GroupedShape(HandlerContext& c) {
  const Value& x = c.In(0);
  const int64_t groups = c.Int("num_groups");
  if (groups < 1) return Invalid("num_groups=", groups, " must be at least 1");
  if (x.rank() < 2) {
    return Invalid("X has shape ", ShapeToString(x.shape),
                   "; it needs axes for batch and channels");
  }
  if (!c.b().bounds().ProvablyEqual(Mod(x.shape[1], groups), 0)) {
    return Invalid("num_groups=", groups, " does not divide the ", x.shape[1].ToString(),
                   " channels");
  }
  Expr each = FloorDiv(x.shape[1], groups);
  for (int i = 2; i < x.rank(); ++i) each *= x.shape[i];
  return Shape{x.shape[0], groups, each};
}
// Since opset 21. The version of opset 18, with scales per group, is deprecated and refused by its
// schema.
absl::Status GroupNorm(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const Shape grouped, GroupedShape(c));
  const Value x = Up(b, c.In(0));
  const absl::StatusOr<Value> scale = PerChannel(c, c.In(1), "scale", c.In(0), x.elem);
  const absl::StatusOr<Value> bias = PerChannel(c, c.In(2), "bias", c.In(0), x.elem);
  if (!scale.ok()) return scale.status();
  if (!bias.ok()) return bias.status();
  const Moments m = MomentsOf(b, Reshape(b, x, grouped), {2});
  const Value unit = Mul(b, m.difference, InverseRoot(b, m.variance, c.Float("epsilon")));
  const Value normal = Reshape(b, unit, c.In(0).shape);
  c.Set(0, Cast(b, Add(b, Mul(b, normal, *scale), *bias), c.In(0).elem));
  return absl::OkStatus();
}

absl::Status MeanVariance(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value x = Up(b, c.In(0));
  ASSIGN_OR_RETURN(const Axes axes, c.Axes(c.Ints("axes"), c.In(0).rank()));
  const Moments m = MomentsOf(b, x, axes);
  // Follows the op's definition.
  const Value root = Add(b, Unary(b, Op::kSqrt, m.variance), b.Scalar(x.elem, double{1e-9F}));
  c.Set(0, Cast(b, Div(b, m.difference, root), c.In(0).elem));
  return absl::OkStatus();
}

absl::Status LpNorm(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value x = Up(b, c.In(0));
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), c.In(0).rank()));
  const int64_t p = c.Int("p");
  if (p != 1 && p != 2) return Invalid("p=", p, " must be 1 or 2");
  const Value sum = Reduce(b, Op::kSumReduce, p == 1 ? Abs(b, x) : Mul(b, x, x), {axis}, true);
  const Value norm = p == 1 ? sum : Unary(b, Op::kSqrt, sum);
  const Value zero = b.Scalar(x.elem, 0);
  c.Set(0, Cast(b, Select(b, Equal(b, norm, zero), zero, Div(b, x, norm)), c.In(0).elem));
  return absl::OkStatus();
}

// Sums squares over `size` neighbouring channels.
absl::Status Lrn(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value x = Up(b, c.In(0));
  const int64_t size = c.Int("size");
  if (size < 1) return Invalid("size=", size, " must be at least 1");
  if (c.In(0).rank() < 2) {
    return Invalid("X has shape ", ShapeToString(c.In(0).shape), "; it needs an axis of channels");
  }
  // [N, C, window, ...]
  Shape windows = c.In(0).shape;
  windows.insert(windows.begin() + 2, size);
  std::vector<Expr> at = {Expr::Axis(0), Expr::Axis(1) + Expr::Axis(2) - (size - 1) / 2};
  for (int i = 2; i < c.In(0).rank(); ++i) at.push_back(Expr::Axis(i + 1));
  const Value near = MapOr(b, Mul(b, x, x), std::move(windows), std::move(at), b.Scalar(x.elem, 0));
  const Value sum = Reduce(b, Op::kSumReduce, near, {2}, false);
  const Value share = Div(b, FloatAttr(c, x, "alpha"), NumberLike(c, x, static_cast<double>(size)));
  const Value base = Add(b, FloatAttr(c, x, "bias"), Mul(b, share, sum));
  c.Set(0, Cast(b, Div(b, x, Binary(b, Op::kPow, base, FloatAttr(c, x, "beta"))), c.In(0).elem));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "BatchNormalization", 1, InferenceBatchNorm},
    {"", "BatchNormalization", 14, BatchNorm},
    {"", "GroupNormalization", 21, GroupNorm},
    {"", "InstanceNormalization", 1, InstanceNorm},
    {"", "LRN", 1, Lrn},
    {"", "LayerNormalization", 1, LayerNormalization},
    {"", "LpNormalization", 1, LpNorm},
    {"", "MeanVarianceNormalization", 1, MeanVariance},
    {"", "RMSNormalization", 1, RmsNormalization},
};

}  // namespace

absl::Span<const HandlerRow> NormRows() { return kRows; }

}  // namespace athanor::onnx
