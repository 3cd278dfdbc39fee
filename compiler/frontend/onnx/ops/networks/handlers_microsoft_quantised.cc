// Handlers of com.microsoft's quantised ops: they dequantise, compute in f32, and quantise again.
#include <algorithm>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/frontend/onnx/ops/math/handlers_quantised.h"
#include "compiler/frontend/onnx/ops/networks/handlers_window.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

// Returns operand `i`, a scale or zero point of the whole tensor, as a scalar.
Value One(HandlerContext& c, int i) {
  const absl::StatusOr<Value> one =
      ScalarOperand(c, i, Cat("operand ", i, ", ", Quoted(c.node().input(i)), ","));
  if (one.ok()) return *one;
  c.b().Fail(one.status());
  return FailedValue(c.In(i).elem);
}

// Returns (q - zero) * scale for operand `i`; an absent `zero` means 0.
Value Real(HandlerContext& c, int i, int scale, int zero) {
  OpBuilder& b = c.b();
  Value q = Cast(b, c.In(i), Elem::kInt32);
  if (c.Has(zero)) q = Sub(b, q, Cast(b, One(c, zero), Elem::kInt32));
  return Mul(b, Cast(b, q, Elem::kFloat), Cast(b, One(c, scale), Elem::kFloat));
}
// Quantises x to `elem` with operands `scale` and `zero`, and sets the result.
void SetQuantised(HandlerContext& c, const Value& x, int scale, int zero, Elem elem) {
  OpBuilder& b = c.b();
  const Value point = c.Has(zero) ? One(c, zero) : Value();
  const Value quotient = Div(b, x, Cast(b, One(c, scale), Elem::kFloat));
  c.Set(0, RoundedTo(b, quotient, c.Has(zero) ? &point : nullptr, elem));
}

absl::Status QLinearAdd(HandlerContext& c) {
  SetQuantised(c, Add(c.b(), Real(c, 0, 1, 2), Real(c, 3, 4, 5)), 6, 7, c.In(0).elem);
  return absl::OkStatus();
}
absl::Status QLinearMul(HandlerContext& c) {
  SetQuantised(c, Mul(c.b(), Real(c, 0, 1, 2), Real(c, 3, 4, 5)), 6, 7, c.In(0).elem);
  return absl::OkStatus();
}
absl::Status QLinearSigmoid(HandlerContext& c) {
  SetQuantised(c, Unary(c.b(), Op::kSigmoid, Real(c, 0, 1, 2)), 3, 4, c.In(0).elem);
  return absl::OkStatus();
}
absl::Status QLinearLeakyRelu(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value x = Real(c, 0, 1, 2);
  const Value below = Mul(b, FloatAttr(c, x, "alpha"), x);
  SetQuantised(c, Select(b, Less(b, x, NumberLike(c, x, 0)), below, x), 3, 4, c.In(0).elem);
  return absl::OkStatus();
}

// `opset` is that of the Softmax which this op replaces: before 13, it is over all axes from `axis`
// on.
absl::Status QLinearSoftmax(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& q = c.In(0);
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), q.rank()));
  Shape shape = q.shape;
  if (c.Int("opset") < 13) {
    Expr rest = 1;
    for (int i = axis; i < q.rank(); ++i) rest *= q.shape[i];
    shape.resize(axis);
    shape.push_back(rest);
  }
  const Value y = Unary(b, Op::kSoftmax, Reshape(b, Real(c, 0, 1, 2), shape),
                        {{"axis", static_cast<int64_t>(axis)}});
  SetQuantised(c, Reshape(b, y, q.shape), 3, 4, q.elem);
  return absl::OkStatus();
}

absl::Status QLinearGlobalAveragePool(HandlerContext& c) {
  const int rank = c.In(0).rank();
  const bool last = c.Int("channels_last") != 0;
  std::vector<int> axes;
  for (int i = last ? 1 : 2; i < (last ? rank - 1 : rank); ++i) axes.push_back(i);
  SetQuantised(c, Mean(c.b(), Real(c, 0, 1, 2), axes, true), 3, 4, c.In(0).elem);
  return absl::OkStatus();
}

absl::Status QLinearAveragePool(HandlerContext& c) {
  OpBuilder& b = c.b();
  const int rank = c.In(0).rank();
  if (rank < 3) return Invalid("X has rank ", rank, "; it must be 3 or more");
  Value x = Real(c, 0, 1, 2);
  // For channels last: moves the channels to the front for the windows, and back afterwards.
  std::vector<int> front = {0, rank - 1}, back = {0};
  for (int i = 1; i < rank - 1; ++i) {
    front.push_back(i);
    back.push_back(i + 1);
  }
  back.push_back(1);
  const bool last = c.Int("channels_last") != 0;
  if (last) x = Permute(b, x, front);
  if (!b.status().ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Value y, MeansOfWindows(c, x));
  SetQuantised(c, last ? Permute(b, y, back) : y, 3, 4, c.In(0).elem);
  return absl::OkStatus();
}

