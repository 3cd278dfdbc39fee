// Handlers: pools. Maxima, means and sums of windows use the Pool op; global ones are reductions.
#include <algorithm>
#include <cstdint>
#include <limits>
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

absl::StatusOr<Window> PoolWindow(const HandlerContext& c, const Value& x, bool dilated,
                                  bool has_ceil_mode) {
  ASSIGN_OR_RETURN(Shape sizes, SpatialSizes("X", x));
  return NodeWindow(c, sizes, c.Ints("kernel_shape"), dilated,
                    has_ceil_mode && c.Int("ceil_mode") != 0);
}

Value PoolRow(OpBuilder& b, const Value& x, const Window& w, const char* mode, Shape counted = {}) {
  Attrs attrs = WindowAttrs(w);
  attrs["mode"] = std::string(mode);
  attrs["kernel"] = w.kernel;
  if (!counted.empty()) attrs["counted"] = std::move(counted);
  return b.Raw(Op::kPool, {x}, std::move(attrs), x.elem);
}

// The elements of each window: [N, C, out..., kernel...].
struct Patches {
  Patches(const Value& x, const Window& w) : shape({x.shape[0], x.shape[1]}) {
    const int rank = static_cast<int>(w.kernel.size());
    shape.insert(shape.end(), w.out.begin(), w.out.end());
    shape.insert(shape.end(), w.kernel.begin(), w.kernel.end());
    at = {Expr::Axis(0), Expr::Axis(1)};
    for (int i = 0; i < rank; ++i) {
      at.push_back(Expr::Axis(2 + i) * w.strides[i] + Expr::Axis(2 + rank + i) * w.dilations[i] -
                   w.begin[i]);
      taps.push_back(2 + rank + i);
    }
    for (int i = 0; i < 2 + rank; ++i) places.push_back(Expr::Axis(i));
  }
  Shape shape;
  std::vector<Expr> at;      // coordinates in x, which may be outside
  std::vector<Expr> places;  // coordinates in a tensor with one element per window
  std::vector<int> taps;     // the kernel's axes
};

// Converts flat row-major positions in x to those with the spatial axes in column-major order.
Value ColumnMajor(OpBuilder& b, const Value& at, const Shape& x) {
  const auto size = [&](const Expr& e) { return Size(b, Elem::kInt64, e, at.shape); };
  Expr inner = 1;
  for (size_t i = 2; i < x.size(); ++i) inner *= x[i];
  const Value within = Binary(b, Op::kMod, at, size(inner));
  Value sum = Sub(b, at, within);
  Expr before = 1, behind = inner;
  for (size_t i = 2; i < x.size(); ++i) {
    behind = FloorDiv(behind, x[i]);
    const Value row = Binary(b, Op::kFloorDiv, within, size(behind));
    sum = Add(b, sum, Mul(b, Binary(b, Op::kMod, row, size(x[i])), size(before)));
    before *= x[i];
  }
  return sum;
}

// Returns the flat position in x of each window's maximum: the first of equal ones, or of NaNs.
Value MaximumPositions(OpBuilder& b, const Value& x, const Value& maxima, const Window& w) {
  const Patches patches(x, w);
  Tensor lowest = Tensor::Zeros(x.dtype(), {});
  StoreScalar(lowest, 0, LowestScalar(x.dtype()));
  const Value values = MapOr(b, x, patches.shape, patches.at, b.Literal(x.elem, std::move(lowest)));
  Expr elements = 1;
  for (const Expr& size : x.shape) elements *= size;
  const Value flat = Reshape(b, b.Iota(Elem::kInt64, {elements}, 0), x.shape);
  // Positions outside x sort behind all positions inside.
  const Value positions = MapOr(b, flat, patches.shape, patches.at,
                                b.Integer(Elem::kInt64, std::numeric_limits<int64_t>::max()));
  Value hit = Equal(b, values, Map(b, maxima, patches.shape, patches.places));
  if (IsFloat(x.dtype())) hit = Or(b, hit, IsNaN(b, values));
  const Value none = b.Integer(Elem::kInt64, std::numeric_limits<int64_t>::min());
  return Neg(b, Reduce(b, Op::kMaxReduce, Select(b, hit, Neg(b, positions), none), patches.taps,
                       /*keepdims=*/false));
}

