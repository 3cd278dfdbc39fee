// LayerNormalization and RMSNormalization of ONNX, and of com.microsoft with the ops fused before
// them.
#include "compiler/frontend/onnx/ops/math/handlers_layer_norm.h"

#include <string>
#include <utility>
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

std::vector<int> AxesFrom(int first, int rank) {
  std::vector<int> axes;
  for (int i = first; i < rank; ++i) axes.push_back(i);
  return axes;
}

// Merges the axes from `axis` on into one.
Value Joined(OpBuilder& b, const Value& x, int axis) {
  Shape shape(x.shape.begin(), x.shape.begin() + axis);
  Expr rest = 1;
  for (size_t i = axis; i < x.shape.size(); ++i) rest *= x.shape[i];
  shape.push_back(rest);
  return Reshape(b, x, std::move(shape));
}

bool HasShape(OpBuilder& b, const Value& v, absl::Span<const Expr> shape) {
  bool same = v.shape.size() == shape.size();
  for (size_t i = 0; same && i < shape.size(); ++i) {
    same = b.bounds().ProvablyEqual(v.shape[i], shape[i]);
  }
  return same;
}

}  // namespace

Value LayerNormOf(OpBuilder& b, const Value& x, const Value& scale, const Value* bias, int axis,
                  double epsilon) {
  if (!b.status().ok()) return {};
  const absl::Span<const Expr> inner = absl::MakeSpan(x.shape).subspan(axis);
  if (HasShape(b, scale, inner) && (bias == nullptr || HasShape(b, *bias, inner))) {
    const Value flat_scale = Joined(b, scale, 0);
    const Value flat_bias =
        bias != nullptr ? Joined(b, *bias, 0) : Splat(b, b.Scalar(x.elem, 0), flat_scale.shape);
    const Value y = b.Raw(Op::kLayerNorm, {Joined(b, x, axis), flat_scale, flat_bias},
                          {{"epsilon", epsilon}}, x.elem);
    return Reshape(b, y, x.shape);
  }
  const Value wide = Up(b, x);
  const Moments m = MomentsOf(b, wide, AxesFrom(axis, x.rank()));
  Value y = Mul(b, Mul(b, m.difference, InverseRoot(b, m.variance, epsilon)),
                Broadcast(b, Cast(b, scale, wide.elem), x.shape));
  if (bias != nullptr) y = Add(b, y, Broadcast(b, Cast(b, *bias, wide.elem), x.shape));
  return Cast(b, y, x.elem);
}

Value RmsNormOf(OpBuilder& b, const Value& x, const Value& scale, int axis, double epsilon) {
  if (!b.status().ok()) return {};
  if (x.elem == scale.elem && HasShape(b, scale, absl::MakeSpan(x.shape).subspan(axis))) {
    const Value y = b.Raw(Op::kRmsNorm, {Joined(b, x, axis), Joined(b, scale, 0)},
                          {{"epsilon", epsilon}}, x.elem);
    return Reshape(b, y, x.shape);
  }
  const bool has_double = x.elem == Elem::kDouble || scale.elem == Elem::kDouble;
  const Value wide = Cast(b, x, has_double ? Elem::kDouble : Elem::kFloat);
  const Value y = Mul(b, wide, InverseRms(b, wide, axis, epsilon));
  return Cast(b, Mul(b, y, Broadcast(b, Cast(b, scale, wide.elem), x.shape)), scale.elem);
}

Moments MomentsOf(OpBuilder& b, const Value& x, const std::vector<int>& axes) {
  Moments m;
  m.mean = Mean(b, x, axes, true);
  m.difference = Sub(b, x, m.mean);
  m.variance = Mean(b, Mul(b, m.difference, m.difference), axes, true);
  return m;
}

Value InverseRoot(OpBuilder& b, const Value& variance, double epsilon) {
  const Value raised = Add(b, variance, b.Scalar(variance.elem, epsilon));
  return Unary(b, Op::kRecip, Unary(b, Op::kSqrt, raised));
}

Value InverseRms(OpBuilder& b, const Value& x, int axis, double epsilon) {
  return InverseRoot(b, Mean(b, Mul(b, x, x), AxesFrom(axis, x.rank()), true), epsilon);
}

absl::StatusOr<Elem> StashType(HandlerContext& c) {
  const absl::StatusOr<Elem> elem = ElemAttr(c, "stash_type");
  if (!elem.ok()) return elem;
  const DType dtype = CarrierOf(*elem);
  if (IsFloat(dtype) && Computes(dtype)) return elem;
  return Invalid("stash_type is ", ElemName(*elem), "; it must be a float type");
}

absl::Status LayerNormalization(HandlerContext& c) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), x.rank()));
  ASSIGN_OR_RETURN(const Elem stash, StashType(c));
  const double epsilon = c.Float("epsilon");
  const Value* const bias = c.Has(2) ? &c.In(2) : nullptr;
  if (c.Wants(0)) c.Set(0, LayerNormOf(b, x, c.In(1), bias, axis, epsilon));
  if (!c.Wants(1) && !c.Wants(2)) return absl::OkStatus();
  const Moments m = MomentsOf(b, Up(b, x), AxesFrom(axis, x.rank()));
  if (c.Wants(1)) c.Set(1, Cast(b, m.mean, stash));
  if (c.Wants(2)) c.Set(2, Cast(b, InverseRoot(b, m.variance, epsilon), stash));
  return absl::OkStatus();
}

absl::Status RmsNormalization(HandlerContext& c) {
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), c.In(0).rank()));
  RETURN_IF_ERROR(StashType(c).status());
  c.Set(0, RmsNormOf(c.b(), c.In(0), c.In(1), axis, c.Float("epsilon")));
  return absl::OkStatus();
}

}  // namespace athanor::onnx