// The operands are the result's scale and zero point, then each part with its own.
absl::Status QLinearConcat(HandlerContext& c) {
  if (c.inputs() < 5 || (c.inputs() - 2) % 3 != 0) {
    return Invalid("it has ", c.inputs(),
                   " operands; they must be a scale, a zero point and then three for each part");
  }
  std::vector<Value> parts;
  for (int i = 2; i < c.inputs(); i += 3) parts.push_back(Real(c, i, i + 1, i + 2));
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), c.In(2).rank()));
  if (!c.b().status().ok()) return absl::OkStatus();
  SetQuantised(c, Concat(c.b(), parts, axis), 0, 1, c.In(1).elem);
  return absl::OkStatus();
}

// Returns i32 products of operands minus their zero points. `a` is already shifted; `b` has zero
// points by column.
Value Product(HandlerContext& c, const Value& a, int i, int zero) {
  OpBuilder& b = c.b();
  Value y = Cast(b, c.In(i), Elem::kInt32);
  if (c.Has(zero)) y = Sub(b, y, Cast(b, c.In(zero), Elem::kInt32));
  return Cast(b, MatMul(b, a, y), Elem::kFloat);
}
Value WithBias(HandlerContext& c, const Value& y, int bias) {
  return c.Has(bias) ? Add(c.b(), y, Cast(c.b(), c.In(bias), Elem::kFloat)) : y;
}

absl::Status MatMulIntegerToFloat(HandlerContext& c) {
  OpBuilder& b = c.b();
  // A's scale and zero point are one number, or one number per row.
  Value parts[2];
  for (int i : {2, 4}) {
    if (!c.Has(i)) continue;
    ASSIGN_OR_RETURN(const Value part, RowParameter(c, i, i == 2 ? "a_scale" : "a_zero_point"));
    parts[i / 2 - 1] = part;
  }
  Value a = Cast(b, c.In(0), Elem::kInt32);
  if (c.Has(4)) a = Sub(b, a, Cast(b, parts[1], Elem::kInt32));
  const Value scale = Mul(b, Cast(b, parts[0], Elem::kFloat), Cast(b, c.In(3), Elem::kFloat));
  const Value y = WithBias(c, Mul(b, Product(c, a, 1, 5), scale), 6);
  c.Set(0, Cast(b, y, c.In(2).elem));
  return absl::OkStatus();
}

// Quantises A to u8 as DynamicQuantizeLinear does.
absl::Status DynamicQuantizeMatMul(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Quantised a = QuantisedDynamically(b, c.In(0));
  const Value shifted =
      Sub(b, Cast(b, a.values, Elem::kInt32), Cast(b, a.zero_point, Elem::kInt32));
  const Value scale = Mul(b, a.scale, Cast(b, c.In(2), Elem::kFloat));
  c.Set(0, WithBias(c, Mul(b, Product(c, shifted, 1, 3), scale), 4));
  return absl::OkStatus();
}

absl::Status QGemm(HandlerContext& c) {
  OpBuilder& b = c.b();
  const bool real = !c.Has(7);
  if (c.In(0).rank() != 2 || c.In(3).rank() != 2) {
    return Invalid("A and B have shapes ", ShapeToString(c.In(0).shape), " and ",
                   ShapeToString(c.In(3).shape), "; both must be matrices");
  }
  const std::vector<int> swapped = {1, 0};
  Value x = Sub(b, Cast(b, c.In(0), Elem::kInt32), Cast(b, c.In(2), Elem::kInt32));
  if (c.Int("transA") != 0) x = Permute(b, x, swapped);
  Value y = Cast(b, c.In(3), Elem::kInt32);
  if (c.Int("transB") != 0) y = Permute(b, y, swapped);
  y = Sub(b, y, Cast(b, c.In(5), Elem::kInt32));
  Value sum = MatMul(b, x, y);
  if (c.Has(6) && b.status().ok()) sum = Add(b, sum, Broadcast(b, c.In(6), sum.shape));
  const Value scale = Mul(b, Mul(b, c.In(1), c.In(4)), FloatAttr(c, c.In(1), "alpha"));
  const Value product = Mul(b, Cast(b, sum, Elem::kFloat), scale);
  if (real) {
    c.Set(0, product);
  } else {
    SetQuantised(c, product, 7, 8, c.Has(8) ? c.In(8).elem : c.In(0).elem);
  }
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {kDomain, "DynamicQuantizeMatMul", 1, DynamicQuantizeMatMul},
    {kDomain, "MatMulIntegerToFloat", 1, MatMulIntegerToFloat},
    {kDomain, "QGemm", 1, QGemm},
    {kDomain, "QLinearAdd", 1, QLinearAdd},
    {kDomain, "QLinearAveragePool", 1, QLinearAveragePool},
    {kDomain, "QLinearConcat", 1, QLinearConcat},
    {kDomain, "QLinearGlobalAveragePool", 1, QLinearGlobalAveragePool},
    {kDomain, "QLinearLeakyRelu", 1, QLinearLeakyRelu},
    {kDomain, "QLinearMul", 1, QLinearMul},
    {kDomain, "QLinearSigmoid", 1, QLinearSigmoid},
    {kDomain, "QLinearSoftmax", 1, QLinearSoftmax},
};

}  // namespace

absl::Span<const HandlerRow> MicrosoftQuantisedRows() { return kRows; }

}  // namespace athanor::onnx
