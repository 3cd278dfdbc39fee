#include "server/jobs/job_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace athanor {

bool JobQueue::Stops(const Job& job) const { return stopped_ || job->stop_requested().has_value(); }

void JobQueue::Append(Build build) {
  builds_.insert(builds_.end() - static_cast<std::ptrdiff_t>(old_), std::move(build));
}

absl::StatusOr<JobQueue::Job> JobQueue::Add(absl::FunctionRef<Job()> make) {
  MutexLock lock(mu_);
  if (stopped_) return absl::UnavailableError("the server is draining");
  if (static_cast<int64_t>(builds_.size()) >= most_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        builds_.size(), " compile jobs wait already, the most allowed (--max_compile_jobs)"));
  }
  Job job = make();
  Append({job});
  changed_.NotifyAll();
  return job;
}

void JobQueue::AddAll(const std::vector<Job>& jobs, const std::vector<Job>& old) {
  MutexLock lock(mu_);
  for (const Job& job : jobs) Append({job});
  for (const Job& job : old) Append({job});
  old_ += old.size();
  changed_.NotifyAll();
}

bool JobQueue::AddFirst(const Job& job) {
  MutexLock lock(mu_);
  if (Stops(job)) return false;
  builds_.push_front({job});
  changed_.NotifyAll();
  return true;
}

bool JobQueue::AddIncomplete(const Job& job, JobPlan incomplete) {
  MutexLock lock(mu_);
  if (Stops(job)) return false;
  Append({job, std::move(incomplete)});
  changed_.NotifyAll();
  return true;
}

bool JobQueue::AddSearch(int worker, const Job& job, std::shared_ptr<const CompiledPlan> serving) {
  MutexLock lock(mu_);
  if (Stops(job)) return false;
  AtWork* least = &at_work_[worker];
  for (AtWork& other : at_work_) {
    if (other.searches < least->searches) least = &other;
  }
  least->built.push_back({job, std::move(serving)});
  ++least->searches;
  changed_.NotifyAll();
  return true;
}

JobQueue::Builds::iterator JobQueue::Eligible() {
  auto build = builds_.begin();
  for (; build != builds_.end(); ++build) {
    if (build->job->for_taps()) break;  // jobs for taps have their own slots
    const auto busy = busy_.find(build->job->version().get());
    // Busy with this job itself if it has waited for another server.
    if (busy == busy_.end() || busy->second == build->job) break;
  }
  return build;
}

JobQueue::Build JobQueue::Take(Builds::iterator build) {
  if (builds_.end() - build <= static_cast<std::ptrdiff_t>(old_)) --old_;
  Build taken = std::move(*build);
  builds_.erase(build);
  return taken;
}

JobQueue::Build JobQueue::NextBuild(int worker, CompileBackend* backend) {
  MutexLock lock(mu_);
  auto next = Eligible();
  while (next == builds_.end() && !stopped_) {
    changed_.Wait(lock);
    next = Eligible();
  }
  if (stopped_) return {};
  Build build = Take(next);
  backend->ClearInterrupt();
  at_work_[worker].building = build.job;
  at_work_[worker].build_backend = backend;
  if (!build.job->for_taps()) busy_[build.job->version().get()] = build.job;
  changed_.NotifyAll();  // searches of other workers waited until it was taken
  return build;
}

void JobQueue::Built(int worker) {
  MutexLock lock(mu_);
  at_work_[worker].building = nullptr;
  at_work_[worker].build_backend = nullptr;
  changed_.NotifyAll();
}

bool JobQueue::ToBuild(int worker) {
  return at_work_[worker].building != nullptr || Eligible() != builds_.end();
}

bool JobQueue::AwaitSearch(int worker) {
  MutexLock lock(mu_);
  const std::deque<Turn>& built = at_work_[worker].built;
  while ((built.empty() || ToBuild(worker)) && !stopped_) changed_.Wait(lock);
  return !built.empty();
}

JobQueue::Turn JobQueue::NextTurn(int worker, WorkerSearches* searches, CompileBackend* backend) {
  MutexLock lock(mu_);
  AtWork& at_work = at_work_[worker];
  bool to_end = searches->BringStoppedForward();
  while (!stopped_ && !to_end && ToBuild(worker)) {
    const auto soon = SearchTime::Clock::now() + std::chrono::minutes(1);
    changed_.WaitUntil(lock, std::min(soon, searches->FirstEnd()));
    to_end = searches->BringStoppedForward();
  }
  Turn turn;
  if (!to_end && !at_work.built.empty()) {
    turn = std::move(at_work.built.front());
    at_work.built.pop_front();
  } else if (!searches->empty()) {
    turn.job = searches->next();
  } else {
    return turn;
  }
  backend->ClearInterrupt();  // earlier requests to stop are detected without it
  at_work.searching = turn.job;
  at_work.search_backend = backend;
  return turn;
}

void JobQueue::EndTurn(int worker, bool leaves) {
  MutexLock lock(mu_);
  AtWork& at_work = at_work_[worker];
  at_work.searching = nullptr;
  at_work.search_backend = nullptr;
  if (leaves) --at_work.searches;
}

JobQueue::Place JobQueue::Cancel(const Job& job) {
  Build gone;  // its plans are destroyed without the lock
  MutexLock lock(mu_);
  changed_.NotifyAll();  // a search that waits for its step ends now
  const auto build = std::find_if(builds_.begin(), builds_.end(),
                                  [&](const Build& waiting) { return waiting.job == job; });
  if (build != builds_.end()) {
    gone = Take(build);
    return Place::kToBuild;
  }
  for (AtWork& worker : at_work_) {
    if (worker.building == job) worker.build_backend->Interrupt();
    if (worker.searching == job) worker.search_backend->Interrupt();
    if (std::erase_if(worker.built, [&](const Turn& turn) { return turn.job == job; }) > 0) {
      --worker.searches;
      return Place::kToSearch;
    }
  }
  return Place::kElsewhere;
}

void JobQueue::Release(const Job& job) {
  if (job->for_taps()) return;
  MutexLock lock(mu_);
  const auto busy = busy_.find(job->version().get());
  if (busy != busy_.end() && busy->second == job) busy_.erase(busy);
  changed_.NotifyAll();
}

bool JobQueue::Stop() {
  MutexLock lock(mu_);
  changed_.NotifyAll();
  return !std::exchange(stopped_, true);
}

bool JobQueue::stopped() const {
  MutexLock lock(mu_);
  return stopped_;
}

}  // namespace athanor
