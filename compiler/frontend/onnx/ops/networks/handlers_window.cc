// Handlers: convolutions. All become the Conv op, with operands prepared for it.
#include "compiler/frontend/onnx/ops/networks/handlers_window.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_window.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// Operands x [N, C, D...] and w [M, C/group, K...] of a node, checked against each other.
struct ConvOperands {
  Shape sizes;
  std::vector<int64_t> kernel;
  int64_t group = 1;
};

absl::StatusOr<std::vector<int64_t>> KernelOf(const HandlerContext& c, const Value& w) {
  std::vector<int64_t> kernel;
  for (int i = 2; i < w.rank(); ++i) {
    if (!w.shape[i].constant()) {
      return Invalid("W has shape ", ShapeToString(w.shape), "; axis ", i,
                     ", of the kernel, must have a constant size");
    }
    kernel.push_back(*w.shape[i].constant());
  }
  const std::vector<int64_t> stated = IntsOrNone(c, "kernel_shape");
  if (!stated.empty() && stated != kernel) {
    return Invalid("attribute kernel_shape is not that of W, ", ShapeToString(w.shape));
  }
  return kernel;
}

absl::StatusOr<ConvOperands> OperandsOf(const HandlerContext& c, const Value& x, const Value& w) {
  ASSIGN_OR_RETURN(Shape sizes, SpatialSizes("X", x));
  if (w.rank() != x.rank()) {
    return Invalid("W has shape ", ShapeToString(w.shape), ", X has ", ShapeToString(x.shape),
                   "; their ranks must be equal");
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> kernel, KernelOf(c, w));
  const int64_t group = c.Int("group");
  if (group < 1) return Invalid("attribute group is ", group, "; it must be 1 or more");
  return ConvOperands{std::move(sizes), std::move(kernel), group};
}

Value ConvRow(OpBuilder& b, const Value& x, const Value& w, const Window& window, int64_t group) {
  Attrs attrs = WindowAttrs(window);
  attrs["group"] = group;
  return b.Raw(Op::kConv, {x, w}, std::move(attrs), x.elem);
}

// Adds one number per channel to y [N, M, ...].
absl::StatusOr<Value> WithBias(OpBuilder& b, const Value& y, const Value& bias) {
  if (!b.status().ok()) return y;
  if (bias.rank() != 1 || !b.bounds().ProvablyEqual(bias.shape[0], y.shape[1])) {
    return Invalid("B has shape ", ShapeToString(bias.shape), "; it must be [",
                   y.shape[1].ToString(), "], one number for each channel of the result");
  }
  return Add(b, y, Map(b, bias, y.shape, {Expr::Axis(1)}));
}

absl::Status SetWithBias(HandlerContext& c, const Value& y, int bias) {
  if (!c.Has(bias)) {
    c.Set(0, y);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Value sum, WithBias(c.b(), y, c.In(bias)));
  c.Set(0, sum);
  return absl::OkStatus();
}

absl::StatusOr<Value> PlainConv(HandlerContext& c, const Value& x, const Value& w) {
  ASSIGN_OR_RETURN(ConvOperands operands, OperandsOf(c, x, w));
  ASSIGN_OR_RETURN(Window window, NodeWindow(c, operands.sizes, operands.kernel, /*dilated=*/true,
                                             /*ceil_mode=*/false));
  return ConvRow(c.b(), x, w, window, operands.group);
}

