// Handlers of the domain ai.onnx.preview: FlexAttention.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// Repeats each head of keys or values for the heads of queries that share it.
absl::StatusOr<Value> PerQueryHead(OpBuilder& b, const Value& x, const Expr& heads) {
  if (b.bounds().ProvablyEqual(x.shape[1], heads)) return x;
  const std::optional<int64_t> queries = heads.constant(), keys = x.shape[1].constant();
  if (!queries || !keys || *keys == 0 || *queries % *keys != 0) {
    return Invalid("it has ", heads.ToString(), " heads of queries for ", x.shape[1].ToString(),
                   " of keys and values; it must be a multiple of them");
  }
  Shape shape = x.shape;
  shape[1] = heads;
  return Map(b, x, std::move(shape),
             {Expr::Axis(0), FloorDiv(Expr::Axis(1), Expr(*queries / *keys)), Expr::Axis(2),
              Expr::Axis(3)});
}

// Inlines a sub-graph that changes scores or probabilities but keeps their shape and type.
absl::StatusOr<Value> Modified(HandlerContext& c, std::string_view name, Value x) {
  if (!c.Given(name) || !c.b().status().ok()) return x;
  ASSIGN_OR_RETURN(std::vector<Value> results, c.Inline(c.GraphAttr(name), {x}, name));
  if (results.size() != 1) {
    return Invalid("graph ", Quoted(name), " has ", results.size(), " outputs; it must have one");
  }
  const Value& y = results.front();
  bool same = y.elem == x.elem && y.rank() == x.rank();
  for (int i = 0; same && i < x.rank(); ++i) {
    same = c.b().bounds().ProvablyEqual(x.shape[i], y.shape[i]);
  }
  if (same) return y;
  return Invalid("graph ", Quoted(name), " makes ", ElemName(y.elem), ShapeToString(y.shape),
                 " of ", ElemName(x.elem), ShapeToString(x.shape), "; shape and type must stay");
}

// Accumulates in the softmax's type throughout and rounds once.
absl::Status FlexAttention(HandlerContext& c) {
  OpBuilder& b = c.b();
  for (int i = 0; i < 3; ++i) {
    if (c.In(i).rank() == 4) continue;
    return Invalid("operand ", i, " has rank ", c.In(i).rank(),
                   "; it must be 4: batch, heads, sequence, size of a head");
  }
  const Value& q = c.In(0);
  Elem wide = q.elem == Elem::kDouble ? Elem::kDouble : Elem::kFloat;
  if (c.Given("softmax_precision")) {
    const std::optional<Elem> given = ElemOf(c.Int("softmax_precision"));
    if (!given || !IsFloat(CarrierOf(*given)) || !Computes(CarrierOf(*given))) {
      return Invalid("attribute \"softmax_precision\" is ", c.Int("softmax_precision"),
                     "; it must be the number of a float type");
    }
    wide = *given;
  }
  ASSIGN_OR_RETURN(const Value k, PerQueryHead(b, Cast(b, c.In(1), wide), q.shape[1]));
  ASSIGN_OR_RETURN(const Value v, PerQueryHead(b, Cast(b, c.In(2), wide), q.shape[1]));
  Value scale = b.Scalar(Elem::kFloat, 1);
  if (c.Given("scale")) {
    scale = b.Scalar(Elem::kFloat, c.Float("scale"));
  } else {
    scale = Unary(b, Op::kRecip, Unary(b, Op::kSqrt, Size(b, Elem::kFloat, q.shape[3], {})));
  }
  Value scores = Contract(b, "bhqe,bhke->bhqk", Cast(b, q, wide), k);
  scores = Mul(b, scores, Cast(b, scale, wide));
  absl::StatusOr<Value> modified = Modified(c, "score_mod", std::move(scores));
  if (!modified.ok()) return modified.status();
  Value probabilities = Unary(b, Op::kSoftmax, *modified, {{"axis", int64_t{3}}});
  modified = Modified(c, "prob_mod", std::move(probabilities));
  if (!modified.ok()) return modified.status();
  c.Set(0, Cast(b, Contract(b, "bhqk,bhke->bhqe", *modified, v), q.elem));
  return absl::OkStatus();
}

constexpr HandlerRow kRows[] = {{"ai.onnx.preview", "FlexAttention", 1, FlexAttention}};

}  // namespace

absl::Span<const HandlerRow> PreviewRows() { return kRows; }

}  // namespace athanor::onnx