absl::Status MaxPool(HandlerContext& c, bool since_10) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(Window w, PoolWindow(c, x, since_10, since_10));
  const Value y = PoolRow(b, x, w, "max");
  c.Set(0, y);
  if (!c.Wants(1)) return absl::OkStatus();
  const int64_t order = c.Int("storage_order");
  if (order != 0 && order != 1) {
    return Invalid("attribute storage_order is ", order, "; it must be 0 or 1");
  }
  const Value at = MaximumPositions(b, x, y, w);
  c.Set(1, order == 0 ? at : ColumnMajor(b, at, x.shape));
  return absl::OkStatus();
}

absl::StatusOr<Value> AverageOf(HandlerContext& c, const Value& x, bool counts, bool has_ceil_mode,
                                bool dilated) {
  ASSIGN_OR_RETURN(Window w, PoolWindow(c, x, dilated, has_ceil_mode));
  Shape counted;
  if (counts && c.Int("count_include_pad") != 0) {
    for (size_t i = 0; i < w.kernel.size(); ++i) {
      counted.push_back(x.shape[2 + i] + w.begin[i] + w.end[i]);
    }
  }
  return PoolRow(c.b(), x, w, "mean", std::move(counted));
}

absl::Status AveragePool(HandlerContext& c, bool counts, bool has_ceil_mode, bool dilated) {
  absl::StatusOr<Value> y = AverageOf(c, c.In(0), counts, has_ceil_mode, dilated);
  if (y.ok()) c.Set(0, *std::move(y));
  return y.status();
}

// Computes |x|^p and its inverse, in floats wide enough for sums.
struct Power {
  int64_t p;

  Value Of(OpBuilder& b, const Value& x) const {
    if (p == 1) return Abs(b, x);
    if (p == 2) return Mul(b, x, x);
    return Binary(b, Op::kPow, Abs(b, x), Number(b, x.elem, static_cast<double>(p)));
  }
  Value Root(OpBuilder& b, const Value& x) const {
    if (p == 1) return x;
    if (p == 2) return Unary(b, Op::kSqrt, x);
    return Binary(b, Op::kPow, x, Number(b, x.elem, 1.0 / static_cast<double>(p)));
  }
  // Rounds to the type.
  static Value Number(OpBuilder& b, Elem elem, double value) {
    Tensor t = Tensor::Zeros(CarrierOf(elem), {});
    StoreScalar(t, 0, Scalar::Float(t.dtype, value));
    return b.Literal(elem, std::move(t));
  }
};

absl::StatusOr<Power> PowerOf(const HandlerContext& c) {
  const int64_t p = c.Int("p");
  if (p >= 1) return Power{p};
  return Invalid("attribute p is ", p, "; it must be 1 or more");
}

absl::Status LpPool(HandlerContext& c, bool since_18) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(Power power, PowerOf(c));
  ASSIGN_OR_RETURN(Window w, PoolWindow(c, x, since_18, since_18));
  const Value sum = PoolRow(b, power.Of(b, Up(b, x)), w, "sum");
  c.Set(0, Cast(b, power.Root(b, sum), x.elem));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> SpatialAxes(const Value& x) {
  RETURN_IF_ERROR(SpatialSizes("X", x).status());
  std::vector<int> axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

}  // namespace

