#include "server/plans/served_plan.h"

#include "deploy/bazel/libs/status_macros.h"

namespace athanor {

absl::Status ContextPool::MakeFirst() {
  ASSIGN_OR_RETURN(std::unique_ptr<RunContext> context, runner_->NewContext());
  MutexLock lock(mu_);
  ++made_;
  free_.push_back(std::move(context));
  return absl::OkStatus();
}

std::unique_ptr<RunContext> ContextPool::Take() {
  if (!free_.empty()) {
    std::unique_ptr<RunContext> context = std::move(free_.back());
    free_.pop_back();
    return context;
  }
  if (made_ >= max_) return nullptr;
  // Too little memory for one more is no error: the run waits for a context that exists.
  absl::StatusOr<std::unique_ptr<RunContext>> context = runner_->NewContext();
  if (!context.ok()) return nullptr;
  ++made_;
  return *std::move(context);
}

ContextPool::Lease ContextPool::TryAcquire() {
  MutexLock lock(mu_);
  std::unique_ptr<RunContext> context = Take();
  return context == nullptr ? Lease() : Lease(shared_from_this(), std::move(context));
}

ContextPool::Lease ContextPool::TryRun(bool alone) {
  Lease lease;
  {
    MutexLock lock(mu_);
    const auto free = static_cast<int64_t>(free_.size());
    if (made_ > 0 && (free == 0 || (alone && free < made_))) return {};
    if (std::unique_ptr<RunContext> context = Take()) {
      lease = Lease(shared_from_this(), std::move(context));
    }
  }
  return lease && runner_->TryTurn(*lease) ? std::move(lease) : Lease();
}

void ContextPool::Return(std::unique_ptr<RunContext> context) {
  context->EndTurn();
  MutexLock lock(mu_);
  free_.push_back(std::move(context));
}

}  // namespace athanor
