#include "server/jobs/worker_searches.h"

#include <algorithm>
#include <utility>

#include "server/base/log.h"

namespace athanor {
namespace {

using Clock = SearchTime::Clock;

// Time that a search gets before it makes room for one that waits in line. A search with less time
// left goes on until its end.
constexpr std::chrono::seconds kShare(60);

}  // namespace

bool WorkerSearches::BringStoppedForward() {
  const auto stopped = std::find_if(turns_.begin(), turns_.end(), [](const Turn& turn) {
    return turn.search->job()->stop_requested().has_value() ||
           turn.search->time().Over(Clock::now());
  });
  if (stopped == turns_.end()) return false;
  std::rotate(turns_.begin(), stopped, stopped + 1);
  return true;
}

Clock::time_point WorkerSearches::FirstEnd() const {
  Clock::time_point first = Clock::time_point::max();
  for (const Turn& turn : turns_) first = std::min(first, turn.search->time().end());
  return first;
}

std::optional<LeaseWait> WorkerSearches::Start(const std::shared_ptr<CompileJob>& job,
                                               std::shared_ptr<const CompiledPlan> serving) {
  if (const auto stop = job->stop_requested()) {
    job->Finish(absl::OkStatus(), *stop);
    return std::nullopt;
  }
  // The version may have been pinned since its plan was built.
  if (!SearchPolicies::Wanted(*job->version(), job->policy())) {
    job->Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY);
    return std::nullopt;
  }
  backend_.Use(job->version()->device());
  Lease lease;
  if (auto wait = TakeLease(job, &lease, &serving)) return wait;
  if (job->finished()) return std::nullopt;
  auto search = std::make_unique<JobSearch>(
      JobSearch::Tools{registry_, backend_, keeper_, loader_, policies_}, job);
  if (absl::Status begun = search->Start(std::move(serving)); !begun.ok()) {
    if (const auto stop = job->stop_requested()) {
      job->Finish(absl::OkStatus(), *stop);
      return std::nullopt;
    }
    // A backend without searches has not failed.
    const bool none = absl::IsUnimplemented(begun);
    LogWarn("no search", {{"model", job->model()}, {"error", begun.ToString()}});
    job->Finish(begun,
                none ? v1::CompileJob::STOP_BASELINE_ONLY : v1::CompileJob::STOP_SEARCH_FAILED);
    return std::nullopt;
  }
  // Plans it finds are stored under this compiler, which may differ from the one before the start.
  if (const auto machine = backend_.Machine(); machine.ok()) keeper_.SetMachine(*machine);
  job->Update([](v1::CompileJob& state) { state.clear_waits_for(); });
  job->Enter(v1::CompileJob::SEARCHING, 96, "looks for a faster plan");
  turns_.push_back({std::move(search), std::move(lease)});
  return std::nullopt;
}

std::string WorkerSearches::LeaseKeyOf(const CompileJob& job) const {
  // A search whose plans are only kept or compared was requested here, and does not concern others.
  if (job.policy().use != v1::SearchOptions::SERVE) return "";
  const ModelVersion& version = *job.version();
  if (cache_ == nullptr || !keeper_.ready(version)) return "";
  const v1::SearchOptions how = job.policy().ToProto();
  return SearchKeyOf(keeper_.KeyOf(version, version.graph(), how), how);
}

std::optional<LeaseWait> WorkerSearches::TakeLease(const std::shared_ptr<CompileJob>& job,
                                                   Lease* lease,
                                                   std::shared_ptr<const CompiledPlan>* serving) {
  std::string key = LeaseKeyOf(*job);
  if (key.empty()) return std::nullopt;
  ModelVersion& version = *job->version();
  auto taken = cache_->leases().Take(key, kSearchLease, version.Describe());
  if (!taken.ok()) return LeaseWait{std::string(taken.status().message()), std::move(key)};
  *lease = *std::move(taken);
  // An equal search may have ended while this one waited, or since its plan was looked up.
  const SearchPolicy& policy = job->policy();
  const bool waited = !job->state().waits_for().empty();
  const bool ended = policy.automatic && !policies_.Due(version, policy);
  std::shared_ptr<const CompiledPlan> better;
  if (waited || ended) better = Adopt(*job, **serving);
  const std::shared_ptr<const ServedPlan> plan = version.plan();
  if (ended && (waited || better != nullptr) && plan != nullptr) job->FinishRestored(*plan);
  if (better != nullptr) *serving = std::move(better);
  return std::nullopt;
}

std::shared_ptr<const CompiledPlan> WorkerSearches::Adopt(CompileJob& job,
                                                          const CompiledPlan& serving) {
  ModelVersion& version = *job.version();
  const SearchPolicy& policy = job.policy();
  const PlanKey key = keeper_.KeyOf(version, version.graph(), policy.ToProto());
  auto best = keeper_.FindBest(key, policy);
  if (!best.ok() || !best->front().plan->whole()) return nullptr;
  const KeptPlan& found = best->front();
  const std::string& id = found.plan->id();
  if (!found.plan->searched() || id == serving.id()) return nullptr;
  // How it compares with a plan that is not kept any more, nobody knows.
  const bool known = !serving.searched() || keeper_.Find(version, key, serving.id()).ok();
  if (!known) return nullptr;
  auto served = loader_.Load(version, version.graph(), found.plan);
  if (!served.ok()) {
    LogWarn("a plan that another search found is not taken",
            {{"plan", id}, {"error", served.status().ToString()}});
    return nullptr;
  }
  const absl::Status serves = registry_.publisher().Publish(job.version(), *std::move(served));
  if (!serves.ok()) return nullptr;  // deleted, pinned or damaged
  version.plans().SetCosts(nullptr, BucketGrid::kFullRange, id, found.costs);
  LogInfo(
      "plan of another search taken",
      {{"job", job.id()}, {"model", version.name()}, {"version", version.version()}, {"plan", id}});
  return found.plan;
}

void WorkerSearches::Step() {
  Turn turn = std::move(turns_.front());
  turns_.pop_front();
  backend_.Use(turn.search->job()->version()->device());
  const auto start = Clock::now();
  const bool goes_on = turn.search->Step();
  turn.used += Clock::now() - start;
  if (goes_on) return TakeTurns(std::move(turn));
  ReleaseOnceWritten(cache_, &turn.lease);
  turn.search->Finish();
}

void WorkerSearches::TakeTurns(Turn turn) {
  const auto soon = Clock::now() + kShare;
  // `turns_` does not contain this search here. Searches with little time left come first.
  const size_t pressed = std::count_if(turns_.begin(), turns_.end(), [&](const Turn& other) {
    return other.search->time().end() <= soon &&
           other.search->time().end() <= turn.search->time().end();
  });
  const size_t most = backend_.most_searches();
  const bool waited_for = turns_.size() >= most;
  const bool had_its_share = waited_for && turn.used >= kShare;
  size_t place = std::max(pressed, std::min(turns_.size(), most - 1));
  if (had_its_share) {
    turn.used = {};
    place = turns_.size();
  }
  if (turn.search->time().end() <= soon) place = pressed;
  turns_.insert(turns_.begin() + static_cast<std::ptrdiff_t>(place), std::move(turn));
}

}  // namespace athanor
