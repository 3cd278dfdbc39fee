#include "server/plans/kept_plans.h"

#include <algorithm>
#include <utility>

namespace athanor {

void KeptPlans::Add(const ServedPlan& plan) {
  if (plan.made == nullptr) return;
  MutexLock lock(mu_);
  AddLocked({.info = plan.info, .made = plan.made, .served = true}, plan.info.plan_id());
}

void KeptPlans::AddFound(const v1::PlanInfo& info, std::shared_ptr<const PlanSearch::Found> made,
                         const std::string& serving) {
  MutexLock lock(mu_);
  for (const Kept& kept : plans_) {
    if (kept.info.plan_id() == info.plan_id()) return;
  }
  AddLocked({.info = info, .made = std::move(made)}, serving);
}

void KeptPlans::Restore(std::vector<Kept> plans) {
  MutexLock lock(mu_);
  if (!closed_) plans_ = std::move(plans);
}

std::vector<KeptPlans::Kept> KeptPlans::all() const {
  MutexLock lock(mu_);
  return plans_;
}

void KeptPlans::AddLocked(Kept added, const std::string& serving) {
  if (closed_) return;
  auto same = std::find_if(plans_.begin(), plans_.end(), [&](const Kept& kept) {
    return kept.info.plan_id() == added.info.plan_id();
  });
  added.first = plans_.empty();
  if (same != plans_.end()) {
    added.first = same->first;
    plans_.erase(same);
  }
  plans_.push_back(std::move(added));
  if (plans_.size() <= most_) return;
  // The first is the baseline, as a rule: what one goes back to when all else is doubted.
  const auto latest =
      std::find_if(plans_.rbegin(), plans_.rend(), [](const Kept& kept) { return kept.served; });
  const std::string unpinned = latest == plans_.rend() ? "" : latest->info.plan_id();
  plans_.erase(std::find_if(plans_.begin(), plans_.end(), [&](const Kept& kept) {
    const std::string& id = kept.info.plan_id();
    return id != serving && id != unpinned && !kept.first;
  }));
}

std::shared_ptr<const PlanSearch::Found> KeptPlans::Find(const std::string& plan_id) const {
  MutexLock lock(mu_);
  for (const Kept& kept : plans_) {
    if (kept.info.plan_id() == plan_id) return kept.made;
  }
  return nullptr;
}

std::shared_ptr<const PlanSearch::Found> KeptPlans::latest() const {
  MutexLock lock(mu_);
  for (auto it = plans_.rbegin(); it != plans_.rend(); ++it) {
    if (it->served) return it->made;
  }
  return nullptr;
}

std::shared_ptr<const PlanSearch::Found> KeptPlans::first() const {
  MutexLock lock(mu_);
  for (const Kept& kept : plans_) {
    if (kept.first) return kept.made;
  }
  return nullptr;
}

void KeptPlans::SetCosts(const std::string& plan_id, std::vector<v1::PlanCost> costs) {
  MutexLock lock(mu_);
  for (Kept& kept : plans_) {
    if (kept.info.plan_id() == plan_id) kept.costs = std::move(costs);
  }
}

std::optional<KeptPlans::Details> KeptPlans::Describe(const std::string& plan_id) const {
  MutexLock lock(mu_);
  for (const Kept& kept : plans_) {
    if (kept.info.plan_id() == plan_id) return Details{kept.info, kept.made, kept.costs};
  }
  return std::nullopt;
}

std::vector<v1::PlanInfo> KeptPlans::infos() const {
  std::vector<v1::PlanInfo> infos;
  MutexLock lock(mu_);
  for (auto it = plans_.rbegin(); it != plans_.rend(); ++it) infos.push_back(it->info);
  return infos;
}

void KeptPlans::Close() {
  MutexLock lock(mu_);
  closed_ = true;
  plans_.clear();
}

}  // namespace athanor
