// Sums, extremes and contractions.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/frontend/onnx/build/build.h"
#include "compiler/ir/value/message.h"

namespace athanor::onnx {
namespace {

std::vector<int64_t> Ascending(std::vector<int> axes) {
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return {axes.begin(), axes.end()};
}

}  // namespace

Value OpBuilder::Reduce(Op op, const Value& x, std::vector<int> axes, bool keepdims) {
  if (!status_.ok()) return FailedValue(x.elem);
  const std::vector<int64_t> removed = Ascending(std::move(axes));
  if (removed.empty()) return x;
  const Value y = Raw(op, {x}, {{"axes", removed}}, x.elem);
  return keepdims ? Unsqueeze(y, std::vector<int>(removed.begin(), removed.end())) : y;
}

Value OpBuilder::Mean(const Value& x, std::vector<int> axes, bool keepdims) {
  if (!status_.ok()) return FailedValue(x.elem);
  Expr count = 1;
  for (int64_t axis : Ascending(axes)) count *= x.shape[axis];
  const Value sum = Reduce(Op::kSumReduce, Up(x), std::move(axes), keepdims);
  return Cast(Div(sum, Size(sum.elem, count, sum.shape)), x.elem);
}

Value OpBuilder::ArgExtreme(const Value& x, int axis, bool largest, bool last, bool keepdims) {
  if (!status_.ok()) return FailedValue(Elem::kInt64);
  // Finds a minimum as the maximum of reversed values. Not is exact for the integer minimum, unlike
  // negation.
  const bool is_float = IsFloat(x.dtype());
  const Value key = largest ? x : is_float ? Neg(x) : Not(x);
  Value hit = Equal(key, Reduce(Op::kMaxReduce, key, {axis}, /*keepdims=*/true));
  if (is_float) hit = Or(hit, IsNaN(key));
  const Value position = Iota(Elem::kInt64, x.shape, axis);
  const Value none = Integer(Elem::kInt64, INT64_MIN);
  const Value at =
      Reduce(Op::kMaxReduce, Select(hit, last ? position : Neg(position), none), {axis}, keepdims);
  return last ? at : Neg(at);
}

Value OpBuilder::Contract(std::string_view spec, const Value& a, const Value& b) {
  if (!status_.ok()) return FailedValue(a.elem);
  return Raw(Op::kContract, {a, b}, {{"spec", std::string(spec)}}, a.elem);
}

Value OpBuilder::MatMul(const Value& a, const Value& b) {
  if (!status_.ok()) return FailedValue(a.elem);
  if (a.rank() == 0 || b.rank() == 0) {
    Fail(Invalid("a matrix product needs operands of rank 1 or more, not of shapes ",
                 ShapeToString(a.shape), " and ", ShapeToString(b.shape)));
    return FailedValue(a.elem);
  }
  static constexpr std::string_view kBatch = "abcdefghijlopqrs";  // all but k, m, n
  const int batch_a = std::max(a.rank() - 2, 0), batch_b = std::max(b.rank() - 2, 0);
  const int batch = std::max(batch_a, batch_b);
  if (batch > static_cast<int>(kBatch.size())) {
    Fail(Invalid("a matrix product of rank ", batch + 2, "; it must be at most ",
                 kBatch.size() + 2));
    return FailedValue(a.elem);
  }
  ContractSpec spec;
  std::vector<int> dropped_a, dropped_b;
  for (int i = 0; i < batch; ++i) {
    const char letter = kBatch[i];
    const int at_a = i - (batch - batch_a), at_b = i - (batch - batch_b);
    const auto is_one = [&](const Value& v, int at) {
      return at >= 0 && bounds_.ProvablyEqual(v.shape[at], 1);
    };
    const bool one_a = is_one(a, at_a), one_b = is_one(b, at_b);
    // A broadcast axis has no letter, unless neither operand has another size.
    const bool drop_a = one_a && at_b >= 0 && !one_b, drop_b = one_b && at_a >= 0 && !one_a;
    if (at_a >= 0) drop_a ? dropped_a.push_back(at_a) : spec.lhs.push_back(letter);
    if (at_b >= 0) drop_b ? dropped_b.push_back(at_b) : spec.rhs.push_back(letter);
    spec.result.push_back(letter);
    if (at_a < 0 || at_b < 0 || drop_a || drop_b) continue;
    if (bounds_.ProvablyEqual(a.shape[at_a], b.shape[at_b])) continue;
    Fail(Invalid("matrix operands ", ShapeToString(a.shape), " and ", ShapeToString(b.shape),
                 ": the batch axes of sizes ", a.shape[at_a].ToString(), " and ",
                 b.shape[at_b].ToString(), " must be equal or 1 for every size of the dims",
                 hints_.Of({{a.shape[at_a], b.shape[at_b]}})));
    return FailedValue(a.elem);
  }
  const Expr& inner_a = a.shape.back();
  const Expr& inner_b = b.shape[std::max(b.rank() - 2, 0)];
  if (!bounds_.ProvablyEqual(inner_a, inner_b)) {
    Fail(Invalid("matrix operands ", ShapeToString(a.shape), " and ", ShapeToString(b.shape),
                 ": the summed axes have sizes ", inner_a.ToString(), " and ", inner_b.ToString(),
                 inner_a.constant() && inner_b.constant()
                     ? "; they must be equal"
                     : "; they must be equal for every size of the dims, which is not proved",
                 hints_.Of({{inner_a, inner_b}})));
    return FailedValue(a.elem);
  }
  spec.lhs += a.rank() == 1 ? "k" : "mk";
  spec.rhs += b.rank() == 1 ? "k" : "kn";
  if (a.rank() > 1) spec.result += "m";
  if (b.rank() > 1) spec.result += "n";
  return Contract(spec.ToString(), Squeeze(a, dropped_a), Squeeze(b, dropped_b));
}

}  // namespace athanor::onnx
