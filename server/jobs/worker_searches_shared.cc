// Equal searches on one cache: which of them runs, and what the others take over.
#include <chrono>
#include <utility>

#include "server/base/log.h"
#include "server/jobs/parked_jobs.h"
#include "server/jobs/worker_searches.h"

namespace athanor {

std::string WorkerSearches::LeaseKeyOf(const CompileJob& job) const {
  // A search whose plans are only kept or compared was requested here, and does not concern others.
  if (job.policy().use != v1::SearchOptions::SERVE) return "";
  if (cache_ == nullptr || !keeper_.ready()) return "";
  const ModelVersion& version = *job.version();
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
  const bool ended = policy.automatic && !Due(keeper_, version, policy);
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
  const absl::Status serves = registry_.Publish(job.version(), *std::move(served));
  if (!serves.ok()) return nullptr;  // deleted, pinned or damaged
  version.plans().SetCosts(nullptr, BucketGrid::kFullRange, id, found.costs);
  LogInfo(
      "plan of another search taken",
      {{"job", job.id()}, {"model", version.name()}, {"version", version.version()}, {"plan", id}});
  return found.plan;
}

void WorkerSearches::LetOthersGoOn(Lease& lease) {
  if (!lease.valid()) return;
  // Searches that wait for the lease look for its result as soon as it is free.
  constexpr std::chrono::seconds kMostWait{1};
  cache_->Flush(kMostWait).IgnoreError();  // if that fails, they search too
  lease.Release();
}

}  // namespace athanor
