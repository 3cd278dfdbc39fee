#include "compiler/frontend/onnx/ops/networks/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns a mask that our Attention op accepts: [queries, keys], or of q's rank.
Value WholeMask(OpBuilder& b, const Value& mask, const Expr& queries, const Expr& keys) {
  Shape shape(mask.shape.begin(), mask.shape.end());
  while (shape.size() < 2) shape.insert(shape.begin(), 1);
  if (shape.size() == 3) shape.insert(shape.begin(), 1);
  shape[shape.size() - 2] = queries;
  shape[shape.size() - 1] = keys;
  return Broadcast(b, mask, shape);
}

Value MinusInfinity(OpBuilder& b, Elem elem) { return b.Scalar(elem, -kInfinity); }

// Builds our Attention op.
Value AsRow(OpBuilder& b, const Value& q, const Value& k, const Value& v,
            const AttentionSpec& spec) {
  std::vector<Value> operands = {q, k, v};
  std::optional<Value> mask = spec.allowed;
  if (spec.bias) {
    mask =
        spec.allowed ? Select(b, *spec.allowed, *spec.bias, MinusInfinity(b, q.elem)) : spec.bias;
  }
  if (mask) operands.push_back(WholeMask(b, *mask, q.shape[2], k.shape[2]));
  Attrs attrs;
  if (spec.scale) attrs.emplace("scale", *spec.scale);
  if (spec.causal) attrs.emplace("causal", true);
  return b.Raw(Op::kAttention, operands, std::move(attrs), q.elem);
}

// Returns the more precise of two float types.
Elem Wider(Elem a, Elem b) { return a == Elem::kDouble || b == Elem::kDouble ? Elem::kDouble : a; }

void Keep(OpBuilder& b, AttentionScores* kept, AttentionScores::Step step, const Value& scores,
          const Shape& shape, Elem elem) {
  if (kept != nullptr && kept->step == step) {
    kept->scores = Broadcast(b, Cast(b, scores, elem), shape);
  }
}

}  // namespace

absl::StatusOr<Value> SplitHeads(OpBuilder& b, const Value& x, int64_t heads,
                                 std::string_view what) {
  const std::optional<int64_t> hidden = x.shape[2].constant();
  if (heads < 1 || !hidden || *hidden % heads != 0) {
    return Invalid(what, " has ", x.shape[2].ToString(), " elements along axis 2 and ", heads,
                   " heads, which must divide them");
  }
  const int64_t size = *hidden / heads;
  return Map(b, x, {x.shape[0], heads, x.shape[1], size},
             {Expr::Axis(0), Expr::Axis(2), Expr::Axis(1) * size + Expr::Axis(3)});
}

Value JoinHeads(OpBuilder& b, const Value& x) {
  if (!b.status().ok()) return x;
  const Value permuted = Permute(b, x, {0, 2, 1, 3});
  return Reshape(b, permuted, {x.shape[0], x.shape[2], x.shape[1] * x.shape[3]});
}

absl::StatusOr<Value> RepeatHeads(OpBuilder& b, const Value& x, const Expr& heads,
                                  std::string_view what) {
  if (b.bounds().ProvablyEqual(x.shape[1], heads)) return x;
  const std::optional<int64_t> have = x.shape[1].constant(), want = heads.constant();
  if (!have || !want || *have < 1 || *want % *have != 0) {
    return Invalid(what, " has ", x.shape[1].ToString(), " heads, which must divide the ",
                   heads.ToString(), " of the query");
  }
  return Map(b, x, {x.shape[0], heads, x.shape[2], x.shape[3]},
             {Expr::Axis(0), FloorDiv(Expr::Axis(1), *want / *have), Expr::Axis(2), Expr::Axis(3)});
}

Value WindowMask(OpBuilder& b, const Expr& queries, const Expr& keys, const Value& offset,
                 std::optional<int64_t> left, std::optional<int64_t> right) {
  // A bound larger than every position, so that sums with it do not overflow.
  constexpr int64_t kFar = int64_t{1} << 40;
  if (left) left = std::min(*left, kFar);
  if (right) right = std::min(*right, kFar);
  const Value i = Add(b, b.Iota(Elem::kInt64, {queries, 1}, 0), offset);
  const Value j = b.Iota(Elem::kInt64, {1, keys}, 1);
  std::optional<Value> mask;
  if (left) mask = LessEqual(b, Sub(b, i, b.Integer(Elem::kInt64, *left)), j);
  if (right) mask = Both(b, mask, LessEqual(b, j, Add(b, i, b.Integer(Elem::kInt64, *right))));
  return *mask;
}

