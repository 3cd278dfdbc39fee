#include "server/jobs/job_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace athanor {

bool JobQueue::Stops(const Job& job) const { return stopped_ || job->stop_requested().has_value(); }

JobQueue::Rank JobQueue::RankOf(const Build& build) {
  if (std::holds_alternative<BoxesLeft>(build.rest)) return Rank::kBoxes;
  if (build.job->for_taps()) return Rank::kLater;
  const std::shared_ptr<PlanSlot> slot = build.job->slot();
  return slot != nullptr && slot->plan() == nullptr ? Rank::kFirstPlan : Rank::kLater;
}

int64_t JobQueue::CostOf(const CompileJob& job) {
  const std::shared_ptr<ModelVersion> version = job.version();
  if (version == nullptr || !version->row().plans.empty()) return 0;
  return static_cast<int64_t>(version->graph().nodes.size());
}

void JobQueue::Append(Build build) {
  const Rank rank = RankOf(build);
  const int64_t cost = CostOf(*build.job);
  const bool for_taps = build.job->for_taps();
  const ModelVersion* version = build.job->version().get();
  builds_.push_back({std::move(build), rank, cost});
  if (!for_taps) RaiseBoxes(version);
}

void JobQueue::RaiseBoxes(const ModelVersion* version) {
  Waiting* boxes = nullptr;
  Rank most = Rank::kBoxes;
  for (Waiting& waiting : builds_) {
    const CompileJob& job = *waiting.build.job;
    if (job.for_taps() || job.version().get() != version) continue;
    if (std::holds_alternative<BoxesLeft>(waiting.build.rest)) boxes = &waiting;
    most = std::min(most, waiting.rank);
  }
  if (boxes != nullptr) boxes->rank = most;
}

absl::StatusOr<JobQueue::Job> JobQueue::Add(absl::FunctionRef<Job()> make) {
  MutexLock lock(mu_);
  if (stopped_) return absl::UnavailableError("the server is draining");
  // What is left of jobs whose plan serves keeps nobody out.
  const auto wait = std::count_if(builds_.begin(), builds_.end(), [](const Waiting& waiting) {
    return std::holds_alternative<std::monostate>(waiting.build.rest);
  });
  if (wait >= most_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(wait, " compile jobs wait already, the most allowed (--max_compile_jobs)"));
  }
  Job job = make();
  Append({job, {}});
  changed_.NotifyAll();
  return job;
}

void JobQueue::AddAll(const std::vector<Job>& jobs, const std::vector<Job>& old) {
  MutexLock lock(mu_);
  for (const Job& job : jobs) Append({job, {}});
  for (const Job& job : old) builds_.push_back({{job, {}}, Rank::kOld});
  changed_.NotifyAll();
}

bool JobQueue::AddFirst(const Job& job) {
  MutexLock lock(mu_);
  if (Stops(job)) return false;
  builds_.push_front({{job, {}}, Rank::kFirstPlan, 0, kMostPassed});
  changed_.NotifyAll();
  return true;
}

bool JobQueue::AddRest(const Job& job, JobRest rest) {
  MutexLock lock(mu_);
  if (Stops(job)) return false;
  Append({job, std::move(rest)});
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

bool JobQueue::IsBefore(const Waiting& a, const Waiting& b) {
  const bool a_next = a.passed >= kMostPassed, b_next = b.passed >= kMostPassed;
  if (a_next || b_next) return a_next;
  if (a.rank != b.rank) return a.rank < b.rank;
  return a.rank != Rank::kFirstPlan || a.cost <= b.cost;
}

bool JobQueue::MayBegin(const Waiting& waiting) const {
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

JobQueue::Builds::iterator JobQueue::Next() {
  auto next = builds_.end();
  for (auto build = builds_.begin(); build != builds_.end(); ++build) {
    if (!MayBegin(*build)) continue;
    if (next == builds_.end() || !IsBefore(*next, *build)) next = build;
  }
  return next;
}

bool JobQueue::GivesWay() const {
  MutexLock lock(mu_);
  for (const AtWork& worker : at_work_) {
    if (worker.rank == Rank::kFirstPlan && worker.shared != nullptr && worker.shared->HasTask()) {
      return true;
    }
  }
  for (const AtWork& worker : at_work_) {
    if (worker.building == nullptr || worker.helps) return false;
  }
  for (const Waiting& waiting : builds_) {
    if (waiting.rank == Rank::kFirstPlan && MayBegin(waiting)) return true;
  }
  return false;
}

JobQueue::Build JobQueue::Take(Builds::iterator build) {
  for (auto earlier = builds_.begin(); earlier != build; ++earlier) {
    if (earlier->rank <= Rank::kLater && MayBegin(*earlier)) ++earlier->passed;
  }
  Build taken = std::move(build->build);
  builds_.erase(build);
  return taken;
}

const JobQueue::AtWork* JobQueue::ToHelp(Builds::const_iterator next) const {
  const AtWork* help = nullptr;
  for (const AtWork& worker : at_work_) {
    if (worker.shared == nullptr || (help != nullptr && help->rank <= worker.rank)) continue;
    // Callers wait for plans with taps as for first plans.
    const bool urgent =
        next != builds_.end() &&
        (next->rank <= worker.rank || next->passed >= kMostPassed || next->build.job->for_taps());
    if (urgent) continue;
    if (worker.shared->HasTask()) help = &worker;
  }
  return help;
}

JobQueue::Build JobQueue::NextBuild(int worker, CompileBackend* backend) {
  MutexLock lock(mu_);
  auto next = Next();
  const AtWork* help = ToHelp(next);
  while (next == builds_.end() && help == nullptr && !stopped_) {
    changed_.Wait(lock);
    next = Next();
    help = ToHelp(next);
  }
  if (stopped_) return {};
  AtWork& at_work = at_work_[worker];
  at_work.helps = help != nullptr;
  at_work.rank = help != nullptr ? help->rank : next->rank;
  Build build = help != nullptr ? Build{help->building, {}, help->shared} : Take(next);
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
  return next != builds_.end() || ToHelp(next) != nullptr;
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
                                  [&](const Waiting& waiting) { return waiting.build.job == job; });
  if (build != builds_.end()) {
    gone = std::move(build->build);
    builds_.erase(build);
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
