// Jobs that wait for a plan that another job, of this or another server on the same cache, makes or
// searches for.
#include <chrono>
#include <utility>

#include "server/base/log.h"
#include "server/jobs/compile_workers.h"

namespace athanor {

bool CompileWorkers::Park(const std::shared_ptr<CompileJob>& job, LeaseWait wait) {
  job->slot()->SetJob(job->id(), /*compiling=*/false);
  job->Update([&](v1::CompileJob& state) {
    state.set_phase(v1::CompileJob::QUEUED);
    state.set_waits_for(wait.waits_for);
    state.set_message("waits for another server on the same cache, which makes this plan");
  });
  LogInfo("compile job waits",
          {{"job", job->id()}, {"model", job->model()}, {"for", wait.waits_for}});
  parked_->Park(job, std::move(wait.key), kPlanLease);
  // Whoever stops it from here on finds it; who did so before, did not.
  if (!job->stop_requested().has_value() || !parked_->Remove(job)) return true;
  EndWithoutPlan(*job, absl::OkStatus(), 0);
  return false;
}

void CompileWorkers::ParkSearch(const std::shared_ptr<CompileJob>& job, LeaseWait wait) {
  job->Update([&](v1::CompileJob& state) {
    state.set_waits_for(wait.waits_for);
    state.set_message("waits for another search for the same on this cache");
  });
  LogInfo("search waits", {{"job", job->id()}, {"model", job->model()}, {"for", wait.waits_for}});
  parked_->Park(job, std::move(wait.key), kSearchLease);
  if (!job->stop_requested().has_value() || !parked_->Remove(job)) return;
  EndWithoutPlan(*job, absl::OkStatus(), 0);
  Release(job);
}

void CompileWorkers::ResumeSearch(const std::shared_ptr<CompileJob>& job) {
  const std::shared_ptr<const ServedPlan> plan = job->version()->plan();
  if (plan == nullptr) {
    job->Finish(absl::OkStatus(),
                job->stop_requested().value_or(v1::CompileJob::STOP_MODEL_DELETED));
  } else if (HandOver(0, job, plan->compiled)) {
    cv_.NotifyAll();
  }
  Release(job);  // does nothing unless it has ended
}

void CompileWorkers::Resume(const std::shared_ptr<CompileJob>& job) {
  if (job->state().phase() == v1::CompileJob::SEARCHING) return ResumeSearch(job);
  bool stopping = false;
  {
    MutexLock lock(mu_);
    stopping = stopping_;
    if (!stopping && !job->stop_requested().has_value()) {
      queue_.push_front(job);
      cv_.NotifyAll();
      return;
    }
  }
  if (stopping) {
    job->RequestStop(v1::CompileJob::STOP_SHUTDOWN);  // keeps an earlier reason
    job->slot()->Refuse(absl::UnavailableError("the server is draining"));
  }
  EndWithoutPlan(*job, absl::OkStatus(), 0);
  Release(job);
}

void CompileWorkers::LetOthersFind(Lease lease) {
  if (!lease.valid()) return;
  // Servers that wait for the lease look for the plan as soon as it is free.
  constexpr std::chrono::seconds kMostWait{1};
  backends_.cache()->Flush(kMostWait).IgnoreError();  // if that fails, they make the plan again
  lease.Release();
}

}  // namespace athanor
