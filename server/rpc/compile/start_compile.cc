#include <optional>
#include <set>
#include <string>
#include <utility>

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/search_policy.h"
#include "server/models/upload.h"
#include "server/rpc/call.h"
#include "server/rpc/compile/compile_service.h"

namespace athanor {
namespace {

// Returns the version's policy, overridden by the fields set in `asked`.
absl::StatusOr<SearchPolicy> PolicyOf(ServerCore& core, const ModelVersion& version,
                                      const v1::StartCompileRequest& asked) {
  SearchPolicy policy = core.workers().policies().Of(version);
  if (!asked.search_budget().empty()) {
    absl::StatusOr<SearchBudget> budget = ParseSearchBudget(asked.search_budget());
    if (!budget.ok()) return Prefixed("search_budget: ", budget.status());
    policy.budget = *std::move(budget);
  }
  RETURN_IF_ERROR(CheckRuleNames("disable_rules", asked.disable_rules()));
  const std::set<std::string> rules(asked.disable_rules().begin(), asked.disable_rules().end());
  RETURN_IF_ERROR(core.workers().policies().CheckRules("disable_rules", rules));
  policy.disabled_rules.insert(asked.disable_rules().begin(), asked.disable_rules().end());
  RETURN_IF_ERROR(CheckApproximate("approximate", asked.approximate(), version.graph()));
  policy.approximate |= asked.approximate();
  if (asked.search_seed() != 0) policy.seed = asked.search_seed();
  if (!v1::SearchOptions::Use_IsValid(asked.use())) {
    return Invalid("use: ", static_cast<int>(asked.use()),
                   "; it must be 1 (SERVE), 2 (KEEP) or 3 (COMPARE)");
  }
  if (asked.use() == v1::SearchOptions::SERVE && version.row().deterministic) {
    return Invalid(
        "use: SERVE, but ", version.Describe(),
        " is deterministic: KEEP the plan that the search finds, and pin it with PinPlan");
  }
  if (asked.use() != v1::SearchOptions::USE_UNSPECIFIED) policy.use = asked.use();
  return policy;
}

absl::Status Start(ServerCore& core, const v1::StartCompileRequest& asked, v1::CompileJob* answer) {
  ASSIGN_OR_RETURN(auto version, core.registry().versions().Find(asked.model(), asked.version()));
  absl::Status buckets =
      CheckBuckets("buckets", asked.buckets(), version->graph(), core.options().max_buckets);
  if (!buckets.ok()) return buckets;
  ASSIGN_OR_RETURN(SearchPolicy policy, PolicyOf(core, *version, asked));
  std::optional<BucketGrid::Ranges> ranges;
  if (!asked.buckets().empty()) ranges = asked.buckets();
  ASSIGN_OR_RETURN(auto job, core.workers().Start(version, std::move(policy), std::move(ranges)));
  *answer = job->state();
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* CompileService::StartCompile(Context* context, const Bytes* request,
                                                       Bytes* reply) {
  return AnswerUnary<v1::StartCompileRequest, v1::CompileJob>(
      core_, {.name = "StartCompile"}, context, request, reply,
      [this](const v1::StartCompileRequest& asked, v1::CompileJob* answer) {
        return Start(core_, asked, answer);
      });
}

}  // namespace athanor
