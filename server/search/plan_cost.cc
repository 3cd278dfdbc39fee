#include "server/search/plan_cost.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/frontend/expr_proto.h"

namespace athanor {
namespace {

double Value(const v1::SizeExpr& size, const Expr::Env& env) {
  const absl::StatusOr<Expr> expr = ExprFromProto(size, {64, int64_t{1} << 20});
  return expr.ok() ? static_cast<double>(expr->Evaluate(env).value_or(0)) : 0;
}

double CacheBytes(const v1::Plan& plan) {
  return static_cast<double>(std::max(plan.target().l2_bytes(), plan.target().l3_bytes()));
}

double Roofline(const v1::StepCost& step, double cache_bytes,
                const internal::MachineReply& limits) {
  if (limits.read_bytes_per_second() <= 0 || limits.f32_flops_per_second() <= 0) return 0;
  const bool cached = limits.cache_bytes_per_second() > 0 && step.bytes() <= cache_bytes;
  const double bandwidth =
      cached ? limits.cache_bytes_per_second() : limits.read_bytes_per_second();
  return std::max(step.bytes() / bandwidth, step.flops() / limits.f32_flops_per_second());
}

}  // namespace

int64_t ActivationBytes(const v1::Plan& plan, absl::Span<const int64_t> sizes) {
  Expr::Env env;
  for (int d = 0; d < plan.dims_size() && d < static_cast<int>(sizes.size()); ++d) {
    env[plan.dims(d).name()] = sizes[d];
  }
  std::vector<std::pair<int64_t, int64_t>> extents;
  for (const v1::Buffer& buffer : plan.buffers()) {
    if (buffer.kind() != v1::Buffer::ARENA) continue;
    const auto bytes = static_cast<int64_t>(Value(buffer.bytes(), env));
    extents.emplace_back(buffer.arena_offset(), buffer.arena_offset() + bytes);
  }
  std::sort(extents.begin(), extents.end());
  int64_t touched = 0, end = 0;  // bytes below `end` are counted
  for (const auto& [from, to] : extents) {
    touched += std::max<int64_t>(0, to - std::max(from, end));
    end = std::max(end, to);
  }
  return touched;
}

v1::PlanCost CountCost(const v1::Plan& plan, absl::Span<const int64_t> sizes,
                       const internal::MachineReply& limits) {
  v1::PlanCost cost;
  Expr::Env env;
  for (int d = 0; d < plan.dims_size() && d < static_cast<int>(sizes.size()); ++d) {
    env[plan.dims(d).name()] = sizes[d];
    absl::StrAppend(cost.mutable_size(), d > 0 ? " " : "", plan.dims(d).name(), "=", sizes[d]);
  }
  for (const v1::Step& step : plan.run()) {
    v1::StepCost* out = cost.add_steps();
    out->set_flops(Value(step.flops(), env));
    out->set_bytes(Value(step.moved_bytes(), env));
  }
  for (const v1::Loop& loop : plan.loops()) {
    const double turns = Value(loop.count(), env);
    for (uint32_t i = loop.first(); i < loop.first() + loop.steps(); ++i) {
      v1::StepCost* out = cost.mutable_steps(static_cast<int>(i));
      out->set_flops(out->flops() * turns);
      out->set_bytes(out->bytes() * turns);
    }
  }
  for (v1::StepCost& out : *cost.mutable_steps()) {
    out.set_roofline_seconds(Roofline(out, CacheBytes(plan), limits));
  }
  return cost;
}

double ReachedShare(const v1::Plan& plan, absl::Span<const int64_t> sizes, double seconds,
                    const internal::MachineReply& limits) {
  const v1::PlanCost cost = CountCost(plan, sizes);
  double flops = 0, bytes = 0;
  for (const v1::StepCost& step : cost.steps()) {
    flops += step.flops();
    bytes += step.bytes();
  }
  if (bytes <= CacheBytes(plan)) bytes = 0;
  const auto share = [seconds](double amount, double limit) {
    return seconds > 0 && limit > 0 ? amount / seconds / limit : 0;
  };
  return std::max(share(flops, limits.f32_flops_per_second()),
                  share(bytes, limits.read_bytes_per_second()));
}

}  // namespace athanor
