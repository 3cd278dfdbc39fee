#include "compiler/frontend/onnx/build/build_reduce.h"

// Sums, extremes and contractions.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build_cast.h"
#include "compiler/frontend/onnx/build/build_elementwise.h"
#include "compiler/frontend/onnx/build/build_movement.h"
#include "compiler/frontend/onnx/build/build_sizes.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

std::vector<int64_t> Ascending(std::vector<int> axes) {
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return {axes.begin(), axes.end()};
}

}  // namespace

Value Reduce(OpBuilder& b, Op op, const Value& x, std::vector<int> axes, bool keepdims) {
  if (!b.status().ok()) return FailedValue(x.elem);
  const std::vector<int64_t> removed = Ascending(std::move(axes));
  if (removed.empty()) return x;
  const Value y = b.Raw(op, {x}, {{"axes", removed}}, x.elem);
  return keepdims ? Unsqueeze(b, y, std::vector<int>(removed.begin(), removed.end())) : y;
}

Value Mean(OpBuilder& b, const Value& x, std::vector<int> axes, bool keepdims) {
  if (!b.status().ok()) return FailedValue(x.elem);
  Expr count = 1;
  for (int64_t axis : Ascending(axes)) count *= x.shape[axis];
  const Value sum = Reduce(b, Op::kSumReduce, Up(b, x), std::move(axes), keepdims);
  return Cast(b, Div(b, sum, Size(b, sum.elem, count, sum.shape)), x.elem);
}

Value ArgExtreme(OpBuilder& b, const Value& x, int axis, bool largest, bool last, bool keepdims) {
  if (!b.status().ok()) return FailedValue(Elem::kInt64);
  // Finds a minimum as the maximum of reversed values. Not is exact for the integer minimum, unlike
  // negation.
  const bool is_float = IsFloat(x.dtype());
  const Value key = largest ? x : is_float ? Neg(b, x) : Not(b, x);
  Value hit = Equal(b, key, Reduce(b, Op::kMaxReduce, key, {axis}, /*keepdims=*/true));
  if (is_float) hit = Or(b, hit, IsNaN(b, key));
  const Value position = b.Iota(Elem::kInt64, x.shape, axis);
  const Value none = b.Integer(Elem::kInt64, INT64_MIN);
  const Value at =
      Reduce(b, Op::kMaxReduce, Select(b, hit, last ? position : Neg(b, position), none), {axis},
             keepdims);
  return last ? at : Neg(b, at);
}

Value Contract(OpBuilder& b, std::string_view spec, const Value& x, const Value& y) {
  if (!b.status().ok()) return FailedValue(x.elem);
  return b.Raw(Op::kContract, {x, y}, {{"spec", std::string(spec)}}, x.elem);
}

Value MatMul(OpBuilder& b, const Value& x, const Value& y) {
  if (!b.status().ok()) return FailedValue(x.elem);
  if (x.rank() == 0 || y.rank() == 0) {
    b.Fail(Invalid("a matrix product needs operands of rank 1 or more, not of shapes ",
                   ShapeToString(x.shape), " and ", ShapeToString(y.shape)));
    return FailedValue(x.elem);
  }
  static constexpr std::string_view kBatch = "abcdefghijlopqrs";  // all but k, m, n
  const int batch_x = std::max(x.rank() - 2, 0), batch_y = std::max(y.rank() - 2, 0);
  const int batch = std::max(batch_x, batch_y);
  if (batch > static_cast<int>(kBatch.size())) {
    b.Fail(Invalid("a matrix product of rank ", batch + 2, "; it must be at most ",
                   kBatch.size() + 2));
    return FailedValue(x.elem);
  }
  ContractSpec spec;
  std::vector<int> dropped_x, dropped_y;
  for (int i = 0; i < batch; ++i) {
    const char letter = kBatch[i];
    const int at_x = i - (batch - batch_x), at_y = i - (batch - batch_y);
    const auto is_one = [&](const Value& v, int at) {
      return at >= 0 && b.bounds().ProvablyEqual(v.shape[at], 1);
    };
    const bool one_x = is_one(x, at_x), one_y = is_one(y, at_y);
    // A broadcast axis has no letter, unless neither operand has another size.
    const bool drop_x = one_x && at_y >= 0 && !one_y, drop_y = one_y && at_x >= 0 && !one_x;
    if (at_x >= 0) drop_x ? dropped_x.push_back(at_x) : spec.lhs.push_back(letter);
    if (at_y >= 0) drop_y ? dropped_y.push_back(at_y) : spec.rhs.push_back(letter);
    spec.result.push_back(letter);
    if (at_x < 0 || at_y < 0 || drop_x || drop_y) continue;
    if (b.bounds().ProvablyEqual(x.shape[at_x], y.shape[at_y])) continue;
    b.Fail(Invalid("matrix operands ", ShapeToString(x.shape), " and ", ShapeToString(y.shape),
                   ": the batch axes of sizes ", x.shape[at_x].ToString(), " and ",
                   y.shape[at_y].ToString(), " must be equal or 1 for every size of the dims",
                   b.hints().Of({{x.shape[at_x], y.shape[at_y]}})));
    return FailedValue(x.elem);
  }
  const Expr& inner_x = x.shape.back();
  const Expr& inner_y = y.shape[std::max(y.rank() - 2, 0)];
  if (!b.bounds().ProvablyEqual(inner_x, inner_y)) {
    b.Fail(Invalid("matrix operands ", ShapeToString(x.shape), " and ", ShapeToString(y.shape),
                   ": the summed axes have sizes ", inner_x.ToString(), " and ", inner_y.ToString(),
                   inner_x.constant() && inner_y.constant()
                       ? "; they must be equal"
                       : "; they must be equal for every size of the dims, which is not proved",
                   b.hints().Of({{inner_x, inner_y}})));
    return FailedValue(x.elem);
  }
  spec.lhs += x.rank() == 1 ? "k" : "mk";
  spec.rhs += y.rank() == 1 ? "k" : "kn";
  if (x.rank() > 1) spec.result += "m";
  if (y.rank() > 1) spec.result += "n";
  return Contract(b, spec.ToString(), Squeeze(b, x, dropped_x), Squeeze(b, y, dropped_y));
}

}  // namespace athanor::onnx
