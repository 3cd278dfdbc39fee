#include "server/jobs/compile_workers.h"

#include <pthread.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "compiler/ir/value/message.h"
#include "server/base/log.h"
#include "server/jobs/bucket_builder.h"

namespace athanor {
namespace {

// Ids of an earlier process are unknown to this one, and must not name a different job.
std::string NewIdPrefix() {
  return absl::StrFormat("job-%06x-", std::random_device()() & 0xffffff);
}

// Jobs of deleted models are kept only for those who watch their end, so fewer than of others.
constexpr int64_t kMostOfDeleted = 50;

}  // namespace

CompileWorkers::CompileWorkers(const ServerOptions& options, Registry* registry,
                               CompileBackends* backends, PlanKeeper* keeper,
                               const PlanLoader* loader)
    : options_(options),
      registry_(registry),
      backends_(*backends),
      keeper_(*keeper),
      loader_(*loader),
      policies_(options, backends, keeper),
      pins_(registry, keeper, loader, &policies_),
      id_prefix_(NewIdPrefix()) {
  const int count = static_cast<int>(options.compile_workers);
  {
    MutexLock lock(mu_);
    at_work_.resize(count);
  }
  for (int i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>(backends_.New()));
  }
  if (backends_.cache() != nullptr) {
    parked_ =
        std::make_unique<ParkedJobs>(backends_.cache(), [this](const auto& job) { Resume(job); });
  }
  for (int i = 0; i < count; ++i) {
    workers_[i]->builder = std::thread([this, i] { BuildLoop(i); });
    pthread_setname_np(workers_[i]->builder.native_handle(), "compile");
    workers_[i]->searcher = std::thread([this, i] { SearchLoop(i); });
    pthread_setname_np(workers_[i]->searcher.native_handle(), "search");
  }
}

absl::StatusOr<std::shared_ptr<CompileJob>> CompileWorkers::Start(
    const std::shared_ptr<ModelVersion>& version, SearchPolicy policy,
    std::optional<BucketGrid::Ranges> buckets) {
  version->taps().ForgetFailed();
  auto job = Submit(version, nullptr, std::move(policy), std::move(buckets));
  if (!absl::IsResourceExhausted(job.status())) return job;
  return Prefixed(absl::StrCat(version->Describe(), ": "), job.status());
}

absl::StatusOr<std::shared_ptr<TapPlan>> CompileWorkers::Tap(
    const std::shared_ptr<ModelVersion>& version, std::vector<NodeId> taps) {
  if (options_.tap_plans == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(version->Describe(), ": this server returns no inner values (--tap_plans=0)"));
  }
  const PlanSlot::View serving = version->serving().view();
  if (!serving.error.ok()) return serving.error;
  auto tapped = version->taps().Get(std::move(taps), options_.tap_plans,
                                    [&](const std::shared_ptr<TapPlan>& added) {
                                      return Submit(version, added, {}, std::nullopt).status();
                                    });
  if (!absl::IsResourceExhausted(tapped.status())) return tapped;
  return Prefixed(absl::StrCat(version->Describe(), ": "), tapped.status());
}

absl::StatusOr<std::shared_ptr<CompileJob>> CompileWorkers::Submit(
    const std::shared_ptr<ModelVersion>& version, const std::shared_ptr<TapPlan>& tapped,
    SearchPolicy policy, std::optional<BucketGrid::Ranges> buckets) {
  std::shared_ptr<CompileJob> job;
  {
    MutexLock lock(mu_);
    if (stopping_) return absl::UnavailableError("the server is draining");
    if (static_cast<int64_t>(queue_.size()) >= options_.max_compile_jobs) {
      registry_->metrics().server().Count(Metric::kRefusals, Refusal::kCompileJobs);
      return absl::ResourceExhaustedError(absl::StrCat(
          queue_.size(), " compile jobs wait already, the most allowed (--max_compile_jobs)"));
    }
    job = Enqueue(version, tapped, std::move(policy), std::move(buckets));
  }
  cv_.NotifyAll();
  return job;
}

void CompileWorkers::StartAll(const std::vector<std::shared_ptr<ModelVersion>>& versions,
                              const std::vector<std::shared_ptr<ModelVersion>>& old) {
  {
    MutexLock lock(mu_);
    for (const auto& version : versions) Enqueue(version, nullptr, policies_.Automatic(*version));
    for (const auto& version : old) {
      SearchPolicy policy = policies_.Automatic(*version);
      policy.budget.search = false;
      Enqueue(version, nullptr, std::move(policy));
    }
    old_ += old.size();
  }
  cv_.NotifyAll();
}

void CompileWorkers::AddRestored(const std::shared_ptr<ModelVersion>& version) {
  const std::shared_ptr<const ServedPlan> plan = version->plan();
  if (plan == nullptr) return;  // the version was deleted
  std::shared_ptr<CompileJob> job;
  {
    MutexLock lock(mu_);
    job = NewJob(version, nullptr, policies_.Automatic(*version), std::nullopt);
  }
  job->FinishRestored(*plan);
  CountEnd(*job);
  job->LetGoOfVersion();
}

