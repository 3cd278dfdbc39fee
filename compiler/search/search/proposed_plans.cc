#include "compiler/search/search/proposed_plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {
namespace {

std::string TextOf(int form, const ScheduledGraph& scheduled) {
  std::string text = absl::StrCat(form);
  for (const KernelChoice& k : scheduled.genome.kernels) {
    absl::StrAppend(&text, ";", k.root, " ", ScheduleText(k));
  }
  return text;
}

}  // namespace

std::optional<int> ProposedPlans::Add(PlanCandidate plan) {
  if (!texts_.insert(TextOf(plan.form, plan.scheduled)).second) return std::nullopt;
  plans_.push_back(std::move(plan));
  return size() - 1;
}

void ProposedPlans::AddServing(int form, const ScheduledGraph& scheduled) {
  texts_.insert(TextOf(form, scheduled));
}

void ProposedPlans::Tell(int id, bool taken, std::optional<double> ratio) {
  const double predicted = plans_[id].predicted;
  if (ratio && *ratio > 0) {
    unheld_ = std::max(1.0, *ratio * serving_share_ / predicted);
    if (taken) serving_share_ *= *ratio;
  }
  if (taken) {
    taken_ = id;
    served_ = predicted;
  } else if (ratio && *ratio > 0) {
    // The sum of kernels is wrong by as much as the plan fell short.
    served_ = std::min(served_, predicted / *ratio);
  } else {
    served_ = std::min(served_, predicted * (1 + least_gain_));
  }
}

}  // namespace athanor
