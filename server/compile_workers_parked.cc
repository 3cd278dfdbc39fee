// Jobs whose plan another job makes, of a server on the same cache.
#include <chrono>
#include <utility>

#include "server/compile_workers.h"
#include "server/log.h"

namespace athanor {

bool CompileWorkers::Park(const std::shared_ptr<CompileJob>& job, const BuiltPlan& built) {
  job->slot()->SetJob(job->id(), /*compiling=*/false);
  job->Update([&](v1::CompileJob& state) {
    state.set_phase(v1::CompileJob::QUEUED);
    state.set_waits_for(built.waits_for);
    state.set_message("waits for another server on the same cache, which makes this plan");
  });
  LogInfo("compile job waits",
          {{"job", job->id()}, {"model", job->model()}, {"for", built.waits_for}});
  parked_->Park(job, built.key);
  // Whoever stops it from here on finds it; who did so before, did not.
  if (!job->stop_requested().has_value() || !parked_->Remove(job)) return true;
  EndWithoutPlan(*job, absl::OkStatus(), 0);
  return false;
}

void CompileWorkers::Resume(const std::shared_ptr<CompileJob>& job) {
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
    job->RequestStop(v1::CompileJob::STOP_SHUTDOWN);  // unless there is a reason already
    job->slot()->Refuse(absl::UnavailableError("the server is draining"));
  }
  EndWithoutPlan(*job, absl::OkStatus(), 0);
  Release(job);
}

void CompileWorkers::LetOthersFind(Lease lease) {
  if (!lease.valid()) return;
  // Who waits for it looks for the plan as soon as the lease is free.
  constexpr std::chrono::seconds kMostWait{1};
  backends_.cache()->Flush(kMostWait).IgnoreError();  // else they make it again
  lease.Release();
}

}  // namespace athanor
