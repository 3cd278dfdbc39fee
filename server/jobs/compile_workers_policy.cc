// Determines the policy of a version's searches, and pins its plan.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/ir/value/message.h"
#include "server/jobs/compile_workers.h"

namespace athanor {

absl::Status CompileWorkers::CheckRules(absl::string_view what,
                                        const std::set<std::string>& names) const {
  if (names.empty()) return absl::OkStatus();
  absl::StatusOr<std::vector<std::string>> known = backends_.RuleNames();
  if (!known.ok()) return known.status();
  for (const std::string& name : names) {
    if (std::find(known->begin(), known->end(), name) != known->end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", Quoted(name),
                     " is neither a rule nor a family; there are: ", absl::StrJoin(*known, ", ")));
  }
  return absl::OkStatus();
}

SearchPolicy CompileWorkers::PolicyOf(const ModelVersion& version) const {
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

SearchPolicy CompileWorkers::AutomaticPolicy(const ModelVersion& version) const {
  SearchPolicy policy = PolicyOf(version);
  policy.automatic = true;
  if (version.row().deterministic) policy.budget.search = false;
  return policy;
}

bool CompileWorkers::SearchDue(const ModelVersion& version, const SearchPolicy& policy) const {
  if (!policy.budget.search || !version.pinned_plan().empty()) return false;
  if (!policy.automatic || !keeper_.ready()) return true;
  return !keeper_.SearchEnded(keeper_.KeyOf(version, version.graph(), policy.ToProto()), policy);
}

bool CompileWorkers::BetterKept(const ModelVersion& version, const SearchPolicy& policy) const {
  const std::shared_ptr<const ServedPlan> plan = version.plan();
  if (plan == nullptr || plan->info.kind() == kSearchedPlan) return false;
  if (!policy.budget.search || policy.use != v1::SearchOptions::SERVE) return false;
  if (!version.pinned_plan().empty() || !keeper_.ready()) return false;
  const std::string best =
      keeper_.BestId(keeper_.KeyOf(version, version.graph(), policy.ToProto()), policy);
  return !best.empty() && best != plan->info.plan_id();
}

absl::StatusOr<std::shared_ptr<ModelVersion>> CompileWorkers::PinPlan(const std::string& name,
                                                                      const std::string& version,
                                                                      const std::string& plan_id) {
  MutexLock one(pin_mu_);
  auto found = registry_->Find(name, version);
  if (!found.ok()) return found.status();
  ModelVersion& model = **found;
  const auto place = model.plans().Find(plan_id);
  if (!plan_id.empty() && model.kept().Find(plan_id) == nullptr && place.has_value()) {
    absl::Status pinned = PinBox(model, *place);
    return pinned.ok() ? found : pinned;
  }
  if (plan_id.empty()) {
    if (absl::Status s = UnpinBoxes(model); !s.ok()) return s;
  }
  const std::string before = model.pinned_plan();
  std::shared_ptr<const PlanSearch::Found> wanted = model.kept().Find(plan_id);
  // While it is pinned nothing else is published, so the latest stays the latest.
  if (plan_id.empty() && !before.empty()) wanted = model.kept().latest();
  std::shared_ptr<const ServedPlan> plan = wanted == nullptr ? nullptr : model.plan();
  const auto named = [&](const absl::Status& status) {
    return Prefixed(absl::StrCat(model.Describe(), ": plan ", Quoted(wanted->plan.plan_id()), ": "),
                    status);
  };
  if (wanted != nullptr && (plan == nullptr || plan->made != wanted)) {
    auto loaded = loader_.Load(model, model.graph(), wanted);
    if (!loaded.ok()) return named(loaded.status());
    plan = *std::move(loaded);
  }
  // Before it is promised: the cache may be deleted, a pin may not.
  if (wanted != nullptr && !plan_id.empty() && keeper_.ready()) {
    const PlanKey key = keeper_.KeyOf(model, model.graph(), wanted->how);
    const auto details = model.kept().Describe(plan_id);
    absl::Status kept =
        keeper_.Pin(model, key, *wanted, details ? details->costs : std::vector<v1::PlanCost>());
    if (!kept.ok()) return named(kept);
  }
  absl::Status pinned = registry_->PinPlan(*found, plan_id, std::move(plan));
  ForgetPin(model, pinned.ok() ? before : plan_id);
  if (!pinned.ok()) return pinned;
  return found;
}

}  // namespace athanor
