// Handlers: TopK, CumSum, CumProd.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/frontend/onnx/build/build_index.h"
#include "compiler/frontend/onnx/ops/handler.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor::onnx {
namespace {

// Uses the TopK op for positions, and gathers the values by them. Among equal elements, the lowest
// positions win.
absl::Status TopKOf(HandlerContext& c, const Expr& k, bool largest) {
  OpBuilder& b = c.b();
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(const int axis, c.Axis(c.Int("axis"), x.rank()));
  if (const std::optional<int64_t> count = k.constant(); count && *count < 0) {
    return Invalid("its K is ", *count, "; it must not be negative");
  }
  const Value order = b.Raw(
      Op::kTopK, {x}, {{"axis", static_cast<int64_t>(axis)}, {"k", Shape{k}}, {"largest", largest}},
      Elem::kInt64);
  if (c.Wants(1)) c.Set(1, order);
  if (!c.Wants(0)) return absl::OkStatus();
  std::vector<Value> at;
  for (int i = 0; i < x.rank(); ++i) {
    at.push_back(i == axis ? order : b.Iota(Elem::kInt64, order.shape, i));
  }
  c.Set(0, GatherAt(b, x, at));
  return absl::OkStatus();
}

// K is an attribute.
absl::Status TopK1(HandlerContext& c) { return TopKOf(c, c.Int("k"), /*largest=*/true); }

absl::Status TopK10(HandlerContext& c) {
  ASSIGN_OR_RETURN(const Expr k, c.OneSize(1, "K"));
  return TopKOf(c, k, /*largest=*/true);
}

// With sorted=0 the order is free, so the result may be sorted too.
absl::Status TopK11(HandlerContext& c) {
  ASSIGN_OR_RETURN(const Expr k, c.OneSize(1, "K"));
  return TopKOf(c, k, c.Int("largest") != 0);
}

absl::Status Cumulate(HandlerContext& c, std::string_view op) {
  const Value& x = c.In(0);
  ASSIGN_OR_RETURN(const std::vector<int64_t> given, c.Integers(1, "axis"));
  if (given.size() != 1) {
    return Invalid("its axis has ", given.size(), " elements; it must have one");
  }
  ASSIGN_OR_RETURN(const int axis, c.Axis(given[0], x.rank()));
  c.Set(0, c.b().Raw(Op::kCumulate, {x},
                     {{"axis", static_cast<int64_t>(axis)},
                      {"op", std::string(op)},
                      {"exclusive", c.Int("exclusive") != 0},
                      {"reverse", c.Int("reverse") != 0}},
                     x.elem));
  return absl::OkStatus();
}

absl::Status CumSum(HandlerContext& c) { return Cumulate(c, "add"); }
absl::Status CumProd(HandlerContext& c) { return Cumulate(c, "mul"); }

constexpr HandlerRow kRows[] = {
    {"", "TopK", 1, TopK1},     {"", "TopK", 10, TopK10},     {"", "TopK", 11, TopK11},
    {"", "CumSum", 11, CumSum}, {"", "CumProd", 26, CumProd},
};

}  // namespace

absl::Span<const HandlerRow> SortRows() { return kRows; }

}  // namespace athanor::onnx
