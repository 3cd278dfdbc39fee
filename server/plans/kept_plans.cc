#include "server/plans/kept_plans.h"

#include <algorithm>
#include <utility>

namespace athanor {

void KeptPlans::Add(const ServedPlan& plan) {
  MutexLock lock(mu_);
  AddLocked({.plan = plan.compiled, .costs = {}, .served = true}, plan.id());
}

void KeptPlans::AddFound(std::shared_ptr<const CompiledPlan> plan, const std::string& serving) {
  MutexLock lock(mu_);
  for (const KeptPlan& kept : plans_) {
    if (kept.plan->id() == plan->id()) return;
  }
  AddLocked({.plan = std::move(plan), .costs = {}}, serving);
}

void KeptPlans::Restore(std::vector<KeptPlan> plans) {
  MutexLock lock(mu_);
  if (!closed_) plans_ = std::move(plans);
}

std::vector<KeptPlan> KeptPlans::all() const {
  MutexLock lock(mu_);
  return plans_;
}

void KeptPlans::AddLocked(KeptPlan added, const std::string& serving) {
  if (closed_) return;
  const auto same = std::find_if(plans_.begin(), plans_.end(), [&](const KeptPlan& kept) {
    return kept.plan->id() == added.plan->id();
  });
  added.first = plans_.empty();
  if (same != plans_.end()) {
    added.first = same->first;
    plans_.erase(same);
  }
  plans_.push_back(std::move(added));
  if (plans_.size() <= most_) return;
  // The first is the baseline, as a rule: what one goes back to when all else is doubted.
  const auto latest = std::find_if(plans_.rbegin(), plans_.rend(),
                                   [](const KeptPlan& kept) { return kept.served; });
  const std::string unpinned = latest == plans_.rend() ? "" : latest->plan->id();
  plans_.erase(std::find_if(plans_.begin(), plans_.end(), [&](const KeptPlan& kept) {
    const std::string& id = kept.plan->id();
    return id != serving && id != unpinned && !kept.first;
  }));
}

std::optional<KeptPlan> KeptPlans::Find(const std::string& plan_id) const {
  MutexLock lock(mu_);
  for (const KeptPlan& kept : plans_) {
    if (kept.plan->id() == plan_id) return kept;
  }
  return std::nullopt;
}

std::shared_ptr<const CompiledPlan> KeptPlans::latest() const {
  MutexLock lock(mu_);
  for (auto it = plans_.rbegin(); it != plans_.rend(); ++it) {
    if (it->served) return it->plan;
  }
  return nullptr;
}

std::shared_ptr<const CompiledPlan> KeptPlans::first() const {
  MutexLock lock(mu_);
  for (const KeptPlan& kept : plans_) {
    if (kept.first) return kept.plan;
  }
  return nullptr;
}

void KeptPlans::SetCosts(const std::string& plan_id, std::vector<v1::PlanCost> costs) {
  MutexLock lock(mu_);
  for (KeptPlan& kept : plans_) {
    if (kept.plan->id() == plan_id) kept.costs = std::move(costs);
  }
}

void KeptPlans::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  plans_.clear();
}

void AddInfos(const KeptPlans& plans, v1::Model* model) {
  const std::vector<KeptPlan> all = plans.all();
  for (auto it = all.rbegin(); it != all.rend(); ++it) *model->add_plans() = PlanInfoOf(*it->plan);
}

}  // namespace athanor
