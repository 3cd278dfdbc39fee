#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/plans/kernel_resources.h"
#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"
#include "server/search/plan_cost.h"

namespace athanor {
namespace {

// Adds what each kernel takes, if one of them says so.
void AddResources(const CompiledPlan& plan, v1::PlanDetails* answer) {
  bool told = false;
  for (const KernelObject& object : plan.objects) {
    const std::optional<v1::KernelResources> resources = ResourcesOf(object.object);
    told |= resources.has_value();
    *answer->add_resources() = resources.value_or(v1::KernelResources());
  }
  if (!told) answer->clear_resources();
}

absl::Status GetPlan(ServerCore& core, const v1::GetPlanRequest& asked, v1::PlanDetails* answer) {
  ASSIGN_OR_RETURN(auto version, core.registry().versions().Find(asked.name(), asked.version()));
  std::string id = asked.plan_id();
  if (id.empty()) {
    const std::shared_ptr<const ServedPlan> serving = version->plan();
    if (serving == nullptr) {
      return absl::FailedPreconditionError(Cat(version->Describe(), " has no plan that serves"));
    }
    id = serving->id();
  }
  const Plans::View plans = version->plans().view();
  const std::optional<int> bucket = plans.Find(id);
  if (!bucket.has_value()) {
    return absl::NotFoundError(
        Cat(version->Describe(), " has no plan ", Quoted(id), "; GetModel lists those it has"));
  }
  const KeptPlan& kept = *plans.books[*bucket].Find(id);
  *answer->mutable_info() = PlanInfoOf(*kept.plan);
  *answer->mutable_plan() = kept.plan->plan;
  for (v1::Buffer& buffer : *answer->mutable_plan()->mutable_buffers()) buffer.clear_literal();
  answer->set_device(version->device());
  const std::optional<internal::MachineReply> limits = core.backends().Limits(version->device());
  if (limits.has_value()) {
    answer->mutable_limits()->set_read_bytes_per_second(limits->read_bytes_per_second());
    answer->mutable_limits()->set_cache_bytes_per_second(limits->cache_bytes_per_second());
    answer->mutable_limits()->set_f32_flops_per_second(limits->f32_flops_per_second());
  }
  AddResources(*kept.plan, answer);
  if (kept.costs != nullptr) *answer->mutable_costs() = {kept.costs->begin(), kept.costs->end()};
  if (!answer->costs().empty()) return absl::OkStatus();
  std::vector<int64_t> largest;
  for (const v1::DimRange& dim : answer->plan().dims()) largest.push_back(dim.max());
  *answer->add_costs() =
      CountCost(answer->plan(), largest, limits.value_or(internal::MachineReply()));
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* ModelService::GetPlan(Context* context, const Bytes* request,
                                                Bytes* reply) {
  return AnswerUnary<v1::GetPlanRequest, v1::PlanDetails>(
      core_, {.name = "GetPlan"}, context, request, reply,
      [this](const v1::GetPlanRequest& asked, v1::PlanDetails* answer) {
        return athanor::GetPlan(core_, asked, answer);
      });
}

}  // namespace athanor