std::shared_ptr<CompileJob> CompileWorkers::NewJob(const std::shared_ptr<ModelVersion>& version,
                                                   const std::shared_ptr<TapPlan>& tapped,
                                                   SearchPolicy policy,
                                                   std::optional<BucketGrid::Ranges> buckets) {
  const uint64_t number = ++last_id_;
  auto job = std::make_shared<CompileJob>(absl::StrCat(id_prefix_, number), version, tapped,
                                          std::move(policy), std::move(buckets));
  job->slot()->SetJob(job->id(), /*compiling=*/false);
  jobs_.emplace(number, job);
  return job;
}

std::shared_ptr<CompileJob> CompileWorkers::Enqueue(const std::shared_ptr<ModelVersion>& version,
                                                    const std::shared_ptr<TapPlan>& tapped,
                                                    SearchPolicy policy,
                                                    std::optional<BucketGrid::Ranges> buckets) {
  std::shared_ptr<CompileJob> job = NewJob(version, tapped, std::move(policy), std::move(buckets));
  queue_.insert(queue_.end() - static_cast<std::ptrdiff_t>(old_), job);
  Forget();
  return job;
}

void CompileWorkers::Forget() {
  const auto of_deleted = [](const auto& entry) {
    return entry.second->finished() && entry.second->version() == nullptr;
  };
  int64_t deleted = std::count_if(jobs_.begin(), jobs_.end(), of_deleted);
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const bool gone = of_deleted(*it);
    const bool full = static_cast<int64_t>(jobs_.size()) > options_.max_compile_jobs;
    if ((gone && deleted > kMostOfDeleted) || (full && it->second->finished())) {
      deleted -= gone ? 1 : 0;
      it = jobs_.erase(it);
    } else {
      ++it;
    }
  }
}

absl::StatusOr<std::shared_ptr<CompileJob>> CompileWorkers::Find(const std::string& id) const {
  absl::string_view text = id;
  uint64_t number = 0;
  if (absl::ConsumePrefix(&text, id_prefix_) && absl::SimpleAtoi(text, &number)) {
    MutexLock lock(mu_);
    auto it = jobs_.find(number);
    if (it != jobs_.end() && it->second->id() == id) return it->second;
  }
  return absl::NotFoundError(Cat("compile job ", Quoted(id),
                                 " does not exist; jobs are forgotten when the server restarts"));
}

std::vector<std::shared_ptr<CompileJob>> CompileWorkers::List(absl::string_view model) const {
  std::vector<std::shared_ptr<CompileJob>> found;
  MutexLock lock(mu_);
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    if (model.empty() || it->second->model() == model) found.push_back(it->second);
  }
  return found;
}

void CompileWorkers::Cancel(const std::shared_ptr<CompileJob>& job,
                            v1::CompileJob::StopReason reason) {
  job->RequestStop(reason);
  bool queued = false, built = false;
  {
    MutexLock lock(mu_);
    const auto it = std::find(queue_.begin(), queue_.end(), job);
    queued = it != queue_.end();
    if (queued) RemoveQueued(it);
    for (size_t i = 0; i < at_work_.size(); ++i) {
      AtWork& worker = at_work_[i];
      if (worker.building == job) workers_[i]->backend->Interrupt();
      if (worker.searching == job) worker.search_backend->Interrupt();
      if (std::erase_if(worker.built, [&](const Turn& turn) { return turn.job == job; }) > 0) {
        built = true;
        --worker.searches;
      }
    }
  }
  cv_.NotifyAll();  // wakes a worker with a search that waits for its step, so that it ends now
  if (queued || (parked_ != nullptr && parked_->Remove(job))) {
    EndWithoutPlan(*job, absl::OkStatus(), 0);
    Release(job);
  } else if (built) {
    job->Finish(absl::OkStatus(), *job->stop_requested());
    Release(job);
  }
}

void CompileWorkers::CancelFor(const ModelVersion& version) {
  pins_.ForgetDeleted(version);
  for (const auto& job : List(version.name())) {
    if (job->version().get() == &version && !job->finished()) {
      Cancel(job, v1::CompileJob::STOP_MODEL_DELETED);
    }
  }
}

void CompileWorkers::Stop() {
  {
    MutexLock lock(mu_);
    if (stopping_) return;
    stopping_ = true;
  }
  const absl::Status draining = absl::UnavailableError("the server is draining");
  for (const auto& job : List("")) {
    const std::shared_ptr<PlanSlot> slot = job->slot();
    if (job->finished() || slot == nullptr) continue;
    Cancel(job, v1::CompileJob::STOP_SHUTDOWN);
    slot->Refuse(draining);
  }
  cv_.NotifyAll();
  for (auto& worker : workers_) {
    worker->builder.join();
    worker->searcher.join();
  }
}

