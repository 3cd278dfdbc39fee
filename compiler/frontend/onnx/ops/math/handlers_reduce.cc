// Handlers: reductions, ArgMax and the softmax family.
#include <limits>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Reads the axes: an attribute before version `operand_since`, then an operand. An empty list means
// all axes, or no axes with noop_with_empty_axes.
absl::StatusOr<std::vector<int>> AxesOf(HandlerContext& c, int operand_since) {
  const int rank = c.In(0).rank();
  std::vector<int64_t> axes;
  bool none_are_all = true;
  if (c.version() < operand_since) {
    if (c.Given("axes")) axes = c.Ints("axes");
  } else {
    if (c.Has(1)) {
      ASSIGN_OR_RETURN(axes, c.Integers(1, "axes"));
    }
    none_are_all = c.Int("noop_with_empty_axes") == 0;
  }
  if (axes.empty() && none_are_all) {
    for (int i = 0; i < rank; ++i) axes.push_back(i);
  }
  return c.Axes(axes, rank);
}

using Axes = std::vector<int>;

Value Sum(OpBuilder& b, const Value& x, const Axes& axes) {
  return Reduce(b, Op::kSumReduce, x, axes, true);
}
Value MaxOver(OpBuilder& b, const Value& x, const Axes& axes) {
  return Reduce(b, Op::kMaxReduce, x, axes, true);
}
// Computes a minimum as the maximum of reversed values, which is exact, also for the integer
// minimum.
Value MinOver(OpBuilder& b, const Value& x, const Axes& axes) {
  const bool floats = IsFloat(x.dtype());
  const Value most = MaxOver(b, floats ? Neg(b, x) : Not(b, x), axes);
  return floats ? Neg(b, most) : Not(b, most);
}
Value MeanOver(OpBuilder& b, const Value& x, const Axes& axes) { return Mean(b, x, axes, true); }
Value Product(OpBuilder& b, const Value& x, const Axes& axes) {
  return Reduce(b, Op::kMulReduce, x, axes, true);
}
Value SumOfSizes(OpBuilder& b, const Value& x, const Axes& axes) { return Sum(b, Abs(b, x), axes); }
Value SumOfSquares(OpBuilder& b, const Value& x, const Axes& axes) {
  return Sum(b, Mul(b, x, x), axes);
}
Value RootOfSquares(OpBuilder& b, const Value& x, const Axes& axes) {
  return Unary(b, Op::kSqrt, SumOfSquares(b, x, axes));
}
Value LogOfSum(OpBuilder& b, const Value& x, const Axes& axes) {
  return Unary(b, Op::kLog, Sum(b, x, axes));
}
// Returns log(sum(exp(x))), shifted by the maximum unless that is infinite.
Value LogOfExps(OpBuilder& b, const Value& x, const Axes& axes) {
  const Value most = MaxOver(b, x, axes);
  const Value infinite = Equal(b, Abs(b, most), b.Scalar(x.elem, kInfinity));
  const Value from = Select(b, infinite, b.Scalar(x.elem, 0), most);
  return Add(b, from, Unary(b, Op::kLog, Sum(b, Unary(b, Op::kExp, Sub(b, x, from)), axes)));
}

// Type that a reduction computes in: the operand's; with f16 and bf16 in f32; or also with integers
// in f64.
enum class In { kPlain, kUp, kFloats };

template <auto kFunction, In kIn, int kOperandSince>
absl::Status ReduceRow(HandlerContext& c) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const Axes axes, AxesOf(c, kOperandSince));
  Value x = c.In(0);
  if (kIn != In::kPlain) x = Up(b, x);
  if (kIn == In::kFloats && !IsFloat(x.dtype())) x = Cast(b, x, Elem::kDouble);
  Value y = kFunction(b, x, axes);
  if (c.Int("keepdims") == 0) y = Squeeze(b, y, axes);
  c.Set(0, Cast(b, y, c.In(0).elem));
  return absl::OkStatus();
}

template <bool kLargest>
absl::Status ArgRow(HandlerContext& c) {
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), x.rank()));
  const bool last = c.version() >= 12 && c.Int("select_last_index") != 0;
  c.Set(0, ArgExtreme(c.b(), x, axis, kLargest, last, c.Int("keepdims") != 0));
  return absl::OkStatus();
}

// --- ops along an axis; before opset 13, along all axes from it on, merged into one.

Value SoftmaxAlong(OpBuilder& b, const Value& x, int axis) {
  return Unary(b, Op::kSoftmax, x, {{"axis", static_cast<int64_t>(axis)}});
}
Value HardmaxAlong(OpBuilder& b, const Value& x, int axis) {
  const Value at = ArgExtreme(b, x, axis, /*largest=*/true, /*last=*/false, /*keepdims=*/true);
  return Cast(b, Equal(b, b.Iota(Elem::kInt64, x.shape, axis), at), x.elem);
}

template <auto kAlong>
absl::Status AlongAxis(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), x.rank()));
  if (c.version() >= 13 || axis == x.rank() - 1) {
    c.Set(0, kAlong(b, x, axis));
    return absl::OkStatus();
  }
  Shape joined(x.shape.begin(), x.shape.begin() + axis);
  Expr rest = 1;
  for (int i = axis; i < x.rank(); ++i) rest *= x.shape[i];
  joined.push_back(rest);
  const Value y = Reshape(b, x, joined);
  if (b.status().ok()) c.Set(0, Reshape(b, kAlong(b, y, axis), x.shape));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "ArgMax", 1, ArgRow<true>},
    {"", "ArgMin", 1, ArgRow<false>},
    {"", "Hardmax", 1, AlongAxis<HardmaxAlong>},
    {"", "LogSoftmax", 1, AlongAxis<LogSoftmaxAlong>},
    {"", "ReduceL1", 1, ReduceRow<SumOfSizes, In::kUp, 18>},
    {"", "ReduceL2", 1, ReduceRow<RootOfSquares, In::kFloats, 18>},
    {"", "ReduceLogSum", 1, ReduceRow<LogOfSum, In::kFloats, 18>},
    {"", "ReduceLogSumExp", 1, ReduceRow<LogOfExps, In::kFloats, 18>},
    {"", "ReduceMax", 1, ReduceRow<MaxOver, In::kPlain, 18>},
    {"", "ReduceMean", 1, ReduceRow<MeanOver, In::kUp, 18>},
    {"", "ReduceMin", 1, ReduceRow<MinOver, In::kPlain, 18>},
    {"", "ReduceProd", 1, ReduceRow<Product, In::kPlain, 18>},
    {"", "ReduceSum", 1, ReduceRow<Sum, In::kPlain, 13>},
    {"", "ReduceSumSquare", 1, ReduceRow<SumOfSquares, In::kUp, 18>},
    {"", "Softmax", 1, AlongAxis<SoftmaxAlong>},
};

}  // namespace

absl::Span<const HandlerRow> ReduceRows() { return kRows; }

}  // namespace athanor::onnx
