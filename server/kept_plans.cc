#include "server/kept_plans.h"

#include <algorithm>

namespace athanor {

void KeptPlans::Add(const ServedPlan& plan) {
  if (plan.made == nullptr) return;
  MutexLock lock(mu_);
  if (closed_) return;
  auto same = std::find_if(plans_.begin(), plans_.end(), [&](const Kept& kept) {
    return kept.info.plan_id() == plan.info.plan_id();
  });
  if (same != plans_.end()) plans_.erase(same);
  plans_.push_back({plan.info, plan.made});
  // The first is the baseline, as a rule: what one goes back to when all else is doubted.
  if (plans_.size() > kMost) plans_.erase(plans_.begin() + 1);
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
  return plans_.empty() ? nullptr : plans_.back().made;
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
