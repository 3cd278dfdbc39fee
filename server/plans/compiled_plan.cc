#include "server/plans/compiled_plan.h"

#include "absl/strings/str_cat.h"

namespace athanor {

v1::PlanInfo PlanInfoOf(const CompiledPlan& compiled) {
  v1::PlanInfo info;
  info.set_plan_id(compiled.id());
  info.set_kind(compiled.plan.kind());
  *info.mutable_bucket() = compiled.plan.dims();
  info.set_kernels(compiled.plan.kernels_size());
  info.set_steps(compiled.plan.run_size());
  if (!compiled.how.budget().empty()) *info.mutable_search() = compiled.how;
  return info;
}

std::string BucketText(const v1::Plan& plan) {
  std::string text;
  for (const v1::DimRange& dim : plan.dims()) {
    absl::StrAppend(&text, text.empty() ? "" : " ", dim.name(), "=", dim.min(), "..", dim.max());
  }
  return text;
}

}  // namespace athanor
