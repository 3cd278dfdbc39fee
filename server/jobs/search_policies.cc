#include "server/jobs/search_policies.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::Status SearchPolicies::CheckRules(absl::string_view what,
                                        const std::set<std::string>& names) const {
  if (names.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<std::string> known, backends_.RuleNames());
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", Quoted(name),
                     " is neither a rule nor a family; there are: ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

SearchPolicy SearchPolicies::Of(const ModelVersion& version) const {
  SearchPolicy policy = ServerPolicy(options_);
  const VersionRow& row = version.row();
  // Both were checked at the upload.
  if (!row.search_budget.empty()) {
    policy.budget = ParseSearchBudget(row.search_budget).value_or(policy.budget);
  }
  if (auto rules = ParseRuleNames(row.disable_rules); rules.ok()) {
    policy.disabled_rules.merge(*rules);
  }
  policy.approximate = row.approximate;
  if (row.deterministic) policy.use = v1::SearchOptions::KEEP;
  return policy;
}

SearchPolicy SearchPolicies::Automatic(const ModelVersion& version) const {
  SearchPolicy policy = Of(version);
  policy.automatic = true;
  if (version.row().deterministic) policy.budget.search = false;
  return policy;
}

bool SearchPolicies::Wanted(const ModelVersion& version, const SearchPolicy& policy) {
  const bool in_vain = policy.use == v1::SearchOptions::SERVE && !version.pinned_plan().empty();
  return policy.budget.search && !in_vain;
}

bool SearchPolicies::PartDue(const ModelVersion& version, const SearchPolicy& policy,
                             const Graph& graph) const {
  if (!policy.automatic || !keeper_.ready(version)) return true;
  return !keeper_.SearchEnded(keeper_.KeyOf(version, graph, policy.ToProto()), policy);
}

bool SearchPolicies::SearchDue(const ModelVersion& version, const SearchPolicy& policy) const {
  if (!policy.budget.search || !version.pinned_plan().empty()) return false;
  return PartDue(version, policy, version.graph());
}

bool SearchPolicies::Due(const ModelVersion& version, const SearchPolicy& policy) const {
  if (!policy.budget.search || !version.pinned_plan().empty()) return false;
  if (PartDue(version, policy, version.graph())) return true;
  const Plans::View view = version.plans().view();
  for (int bucket = 1; bucket < view.grid->size(); ++bucket) {
    if (!view.box(bucket).pinned.empty()) continue;
    const Graph graph = NarrowedTo(version.graph(), view.grid->box(bucket));
    if (PartDue(version, policy, graph)) return true;
  }
  return false;
}

bool SearchPolicies::BetterKept(const ModelVersion& version, const SearchPolicy& policy) const {
  const std::shared_ptr<const ServedPlan> plan = version.plan();
  if (plan == nullptr || plan->compiled->searched()) return false;
  if (!policy.budget.search || policy.use != v1::SearchOptions::SERVE) return false;
  if (!version.pinned_plan().empty() || !keeper_.ready(version)) return false;
  const std::string best =
      keeper_.BestId(keeper_.KeyOf(version, version.graph(), policy.ToProto()), policy);
  return !best.empty() && best != plan->id();
}

}  // namespace athanor
