#include "server/jobs/job_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace athanor {

bool JobQueue::Stops(const Job& job) const { return stopped_ || job->stop_requested().has_value(); }

absl::StatusOr<JobQueue::Job> JobQueue::Add(absl::FunctionRef<Job()> make) {
  MutexLock lock(mu_);
  if (stopped_) return absl::UnavailableError("the server is draining");
  if (const int64_t wait = waiting_.not_begun(); wait >= most_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(wait, " compile jobs wait already, the most allowed (--max_compile_jobs)"));
  }
  Job job = make();
  waiting_.Append({job, {}});
  changed_.NotifyAll();
  return job;
}

void JobQueue::AddAll(const std::vector<Job>& jobs, const std::vector<Job>& old) {
  MutexLock lock(mu_);
  for (const Job& job : jobs) waiting_.Append({job, {}});
  for (const Job& job : old) waiting_.AppendOld(job);
  changed_.NotifyAll();
}

bool JobQueue::AddFirst(const Job& job) {
  MutexLock lock(mu_);
  if (Stops(job)) return false;
  waiting_.AddNext(job);
  changed_.NotifyAll();
  return true;
}

bool JobQueue::AddRest(const Job& job, JobRest rest) {
  MutexLock lock(mu_);
  if (Stops(job)) return false;
  waiting_.Append({job, std::move(rest)});
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

bool JobQueue::MayBegin(const WaitingJobs::Waiting& waiting) const {
  const Job& job = waiting.build.job;
  if (waiting.rank == Rank::kBoxes) {
    const auto boxes = std::count_if(at_work_.begin(), at_work_.end(), [](const AtWork& worker) {
      return worker.rank == Rank::kBoxes && !worker.helps && worker.building != nullptr;
    });
    if (boxes > 0 && boxes + 1 >= static_cast<std::ptrdiff_t>(at_work_.size())) return false;
  }
  if (job->for_taps()) return true;  // jobs for taps have their own slots
  const auto busy = busy_.find(job->version().get());
  // Busy with this job itself if it has waited for another server, or for its rest.
  return busy == busy_.end() || busy->second == job;
}

WaitingJobs::Iterator JobQueue::Next() {
  return waiting_.Next([this](const WaitingJobs::Waiting& waiting)
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return MayBegin(waiting); });
}

bool JobQueue::GivesWay(int worker) const {
  MutexLock lock(mu_);
  if (at_work_[worker].rank < Rank::kBoxes) return false;
  for (const AtWork& other : at_work_) {
    if (other.rank == Rank::kFirstPlan && other.shared != nullptr && other.shared->HasTask()) {
      return true;
    }
  }
  for (const AtWork& other : at_work_) {
    if (other.building == nullptr || other.helps) return false;
  }
  return waiting_.HasFirstPlan(
      [this](const WaitingJobs::Waiting& waiting)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return MayBegin(waiting); });
}

const JobQueue::AtWork* JobQueue::ToHelp(WaitingJobs::Iterator next) {
  const AtWork* help = nullptr;
  for (const AtWork& worker : at_work_) {
    if (worker.shared == nullptr || (help != nullptr && help->rank <= worker.rank)) continue;
    // Callers wait for plans with taps as for first plans.
    const bool urgent = next != waiting_.end() &&
                        (next->rank <= worker.rank || next->passed >= WaitingJobs::kMostPassed ||
                         next->build.job->for_taps());
    if (urgent) continue;
    if (worker.shared->HasTask()) help = &worker;
  }
  return help;
}

JobQueue::Build JobQueue::NextBuild(int worker, CompileBackend* backend) {
  MutexLock lock(mu_);
  auto next = Next();
  const AtWork* help = ToHelp(next);
  while (next == waiting_.end() && help == nullptr && !stopped_) {
    changed_.Wait(lock);
    next = Next();
    help = ToHelp(next);
  }
  if (stopped_) return {};
  AtWork& at_work = at_work_[worker];
  at_work.helps = help != nullptr;
  at_work.rank = help != nullptr ? help->rank : next->rank;
  Build build;
  if (help != nullptr) {
    build = {help->building, {}, help->shared};
  } else {
    build =
        waiting_.Take(next, [this](const WaitingJobs::Waiting& waiting)
                                ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return MayBegin(waiting); });
  }
  backend->ClearInterrupt();
  at_work.building = build.job;
  at_work.build_backend = backend;
  if (help == nullptr && !build.job->for_taps()) busy_[build.job->version().get()] = build.job;
  changed_.NotifyAll();  // searches of other workers waited until it was taken
  return build;
}

void JobQueue::Built(int worker) {
  MutexLock lock(mu_);
  at_work_[worker].building = nullptr;
  at_work_[worker].build_backend = nullptr;
  changed_.NotifyAll();
}

void JobQueue::Share(int worker, std::shared_ptr<KernelWork> work) {
  MutexLock lock(mu_);
  at_work_[worker].shared.swap(work);  // what it was is destroyed without the lock
  changed_.NotifyAll();
}

void JobQueue::Wake() {
  MutexLock lock(mu_);
  changed_.NotifyAll();
}

bool JobQueue::ToBuild(int worker) {
  if (at_work_[worker].building != nullptr) return true;
  const auto next = Next();
  return next != waiting_.end() || ToHelp(next) != nullptr;
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
  std::optional<Build> gone;  // its plans are destroyed without the lock
  MutexLock lock(mu_);
  changed_.NotifyAll();  // a search that waits for its step ends now
  if ((gone = waiting_.Remove(job)).has_value()) return Place::kToBuild;
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
