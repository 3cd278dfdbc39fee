// Known contents: reductions and running sums of integers.
#include <algorithm>
#include <string_view>

#include "compiler/frontend/onnx/known/sizes_internal.h"

namespace athanor::onnx {
namespace {

constexpr std::string_view kOps[] = {"ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax", "CumSum"};

Expr Combined(std::string_view op, const Expr& a, const Expr& b, const Bounds& bounds) {
  if (op == "ReduceSum") return a + b;
  if (op == "ReduceProd") return a * b;
  const bool a_is_least = bounds.NonNegative(b - a);
  if (a_is_least || bounds.NonNegative(a - b)) {
    return a_is_least == (op == "ReduceMin") ? a : b;
  }
  return op == "ReduceMin" ? MinOf(a, b) : MaxOf(a, b);
}

// Returns the reduced axes, ascending; nullopt if they are not known.
std::optional<std::vector<int>> ReducedAxes(const SizeCall& call, std::string_view op) {
  const HandlerContext& c = call.c;
  const size_t rank = call.shape(0).size();
  const int operand_since = op == "ReduceSum" ? 13 : 18;
  std::optional<std::vector<int64_t>> given;
  if (call.version() < operand_since) {
    if (c.Given("axes")) given = c.Ints("axes");
  } else {
    if (c.Has(1) && !(given = Numbers(call, 1))) return std::nullopt;
    if ((!given || given->empty()) && c.Int("noop_with_empty_axes") != 0) {
      return std::vector<int>();
    }
  }
  if (given && !given->empty()) return AxesOf(*given, rank);
  std::vector<int> all;
  for (size_t i = 0; i < rank; ++i) all.push_back(static_cast<int>(i));
  return all;
}

Values KnownReduction(const SizeCall& call, std::string_view op) {
  const std::optional<Cells> cells = CellsOf(call.c.In(0));
  const std::optional<std::vector<int>> axes = ReducedAxes(call, op);
  if (!cells || !axes || !IsWhole(cells->elem)) return std::nullopt;
  const bool keep = call.c.Int("keepdims") != 0;
  Shape64 shape, kept = cells->shape;
  for (size_t i = 0; i < cells->shape.size(); ++i) {
    const bool reduced = std::binary_search(axes->begin(), axes->end(), static_cast<int>(i));
    if (reduced) kept[i] = 1;
    if (!reduced || keep) shape.push_back(kept[i]);
  }
  const std::optional<int64_t> count = CountOf(kept);
  if (!count) return std::nullopt;
  std::vector<std::optional<Expr>> sums(*count);
  const std::vector<int64_t> into = BroadcastIndex(kept, cells->shape);
  for (size_t e = 0; e < into.size(); ++e) {
    std::optional<Expr>& sum = sums[into[e]];
    sum = sum ? Combined(op, *sum, cells->sizes[e], call.bounds) : cells->sizes[e];
  }
  Cells result{cells->elem, std::move(shape), {}, 1};
  for (const std::optional<Expr>& sum : sums) {
    // A reduction of no elements.
    if (!sum && op != "ReduceSum" && op != "ReduceProd") return std::nullopt;
    result.sizes.push_back(sum ? *sum : Expr(op == "ReduceProd" ? 1 : 0));
  }
  return One(FromCells(std::move(result), call.bounds));
}

Values KnownCumSum(const SizeCall& call) {
  std::optional<Cells> cells = CellsOf(call.c.In(0));
  const std::optional<std::vector<int64_t>> given = Numbers(call, 1);
  if (!cells || !given || given->size() != 1 || !IsWhole(cells->elem)) return std::nullopt;
  const std::optional<int> axis = AxisOf(given->front(), cells->shape.size());
  if (!axis) return std::nullopt;
  const bool exclusive = call.c.Int("exclusive") != 0, reverse = call.c.Int("reverse") != 0;
  const int64_t n = cells->shape[*axis], stride = StridesOf(cells->shape)[*axis];
  std::vector<Expr> sums = cells->sizes;
  for (size_t e = 0; e < sums.size(); ++e) {
    if (static_cast<int64_t>(e) / stride % n != 0) continue;
    Expr sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const size_t at = e + static_cast<size_t>((reverse ? n - 1 - i : i) * stride);
      if (exclusive) sums[at] = sum;
      sum += cells->sizes[at];
      if (!exclusive) sums[at] = sum;
    }
  }
  cells->sizes = std::move(sums);
  return One(FromCells(*std::move(cells), call.bounds));
}

}  // namespace

Values KnownReduce(const SizeCall& call) {
  const std::string_view op = call.c.node().op_type();
  if (op == "CumSum") return KnownCumSum(call);
  if (std::find(std::begin(kOps), std::end(kOps), op) == std::end(kOps)) return std::nullopt;
  return KnownReduction(call, op);
}

absl::Span<const std::string_view> ReduceOps() { return kOps; }

}  // namespace athanor::onnx