Value Both(OpBuilder& b, const std::optional<Value>& a, const Value& c) {
  return a ? And(b, *a, c) : c;
}

Value Attend(OpBuilder& b, const Value& q, const Value& k, const Value& v,
             const AttentionSpec& given, AttentionScores* kept) {
  if (!b.status().ok()) return q;
  AttentionSpec spec = given;
  const Elem sums = Up(b, q).elem;
  const Elem wide = Wider(sums, spec.precision.value_or(sums));
  if (spec.softcap <= 0 && kept == nullptr && !spec.sink && wide == sums && q.elem == k.elem &&
      q.elem == v.elem) {
    return AsRow(b, q, k, v, spec);
  }
  using Step = AttentionScores::Step;
  const Expr& queries = q.shape[2];
  const Expr& keys = k.shape[2];
  const Shape shape = {q.shape[0], q.shape[1], queries, keys};
  if (spec.causal) {
    const Value offset = Size(b, Elem::kInt64, keys - queries, {});
    spec.allowed = Both(b, spec.allowed, WindowMask(b, queries, keys, offset, std::nullopt, 0));
  }
  double scale = 0;
  if (spec.scale) {
    scale = *spec.scale;
  } else if (const std::optional<int64_t> size = q.shape[3].constant()) {
    scale = 1 / std::sqrt(static_cast<double>(*size));
  } else {
    b.Fail(Unimplemented("its head size is ", q.shape[3].ToString(),
                         "; it must be a number where no scale is given"));
  }
  const auto number = [&](double x) {
    return b.Scalar(sums, sums == Elem::kFloat ? static_cast<float>(x) : x);
  };
  Value scores =
      Mul(b, Contract(b, "bhqd,bhkd->bhqk", Cast(b, q, sums), Cast(b, k, sums)), number(scale));
  Keep(b, kept, Step::kProduct, scores, shape, q.elem);
  if (spec.softcap > 0) {
    const Value cap = number(spec.softcap);
    scores = Mul(b, Unary(b, Op::kTanh, Div(b, scores, cap)), cap);
  }
  Keep(b, kept, Step::kSoftcap, scores, shape, q.elem);
  std::optional<Value> visible = spec.allowed;
  if (spec.bias) {
    scores = Add(b, scores, Cast(b, *spec.bias, sums));
    visible = Both(b, visible, Not(b, Equal(b, *spec.bias, MinusInfinity(b, spec.bias->elem))));
  }
  if (spec.allowed) scores = Select(b, *spec.allowed, scores, MinusInfinity(b, sums));
  Keep(b, kept, Step::kBias, scores, shape, q.elem);
  Value weights = Cast(b, scores, wide);
  if (spec.sink) {
    const Shape column = {q.shape[0], q.shape[1], queries, 1};
    weights = Concat(
        b, {Broadcast(b, weights, shape), Broadcast(b, Cast(b, *spec.sink, wide), column)}, 3);
  }
  weights = Unary(b, Op::kSoftmax, weights, {{"axis", int64_t{3}}});
  if (spec.sink) weights = Slice(b, weights, 3, 0, keys);
  if (visible) {
    const Value whole = Broadcast(b, *visible, shape);
    const Value any = Reduce(b, Op::kMaxReduce, whole, {3}, /*keepdims=*/true);
    weights = Select(b, any, weights, b.Scalar(wide, 0));
  }
  Keep(b, kept, Step::kSoftmax, weights, shape, q.elem);
  const Elem product = Wider(sums, Up(b, v).elem);
  return Cast(b, Contract(b, "bhqk,bhkd->bhqd", Cast(b, weights, product), Cast(b, v, product)),
              q.elem);
}

Value Rotated(OpBuilder& b, const Value& x, const Value& cos, const Value& sin, bool interleaved) {
  return b.Raw(Op::kRotary, {x, Cast(b, cos, x.elem), Cast(b, sin, x.elem)},
               {{"interleaved", interleaved}}, x.elem);
}

}  // namespace athanor::onnx