absl::Status MaxPool1(HandlerContext& c) { return MaxPool(c, false); }
absl::Status MaxPool10(HandlerContext& c) { return MaxPool(c, true); }
absl::Status AveragePool1(HandlerContext& c) { return AveragePool(c, false, false, false); }
absl::Status AveragePool7(HandlerContext& c) { return AveragePool(c, true, false, false); }
absl::StatusOr<Value> MeansOfWindows(HandlerContext& c, const Value& x) {
  return AverageOf(c, x, /*counts=*/true, /*has_ceil_mode=*/true, /*dilated=*/false);
}
absl::Status AveragePool10(HandlerContext& c) { return AveragePool(c, true, true, false); }
absl::Status AveragePool19(HandlerContext& c) { return AveragePool(c, true, true, true); }
absl::Status LpPool2(HandlerContext& c) { return LpPool(c, false); }
absl::Status LpPool18(HandlerContext& c) { return LpPool(c, true); }

absl::Status GlobalAveragePool(HandlerContext& c) {
  ASSIGN_OR_RETURN(std::vector<int> axes, SpatialAxes(c.In(0)));
  c.Set(0, Mean(c.b(), c.In(0), std::move(axes), /*keepdims=*/true));
  return absl::OkStatus();
}

absl::Status GlobalMaxPool(HandlerContext& c) {
  ASSIGN_OR_RETURN(std::vector<int> axes, SpatialAxes(c.In(0)));
  c.Set(0, Reduce(c.b(), Op::kMaxReduce, c.In(0), std::move(axes), /*keepdims=*/true));
  return absl::OkStatus();
}

absl::Status GlobalLpPool(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(std::vector<int> axes, SpatialAxes(x));
  ASSIGN_OR_RETURN(Power power, PowerOf(c));
  const Value sum = Reduce(b, Op::kSumReduce, power.Of(b, Up(b, x)), std::move(axes),
                           /*keepdims=*/true);
  c.Set(0, Cast(b, power.Root(b, sum), x.elem));
  return absl::OkStatus();
}

// Returns zeros except at the flat positions that a MaxPool gave. These positions refer to the
// smallest result that the attributes allow; output_shape may be larger.
absl::Status MaxUnpool(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value &x = c.In(0), &at = c.In(1);
  ASSIGN_OR_RETURN(Shape sizes, SpatialSizes("X", x));
  // Checked against the kernel by the same rules as a pool's.
  ASSIGN_OR_RETURN(Window w,
                   WindowOf(Shape(sizes.size(), Expr(int64_t{1} << 40)), c.Ints("kernel_shape"),
                            IntsOrNone(c, "strides"), {}, IntsOrNone(c, "pads"), "NOTSET", false));
  Shape shape = {x.shape[0], x.shape[1]};
  Expr from = x.shape[0] * x.shape[1], to = from;
  for (size_t i = 0; i < sizes.size(); ++i) {
    shape.push_back((sizes[i] - 1) * w.strides[i] + w.kernel[i] - w.begin[i] - w.end[i]);
    from *= sizes[i];
    to *= shape.back();
  }
  const Value zeros = Splat(b, b.Scalar(x.elem, 0), {to});
  Value y = Reshape(b, ScatterAt(b, zeros, {Reshape(b, at, {from})}, Reshape(b, x, {from}), "set"),
                    shape);
  if (c.Has(2)) {
    ASSIGN_OR_RETURN(std::vector<Expr> stated, c.Sizes(2, "output_shape"));
    bool fits = stated.size() == shape.size();
    for (size_t i = 0; i < shape.size() && fits; ++i) {
      fits = b.bounds().NonNegative(stated[i] - shape[i]) &&
             (i >= 2 || b.bounds().ProvablyEqual(stated[i], shape[i]));
    }
    if (!fits) {
      return Invalid("output_shape is ", ShapeToString(stated),
                     "; it must have batch and channels "
                     "of ",
                     ShapeToString(shape), " and nowhere less than that");
    }
    std::vector<Expr> places;
    for (size_t i = 0; i < shape.size(); ++i) places.push_back(Expr::Axis(static_cast<int>(i)));
    y = MapOr(b, y, stated, std::move(places), b.Scalar(x.elem, 0));
  }
  c.Set(0, y);
  return absl::OkStatus();
}

}  // namespace athanor::onnx
