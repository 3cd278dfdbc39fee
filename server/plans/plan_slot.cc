#include "server/plans/plan_slot.h"

#include <algorithm>

namespace athanor {

absl::Status OwnCopy(const absl::Status& status) {
  return absl::Status(status.code(), status.message());
}

PlanSlot::View PlanSlot::view() const {
  MutexLock lock(mu_);
  return {view_.plan, OwnCopy(view_.error), view_.job_id, view_.compiling};
}

std::shared_ptr<const ServedPlan> PlanSlot::plan() const {
  MutexLock lock(mu_);
  return view_.plan;
}

std::optional<absl::Status> PlanSlot::Verdict() const {
  if (view_.plan != nullptr) return absl::OkStatus();
  if (!view_.error.ok()) return OwnCopy(view_.error);
  if (!refusal_.ok()) return OwnCopy(refusal_);
  return std::nullopt;
}

uint64_t PlanSlot::WhenReady(Waiter waiter) {
  std::optional<absl::Status> verdict;
  {
    MutexLock lock(mu_);
    verdict = Verdict();
    if (!verdict.has_value()) {
      waiters_.emplace_back(++last_waiter_, std::move(waiter));
      return last_waiter_;
    }
  }
  waiter(*verdict);
  return 0;
}

bool PlanSlot::StopWaiting(uint64_t id) {
  Waiter waiter;  // outlives the lock: what it captured goes without it
  MutexLock lock(mu_);
  auto it = std::find_if(waiters_.begin(), waiters_.end(),
                         [id](const auto& entry) { return entry.first == id; });
  if (it == waiters_.end()) return false;
  waiter = std::move(it->second);
  waiters_.erase(it);
  return true;
}

void PlanSlot::Tell(Waiters waiters, const absl::Status& status) {
  for (auto& [id, waiter] : waiters) waiter(OwnCopy(status));
}

void PlanSlot::SetJob(const std::string& job_id, bool compiling) {
  MutexLock lock(mu_);
  if (closed_) return;
  view_.job_id = job_id;
  view_.compiling = compiling;
  view_.error = absl::OkStatus();
}

bool PlanSlot::Set(std::shared_ptr<const ServedPlan> plan) {
  std::shared_ptr<const ServedPlan> before;  // goes without the lock
  Waiters waiters;
  {
    MutexLock lock(mu_);
    if (closed_) return false;
    before = std::exchange(view_.plan, std::move(plan));
    view_.error = absl::OkStatus();
    waiters.swap(waiters_);
  }
  Tell(std::move(waiters), absl::OkStatus());
  return true;
}

void PlanSlot::Fail(const absl::Status& error) {
  Waiters waiters;
  {
    MutexLock lock(mu_);
    if (closed_ || view_.plan != nullptr) return;
    view_.error = OwnCopy(error);
    waiters.swap(waiters_);
  }
  Tell(std::move(waiters), error);
}

void PlanSlot::Refuse(const absl::Status& status) {
  Waiters waiters;
  {
    MutexLock lock(mu_);
    refusal_ = OwnCopy(status);
    waiters.swap(waiters_);
  }
  Tell(std::move(waiters), status);
}

void PlanSlot::Withdraw(const absl::Status& status) {
  std::shared_ptr<const ServedPlan> before;  // goes without the lock
  Waiters waiters;
  {
    MutexLock lock(mu_);
    if (closed_) return;
    view_.error = OwnCopy(status);
    before = std::move(view_.plan);
    waiters.swap(waiters_);
  }
  Tell(std::move(waiters), status);
}

void PlanSlot::Close(const absl::Status& status) {
  std::shared_ptr<const ServedPlan> before;  // goes without the lock
  Waiters waiters;
  {
    MutexLock lock(mu_);
    closed_ = true;
    view_.error = OwnCopy(status);
    before = std::move(view_.plan);
    waiters.swap(waiters_);
  }
  Tell(std::move(waiters), status);
}

}  // namespace athanor
