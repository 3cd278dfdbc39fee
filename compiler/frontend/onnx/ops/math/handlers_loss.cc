// Handlers: losses over log-probabilities; classes are axis 1.
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/build/build_reduce.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/frontend/onnx/ops/handlers_arith.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

absl::Status CheckShapes(HandlerContext& c) {
  const Value &x = c.In(0), &target = c.In(1);
  bool fits = x.rank() >= 2 && target.rank() == x.rank() - 1;
  for (int i = 0; fits && i < target.rank(); ++i) {
    fits = c.b().bounds().ProvablyEqual(target.shape[i], x.shape[i == 0 ? 0 : i + 1]);
  }
  if (!fits) {
    return Invalid("classes of shape ", ShapeToString(target.shape),
                   " are not for scores of shape ", ShapeToString(x.shape),
                   "; they must have its axes but axis 1");
  }
  if (!c.Has(2)) return absl::OkStatus();
  const Value& weight = c.In(2);
  if (weight.rank() == 1 && c.b().bounds().ProvablyEqual(weight.shape[0], x.shape[1])) {
    return absl::OkStatus();
  }
  return Invalid("weights have shape ", ShapeToString(weight.shape),
                 "; they must be one for each of ", x.shape[1].ToString(), " classes");
}

// Returns whether each target is ignore_index; nullopt if the attribute is not given.
std::optional<Value> Ignored(HandlerContext& c) {
  const Value& target = c.In(1);
  if (!c.Given("ignore_index")) return std::nullopt;
  const int64_t index = c.Int("ignore_index");
  const bool fits =
      target.dtype() == DType::kI64 || (index >= std::numeric_limits<int32_t>::min() &&
                                        index <= std::numeric_limits<int32_t>::max());
  if (!fits) return std::nullopt;
  return Equal(c.b(), target, c.b().Integer(target.elem, index));
}

// Log-probabilities are in the accumulator's type; `elem` is the result's type.
absl::Status SetLoss(HandlerContext& c, const Value& log_prob, Elem elem) {
  OpBuilder& b = c.b();
  ASSIGN_OR_RETURN(const auto reduction, c.OneOf("reduction", {"none", "sum", "mean"}));
  const Value& target = c.In(1);
  const std::optional<Value> ignored = Ignored(c);
  // A negative label is no class. Mapped to the number of classes, it is an error of the request,
  // as any other label outside.
  const Value zero = b.Integer(target.elem, 0);
  const Value classes = Size(b, target.elem, c.In(0).shape[1], {});
  Value label = Select(b, Less(b, target, zero), classes, target);
  if (ignored) label = Select(b, *ignored, zero, label);
  std::vector<Value> at;
  for (int i = 0; i < target.rank(); ++i) at.push_back(b.Iota(target.elem, target.shape, i));
  at.insert(at.begin() + 1, label);
  Value loss = Neg(b, GatherAt(b, log_prob, at));
  const Value nothing = b.Scalar(log_prob.elem, 0);
  std::optional<Value> weight;
  if (c.Has(2)) {
    weight = Gather(b, Cast(b, c.In(2), log_prob.elem), label, 0);
    loss = Mul(b, loss, *weight);
  }
  if (ignored) {
    const Value one = b.Scalar(log_prob.elem, 1);
    weight = Select(b, *ignored, nothing, weight ? *weight : one);
    loss = Select(b, *ignored, nothing, loss);
  }
  std::vector<int> all;
  for (int i = 0; i < target.rank(); ++i) all.push_back(i);
  if (reduction != "none") {
    const Value sum = Reduce(b, Op::kSumReduce, loss, all, false);
    if (reduction == "sum") {
      loss = sum;
    } else if (weight) {
      const Value weights = Broadcast(b, *weight, target.shape);
      loss = Div(b, sum, Reduce(b, Op::kSumReduce, weights, all, false));
    } else {
      loss = Mean(b, loss, all, false);
    }
  }
  c.Set(0, Cast(b, loss, elem));
  return absl::OkStatus();
}

absl::Status NegativeLogLikelihood(HandlerContext& c) {
  RETURN_IF_ERROR(CheckShapes(c));
  return SetLoss(c, Up(c.b(), c.In(0)), c.In(0).elem);
}

absl::Status SoftmaxCrossEntropy(HandlerContext& c) {
  OpBuilder& b = c.b();
  RETURN_IF_ERROR(CheckShapes(c));
  const Value log_prob = LogSoftmaxAlong(b, Up(b, c.In(0)), 1);
  if (c.Wants(1)) c.Set(1, Cast(b, log_prob, c.In(0).elem));
  return c.Wants(0) ? SetLoss(c, log_prob, c.In(0).elem) : absl::OkStatus();
}

constexpr HandlerRow kRows[] = {
    {"", "NegativeLogLikelihoodLoss", 1, NegativeLogLikelihood},
    {"", "SoftmaxCrossEntropyLoss", 1, SoftmaxCrossEntropy},
};

}  // namespace

absl::Span<const HandlerRow> LossRows() { return kRows; }

}  // namespace athanor::onnx