// Returns the geometry of the convolution that this op transposes: the padding, which may be
// computed, and the result's sizes.
absl::StatusOr<Window> TransposeWindow(const HandlerContext& c, const ConvOperands& operands) {
  const size_t rank = operands.sizes.size();
  ASSIGN_OR_RETURN(std::string auto_pad,
                   c.OneOf("auto_pad", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"}));
  // Checked against the kernel by the same rules as a convolution's.
  absl::StatusOr<Window> w =
      WindowOf(Shape(rank, Expr(int64_t{1} << 40)), operands.kernel, IntsOrNone(c, "strides"),
               IntsOrNone(c, "dilations"), IntsOrNone(c, "pads"), "NOTSET", false);
  if (!w.ok()) return w.status();
  std::vector<int64_t> added = IntsOrNone(c, "output_padding");
  const std::vector<int64_t> stated = IntsOrNone(c, "output_shape");
  if (added.empty()) added.assign(rank, 0);
  if (added.size() != rank || (!stated.empty() && stated.size() != rank)) {
    return Invalid("attributes output_padding and output_shape must hold ", rank,
                   " values, one per spatial axis");
  }
  const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  for (size_t i = 0; i < rank; ++i) {
    const Expr& size = operands.sizes[i];
    const int64_t reach = (operands.kernel[i] - 1) * w->dilations[i] + 1;
    const Expr whole = (size - 1) * w->strides[i] + added[i] + reach;
    if (auto_pad == "VALID") w->begin[i] = w->end[i] = 0;
    if (stated.empty() && !same) {
      w->out[i] = whole - w->begin[i] - w->end[i];
      continue;
    }
    w->out[i] = stated.empty() ? size * w->strides[i] : Expr(stated[i]);
    const Expr total = MaxOf(0, whole - w->out[i]);
    const Expr smaller = FloorDiv(total, 2);
    w->begin[i] = auto_pad == "SAME_UPPER" ? smaller : total - smaller;
  }
  return w;
}

// Spreads the elements of x `strides` apart on each spatial axis, with zeros between.
Value Spread(OpBuilder& b, const Value& x, absl::Span<const int64_t> strides) {
  Shape shape = {x.shape[0], x.shape[1]};
  std::vector<Expr> at = {Expr::Axis(0), Expr::Axis(1)};
  bool any = false;
  for (int i = 2; i < x.rank(); ++i) {
    const int64_t stride = strides[i - 2];
    const Expr& size = x.shape[i];
    any = any || stride > 1;
    const Expr spread = (size - 1) * stride + 1;
    shape.push_back(b.bounds().NonNegative(spread) ? spread : MaxOf(0, spread));
    // Positions that are no multiple of the stride are mapped beyond the axis' end.
    at.push_back(FloorDiv(Expr::Axis(i), stride) + size * Mod(Expr::Axis(i), stride));
  }
  return any ? MapOr(b, x, std::move(shape), std::move(at), b.Scalar(x.elem, 0)) : x;
}

// Returns [C, M/group, K...] as [M, C/group, K...] with the kernel reversed.
Value Transposed(OpBuilder& b, const Value& w, int64_t group) {
  const Expr channels = FloorDiv(w.shape[0], group), maps = w.shape[1];
  Shape shape = {group * maps, channels};
  const Expr m = Expr::Axis(0);
  std::vector<Expr> at = {FloorDiv(m, maps) * channels + Expr::Axis(1), Mod(m, maps)};
  for (int i = 2; i < w.rank(); ++i) {
    shape.push_back(w.shape[i]);
    at.push_back(w.shape[i] - 1 - Expr::Axis(i));
  }
  return Map(b, w, std::move(shape), std::move(at));
}

// Returns a quantised operand minus its zero point, in i32. The zero point is a scalar, or one per
// channel on axis 0.
absl::StatusOr<Value> FromZero(HandlerContext& c, int operand, int zero_point,
                               std::string_view what) {
  OpBuilder& b = c.b();
  const Value& x = c.In(operand);
  const Value wide = Cast(b, x, Elem::kInt32);
  if (!c.Has(zero_point)) return wide;
  Value zero = Cast(b, c.In(zero_point), Elem::kInt32);
  if (!b.status().ok()) return wide;
  if (zero.rank() == 1 && zero.shape[0].IsConstant(1)) zero = Reshape(b, zero, {});
  // For activations it is one number, since axis 0 is the batch.
  const bool rows = operand != 0 && zero.rank() == 1 && x.rank() > 0;
  if (rows && b.bounds().ProvablyEqual(zero.shape[0], x.shape[0])) {
    zero = Map(b, zero, x.shape, {Expr::Axis(0)});
  } else if (zero.rank() != 0) {
    return Invalid(what, " has shape ", ShapeToString(zero.shape), ", its tensor ",
                   ShapeToString(x.shape), "; it must be one number",
                   operand != 0 ? ", or one for each on axis 0" : "");
  }
  return Sub(b, wide, zero);
}

}  // namespace

absl::StatusOr<Shape> SpatialSizes(std::string_view what, const Value& x) {
  if (x.rank() >= 3) return Shape(x.shape.begin() + 2, x.shape.end());
  return Invalid(what, " has shape ", ShapeToString(x.shape),
                 "; it needs the axes [N, C] and spatial ones behind them");
}

std::vector<int64_t> IntsOrNone(const HandlerContext& c, std::string_view name) {
  return c.Given(name) ? c.Ints(name) : std::vector<int64_t>();
}

absl::StatusOr<Window> NodeWindow(const HandlerContext& c, const Shape& sizes,
                                  std::vector<int64_t> kernel, bool dilated, bool ceil_mode) {
  ASSIGN_OR_RETURN(std::string auto_pad,
                   c.OneOf("auto_pad", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"}));
  return WindowOf(sizes, std::move(kernel), IntsOrNone(c, "strides"),
                  dilated ? IntsOrNone(c, "dilations") : std::vector<int64_t>(),
                  IntsOrNone(c, "pads"), auto_pad, ceil_mode);
}

Attrs WindowAttrs(const Window& w) {
  return {{"strides", w.strides}, {"dilations", w.dilations}, {"begin", w.begin}, {"out", w.out}};
}

absl::Status Conv(HandlerContext& c) {
  ASSIGN_OR_RETURN(Value y, PlainConv(c, c.In(0), c.In(1)));
  return SetWithBias(c, y, 2);
}

// Returns w [C, M/group, K...] as [M * strides..., C/group, ceil(K / strides)...]. Each phase of
// result positions, modulo the strides, gets the taps that meet elements of x there, reversed.
Value Phases(OpBuilder& b, const Value& w, int64_t group, absl::Span<const int64_t> strides) {
  const Expr channels = FloorDiv(w.shape[0], group), maps = w.shape[1];
  int64_t phases = 1;
  for (const int64_t stride : strides) phases *= stride;
  Shape shape = {group * maps * phases, channels};
  const Expr m = FloorDiv(Expr::Axis(0), phases);
  std::vector<Expr> at = {FloorDiv(m, maps) * channels + Expr::Axis(1), Mod(m, maps)};
  for (int i = 2; i < w.rank(); ++i) {
    const int64_t stride = strides[i - 2];
    const Expr taps = CeilDiv(w.shape[i], stride);
    shape.push_back(taps);
    phases /= stride;
    const Expr phase = Mod(FloorDiv(Expr::Axis(0), phases), stride);
    at.push_back(phase + stride * (taps - 1 - Expr::Axis(i)));
  }
  return MapOr(b, w, std::move(shape), std::move(at), b.Scalar(w.elem, 0));
}

// Convolves x, with strides 1, by one kernel per phase of result positions, and interleaves the
// phases: y[s q + a - begin] = sum over t of x[q - t] w[s t + a].
Value ConvPhases(OpBuilder& b, const Value& x, const Value& w, const Window& transposed,
                 int64_t group) {
  Window window = transposed;
  const Value kernels = Phases(b, w, group, transposed.strides);
  Shape shape = {x.shape[0], group * w.shape[1]};
  std::vector<Expr> at = {Expr::Axis(0), Expr::Axis(1)};
  for (int i = 2; i < x.rank(); ++i) {
    const int64_t stride = transposed.strides[i - 2];
    const Expr &begin = transposed.begin[i - 2], &out = transposed.out[i - 2];
    window.kernel[i - 2] = (transposed.kernel[i - 2] + stride - 1) / stride;
    window.strides[i - 2] = 1;
    window.begin[i - 2] = window.kernel[i - 2] - 1;
    window.out[i - 2] = CeilDiv(out + begin, stride);
    shape.push_back(out);
    const Expr place = Expr::Axis(i) + begin;
    at[1] = at[1] * stride + Mod(place, stride);
    at.push_back(FloorDiv(place, stride));
  }
  return Map(b, ConvRow(b, x, kernels, window, group), std::move(shape), std::move(at));
}

// Without dilations, convolves each phase. With dilations, convolves x, with zeros between its
// elements, by the reversed kernel with strides 1.
absl::Status ConvTranspose(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &w = c.In(1);
  ASSIGN_OR_RETURN(ConvOperands operands, OperandsOf(c, x, w));
  const int64_t group = operands.group;
  const std::optional<int64_t> channels = w.shape[0].constant(), maps = w.shape[1].constant();
  if (!channels || !maps || *channels % group != 0 || *maps < 1 ||
      !b.bounds().ProvablyEqual(x.shape[1], w.shape[0])) {
    return Invalid("X has shape ", ShapeToString(x.shape), ", W has ", ShapeToString(w.shape),
                   ", group is ", group,
                   "; W must be [C, M/group, ...] of constant sizes, C the channels of X, which "
                   "group must divide");
  }
  ASSIGN_OR_RETURN(Window window, TransposeWindow(c, operands));
  const auto is_one = [](int64_t i) { return i == 1; };
  const bool strided = !std::all_of(window.strides.begin(), window.strides.end(), is_one);
  if (strided && std::all_of(window.dilations.begin(), window.dilations.end(), is_one)) {
    return SetWithBias(c, ConvPhases(b, x, w, window, group), 2);
  }
  const Value spread = Spread(b, x, window.strides);
  for (size_t i = 0; i < operands.sizes.size(); ++i) {
    window.begin[i] = (operands.kernel[i] - 1) * window.dilations[i] - window.begin[i];
    window.strides[i] = 1;
  }
  return SetWithBias(c, ConvRow(b, spread, Transposed(b, w, group), window, group), 2);
}

absl::Status ConvInteger(HandlerContext& c) {
  ASSIGN_OR_RETURN(Value x, FromZero(c, 0, 2, "x_zero_point"));
  ASSIGN_OR_RETURN(Value w, FromZero(c, 1, 3, "w_zero_point"));
  ASSIGN_OR_RETURN(Value y, PlainConv(c, x, w));
  c.Set(0, y);
  return absl::OkStatus();
}

// Applies a depthwise convolution to the previous elements, [batch, channels, K - 1], followed by
// x. Also returns the elements that the next call needs.
absl::Status CausalConvWithState(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &w = c.In(1);
  ASSIGN_OR_RETURN(std::string activation, c.OneOf("activation", {"none", "silu", "swish"}));
  const bool ranks = x.rank() == 3 && w.rank() == 3;
  const std::optional<int64_t> channels = ranks ? w.shape[0].constant() : std::nullopt;
  const std::optional<int64_t> kernel = ranks ? w.shape[2].constant() : std::nullopt;
  if (!channels || !kernel || *kernel < 1 || !w.shape[1].IsConstant(1) ||
      !b.bounds().ProvablyEqual(x.shape[1], w.shape[0])) {
    return Invalid("input has shape ", ShapeToString(x.shape), ", weight has ",
                   ShapeToString(w.shape),
                   "; they must be [batch, channels, length] and [channels, "
                   "1, K] of constant sizes");
  }
  const Shape before = {x.shape[0], x.shape[1], *kernel - 1};
  Value past = c.Has(3) ? c.In(3) : Splat(b, b.Scalar(x.elem, 0), before);
  bool fits = past.rank() == 3;
  for (int i = 0; fits && i < 3; ++i) fits = b.bounds().ProvablyEqual(past.shape[i], before[i]);
  if (!fits) {
    return Invalid("past_state has shape ", ShapeToString(past.shape), "; it must be ",
                   ShapeToString(before));
  }
  const Value all = Concat(b, {past, x}, 2);
  const Window window = {{*kernel}, {1}, {1}, {0}, {0}, {x.shape[2]}};
  Value y = ConvRow(b, all, w, window, *channels);
  if (c.Has(2)) {
    ASSIGN_OR_RETURN(y, WithBias(b, y, c.In(2)));
  }
  c.Set(0, activation == "none" ? y : Unary(b, Op::kSilu, y));
  if (c.Wants(1)) c.Set(1, Slice(b, all, 2, x.shape[2], *kernel - 1));
  return absl::OkStatus();
}

// Computes exact sums, then one real factor, rounded half to even before the zero point is added.
absl::Status QLinearConv(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(Value x, FromZero(c, 0, 2, "x_zero_point"));
  ASSIGN_OR_RETURN(Value w, FromZero(c, 3, 5, "w_zero_point"));
  absl::StatusOr<Value> sum = PlainConv(c, x, w);
  if (sum.ok() && c.Has(8)) sum = WithBias(b, *sum, c.In(8));
  if (!sum.ok()) return sum.status();
  const absl::StatusOr<Value> x_scale = ScalarOperand(c, 1, "x_scale"),
                              y_scale = ScalarOperand(c, 6, "y_scale"),
                              y_zero = ScalarOperand(c, 7, "y_zero_point");
  for (const auto* one : {&x_scale, &y_scale, &y_zero}) {
    if (!one->ok()) return one->status();
  }
  Value factor = c.In(4);
  if (factor.rank() == 1 && factor.shape[0].IsConstant(1)) factor = Reshape(b, factor, {});
  if (factor.rank() != 0) {
    if (factor.rank() != 1 || !b.bounds().ProvablyEqual(factor.shape[0], c.In(3).shape[0])) {
      return Invalid("w_scale has shape ", ShapeToString(factor.shape),
                     "; it must be a scalar or [", c.In(3).shape[0].ToString(), "]");
    }
    factor = Map(b, factor, sum->shape, {Expr::Axis(1)});
  }
  factor = Div(b, Mul(b, factor, *x_scale), *y_scale);
  const Elem elem = c.In(7).elem;
  const Value real = Mul(b, Cast(b, *sum, Elem::kFloat), factor);
  const Value zero = Cast(b, *y_zero, Elem::kFloat);
  const Value shifted = Add(b, Unary(b, Op::kRound, real), zero);
  const ElemRow& row = Row(elem);
  const bool is_signed = IsSigned(row.carrier);
  c.Set(0, Cast(b,
                Clamp(b, shifted, b.Scalar(Elem::kFloat, is_signed ? -128 : 0),
                      b.Scalar(Elem::kFloat, is_signed ? 127 : 255)),
                elem));
  return absl::OkStatus();
}

namespace {

constexpr HandlerRow kRows[] = {
    {"", "Conv", 1, Conv},
    {"", "ConvTranspose", 1, ConvTranspose},
    {"", "ConvInteger", 10, ConvInteger},
    {"", "QLinearConv", 10, QLinearConv},
    {"", "DeformConv", 19, DeformConv},
    {"", "CausalConvWithState", 27, CausalConvWithState},
    {"", "MaxPool", 1, MaxPool1},
    {"", "MaxPool", 10, MaxPool10},
    {"", "AveragePool", 1, AveragePool1},
    {"", "AveragePool", 7, AveragePool7},
    {"", "AveragePool", 10, AveragePool10},
    {"", "AveragePool", 19, AveragePool19},
    {"", "LpPool", 2, LpPool2},
    {"", "LpPool", 18, LpPool18},
    {"", "GlobalAveragePool", 1, GlobalAveragePool},
    {"", "GlobalMaxPool", 1, GlobalMaxPool},
    {"", "GlobalLpPool", 2, GlobalLpPool},
    {"", "MaxUnpool", 9, MaxUnpool},
};

}  // namespace

absl::Span<const HandlerRow> WindowRows() { return kRows; }

}  // namespace athanor::onnx
