#include "server/plans/plan_book.h"

#include <algorithm>
#include <utility>

namespace athanor {

std::vector<KeptPlan> PlanBook::AddServed(const ServedPlan& plan) {
  return Add({.plan = plan.compiled, .costs = {}, .served = true}, plan.id());
}

std::vector<KeptPlan> PlanBook::AddFound(std::shared_ptr<const CompiledPlan> plan,
                                         const std::string& keep) {
  if (Find(plan->id()) != nullptr) return {};
  return Add({.plan = std::move(plan), .costs = {}}, keep);
}

std::vector<KeptPlan> PlanBook::Add(KeptPlan added, const std::string& keep) {
  const auto same = std::find_if(kept.begin(), kept.end(), [&](const KeptPlan& other) {
    return other.plan->id() == added.plan->id();
  });
  added.first = kept.empty();
  std::vector<KeptPlan> given_up;
  if (same != kept.end()) {
    added.first = same->first;
    given_up.push_back(std::move(*same));
    kept.erase(same);
  }
  kept.push_back(std::move(added));
  if (kept.size() <= most) return given_up;
  // The first is the baseline, as a rule: what one goes back to when all else is doubted.
  const std::shared_ptr<const CompiledPlan> unpinned = latest();
  const auto oldest = std::find_if(kept.begin(), kept.end(), [&](const KeptPlan& other) {
    return other.plan->id() != keep && other.plan != unpinned && !other.first;
  });
  given_up.push_back(std::move(*oldest));
  kept.erase(oldest);
  return given_up;
}

const KeptPlan* PlanBook::Find(const std::string& plan_id) const {
  for (const KeptPlan& plan : kept) {
    if (plan.plan->id() == plan_id) return &plan;
  }
  return nullptr;
}

std::shared_ptr<const CompiledPlan> PlanBook::latest() const {
  for (auto it = kept.rbegin(); it != kept.rend(); ++it) {
    if (it->served) return it->plan;
  }
  return nullptr;
}

std::shared_ptr<const CompiledPlan> PlanBook::first() const {
  for (const KeptPlan& plan : kept) {
    if (plan.first) return plan.plan;
  }
  return nullptr;
}

}  // namespace athanor
