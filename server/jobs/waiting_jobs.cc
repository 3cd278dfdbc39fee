#include "server/jobs/waiting_jobs.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace athanor {

WaitingJobs::Rank WaitingJobs::RankOf(const Build& build) {
  if (std::holds_alternative<BoxesLeft>(build.rest)) return Rank::kBoxes;
  if (build.job->for_taps()) return Rank::kLater;
  const std::shared_ptr<PlanSlot> slot = build.job->slot();
  return slot != nullptr && slot->plan() == nullptr ? Rank::kFirstPlan : Rank::kLater;
}

int64_t WaitingJobs::CostOf(const CompileJob& job) {
  const std::shared_ptr<ModelVersion> version = job.version();
  if (version == nullptr || !version->row().plans.empty()) return 0;
  return static_cast<int64_t>(version->graph().nodes.size());
}

void WaitingJobs::Append(Build build) {
  const Rank rank = RankOf(build);
  const int64_t cost = CostOf(*build.job);
  const Job job = build.job;
  waiting_.push_back({std::move(build), rank, cost});
  if (!job->for_taps()) RaiseBoxes(job->version().get());
}

void WaitingJobs::RaiseBoxes(const ModelVersion* version) {
  Waiting* boxes = nullptr;
  Rank most = Rank::kBoxes;
  for (Waiting& waiting : waiting_) {
    const CompileJob& job = *waiting.build.job;
    if (job.for_taps() || job.version().get() != version) continue;
    if (std::holds_alternative<BoxesLeft>(waiting.build.rest)) boxes = &waiting;
    most = std::min(most, waiting.rank);
  }
  if (boxes != nullptr) boxes->rank = most;
}

std::optional<WaitingJobs::Build> WaitingJobs::Remove(const Job& job) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Waiting& waiting) { return waiting.build.job == job; });
  if (found == waiting_.end()) return std::nullopt;
  Build build = std::move(found->build);
  waiting_.erase(found);
  return build;
}

bool WaitingJobs::IsBefore(const Waiting& a, const Waiting& b) {
  const bool a_next = a.passed >= kMostPassed, b_next = b.passed >= kMostPassed;
  if (a_next || b_next) return a_next;
  if (a.rank != b.rank) return a.rank < b.rank;
  return a.rank != Rank::kFirstPlan || a.cost <= b.cost;
}

WaitingJobs::Iterator WaitingJobs::Next(MayBegin may_begin) {
  auto next = waiting_.end();
  for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
    if (!may_begin(*waiting)) continue;
    if (next == waiting_.end() || !IsBefore(*next, *waiting)) next = waiting;
  }
  return next;
}

WaitingJobs::Build WaitingJobs::Take(Iterator next, MayBegin may_begin) {
  for (auto earlier = waiting_.begin(); earlier != next; ++earlier) {
    if (earlier->rank <= Rank::kLater && may_begin(*earlier)) ++earlier->passed;
  }
  Build taken = std::move(next->build);
  waiting_.erase(next);
  return taken;
}

bool WaitingJobs::HasFirstPlan(MayBegin may_begin) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) {
    return waiting.rank == Rank::kFirstPlan && may_begin(waiting);
  });
}

int64_t WaitingJobs::not_begun() const {
  return std::count_if(waiting_.begin(), waiting_.end(), [](const Waiting& waiting) {
    return std::holds_alternative<std::monostate>(waiting.build.rest);
  });
}

}  // namespace athanor
