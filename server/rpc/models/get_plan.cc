#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"
#include "server/search/plan_cost.h"

namespace athanor {
namespace {

absl::Status GetPlan(ServerCore& core, const v1::GetPlanRequest& asked, v1::PlanDetails* answer) {
  ASSIGN_OR_RETURN(auto version, core.registry().Find(asked.name(), asked.version()));
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
  if (kept.costs != nullptr) *answer->mutable_costs() = {kept.costs->begin(), kept.costs->end()};
  if (!answer->costs().empty()) return absl::OkStatus();
  std::vector<int64_t> largest;
  for (const v1::DimRange& dim : answer->plan().dims()) largest.push_back(dim.max());
  *answer->add_costs() = CountCost(answer->plan(), largest);
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
