#include "server/plan_cost.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/expr_proto.h"

namespace athanor {
namespace {

double Value(const v1::SizeExpr& size, const Expr::Env& env) {
  const absl::StatusOr<Expr> expr = ExprFromProto(size, {64, int64_t{1} << 20});
  return expr.ok() ? static_cast<double>(expr->Evaluate(env).value_or(0)) : 0;
}

double Roofline(const v1::StepCost& step, int64_t cache_bytes, const MachineLimits& limits) {
  if (limits.read_bytes_per_second <= 0 || limits.f32_flops_per_second <= 0) return 0;
  const bool cached =
      limits.cache_bytes_per_second > 0 && step.bytes() <= static_cast<double>(cache_bytes);
  const double bandwidth = cached ? limits.cache_bytes_per_second : limits.read_bytes_per_second;
  return std::max(step.bytes() / bandwidth, step.flops() / limits.f32_flops_per_second);
}

}  // namespace

v1::PlanCost CountCost(const v1::Plan& plan, absl::Span<const int64_t> sizes,
                       const MachineLimits& limits) {
  v1::PlanCost cost;
  Expr::Env env;
  for (int d = 0; d < plan.dims_size() && d < static_cast<int>(sizes.size()); ++d) {
    env[plan.dims(d).name()] = sizes[d];
    absl::StrAppend(cost.mutable_size(), d > 0 ? " " : "", plan.dims(d).name(), "=", sizes[d]);
  }
  const int64_t cache = std::max(plan.target().l2_bytes(), plan.target().l3_bytes());
  for (const v1::Step& step : plan.run()) {
    v1::StepCost* out = cost.add_steps();
    out->set_flops(Value(step.flops(), env));
    out->set_bytes(Value(step.moved_bytes(), env));
    out->set_roofline_seconds(Roofline(*out, cache, limits));
  }
  return cost;
}

}  // namespace athanor