std::deque<std::shared_ptr<CompileJob>>::iterator CompileWorkers::Eligible() {
  auto job = queue_.begin();
  for (; job != queue_.end(); ++job) {
    if ((*job)->for_taps()) break;  // jobs for taps have their own slots
    const auto busy = busy_.find((*job)->version().get());
    // Busy with this job itself, which was parked.
    if (busy == busy_.end() || busy->second == *job) break;
  }
  return job;
}

void CompileWorkers::RemoveQueued(std::deque<std::shared_ptr<CompileJob>>::iterator job) {
  if (queue_.end() - job <= static_cast<std::ptrdiff_t>(old_)) --old_;
  queue_.erase(job);
}

std::shared_ptr<CompileJob> CompileWorkers::NextJob(int index) {
  MutexLock lock(mu_);
  auto next = Eligible();
  while (next == queue_.end() && !stopping_) {
    cv_.Wait(lock);
    next = Eligible();
  }
  if (stopping_) return nullptr;
  std::shared_ptr<CompileJob> job = *next;
  workers_[index]->backend->ClearInterrupt();
  at_work_[index].building = job;
  RemoveQueued(next);
  if (!job->for_taps()) busy_[job->version().get()] = job;
  cv_.NotifyAll();  // searches of other workers waited until it was taken
  return job;
}

void CompileWorkers::Release(const std::shared_ptr<CompileJob>& job) {
  if (!job->finished()) return;
  CountEnd(*job);
  if (!job->for_taps()) {
    MutexLock lock(mu_);
    const auto busy = busy_.find(job->version().get());
    if (busy != busy_.end() && busy->second == job) busy_.erase(busy);
    postponed_.erase(job.get());
    cv_.NotifyAll();
  }
  job->LetGoOfVersion();
}

void CompileWorkers::CountEnd(const CompileJob& job) {
  registry_->metrics().server().Count(Metric::kCompileJobs, job.state().stop_reason());
}

void CompileWorkers::BuildLoop(int index) {
  while (std::shared_ptr<CompileJob> job = NextJob(index)) {
    const bool goes_on = RunJob(index, job);
    {
      MutexLock lock(mu_);
      at_work_[index].building = nullptr;
    }
    cv_.NotifyAll();
    if (!goes_on) Release(job);
  }
}

void CompileWorkers::SearchLoop(int index) {
  while (AwaitSearch(index)) {
    // Its child process holds the state of the searches, and ends with the last of them.
    const std::unique_ptr<CompileBackend> backend = backends_.New();
    WorkerSearches searches(registry_, backend.get(), &keeper_, &loader_, backends_.cache());
    for (Turn turn; (turn = NextTurn(index, &searches, backend.get())).job != nullptr;) {
      std::optional<LeaseWait> wait;
      if (turn.serving != nullptr) {
        wait = searches.Start(turn.job, std::move(turn.serving));
      } else {
        searches.Step();
      }
      EndTurn(index, turn.job, std::move(wait));
    }
  }
}

bool CompileWorkers::ToBuild(int index) {
  return at_work_[index].building != nullptr || Eligible() != queue_.end();
}

bool CompileWorkers::AwaitSearch(int index) {
  MutexLock lock(mu_);
  const std::deque<Turn>& built = at_work_[index].built;
  while ((built.empty() || ToBuild(index)) && !stopping_) cv_.Wait(lock);
  return !built.empty();
}

CompileWorkers::Turn CompileWorkers::NextTurn(int index, WorkerSearches* searches,
                                              CompileBackend* backend) {
  MutexLock lock(mu_);
  AtWork& worker = at_work_[index];
  bool stopped = searches->BringStoppedForward();
  while (!stopping_ && !stopped && ToBuild(index)) {
    const auto soon = SearchTime::Clock::now() + std::chrono::minutes(1);
    cv_.WaitUntil(lock, std::min(soon, searches->FirstEnd()));
    stopped = searches->BringStoppedForward();
  }
  Turn turn;
  if (!stopped && !worker.built.empty()) {
    turn = std::move(worker.built.front());
    worker.built.pop_front();
  } else if (!searches->empty()) {
    turn.job = searches->next();
  } else {
    return turn;
  }
  backend->ClearInterrupt();  // earlier requests to stop are detected without it
  worker.searching = turn.job;
  worker.search_backend = backend;
  return turn;
}

void CompileWorkers::EndTurn(int index, const std::shared_ptr<CompileJob>& job,
                             std::optional<LeaseWait> wait) {
  {
    MutexLock lock(mu_);
    AtWork& worker = at_work_[index];
    worker.searching = nullptr;
    worker.search_backend = nullptr;
    if (job->finished() || wait.has_value()) --worker.searches;
  }
  if (wait.has_value()) return ParkSearch(job, *std::move(wait));
  Release(job);
}

}  // namespace athanor
