// Runs a job on a worker: builds a plan for its version, then boxes, then starts a search.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"
#include "server/jobs/bucket_builder.h"
#include "server/jobs/compile_workers.h"

namespace athanor {
namespace {

// Returns the error of calls whose job somebody has cancelled.
absl::Status WasCancelled(const CompileJob& job, const TapPlan* tapped) {
  return absl::FailedPreconditionError(absl::StrCat(
      job.version()->Describe(), " has no ", tapped == nullptr ? "plan" : tapped->Describe(),
      ": its compile job ", job.id(), " was cancelled; StartCompile ",
      tapped == nullptr ? "starts another" : "lets the next call start another"));
}

absl::string_view OriginText(PlanOrigin origin) {
  constexpr absl::string_view kTexts[] = {"lowered", "cached", "remembered"};
  return kTexts[static_cast<int>(origin)];
}

std::string TapsText(const TapPlan* tapped) {
  return tapped == nullptr ? "" : absl::StrJoin(tapped->names, ",");
}

}  // namespace

bool CompileWorkers::RunJob(int index, const std::shared_ptr<CompileJob>& job) {
  ModelVersion& version = *job->version();
  const std::shared_ptr<TapPlan> tapped = job->tapped();
  const std::shared_ptr<PlanSlot> slot = job->slot();
  const std::shared_ptr<const ServedPlan> before = slot->plan();
  slot->SetJob(job->id(), /*compiling=*/true);
  job->Update([](v1::CompileJob& state) { state.clear_waits_for(); });
  Stopwatch watch;
  // Damaged graphs and weights must not be built from. Checking many bytes takes time, so the check
  // can be stopped.
  const absl::Status whole =
      registry_->Verify(version, [&] { return job->stop_requested().has_value(); });
  if (!whole.ok()) {
    EndWithoutPlan(*job, whole, watch.Lap());
    return false;
  }
  if (std::optional<StoredChoice> better = TakePostponed(*job)) {
    return RunPostponed(index, job, *std::move(better));
  }
  // A plan found by a search is not replaced by the baseline: the new search goes on from it. The
  // plan that a version is pinned to is never replaced. No plan is replaced for a search whose
  // plans will not serve, or for one that nobody asked for.
  if (tapped == nullptr && before != nullptr &&
      (before->info.kind() == kSearchedPlan || !version.pinned_plan().empty() ||
       job->policy().use != v1::SearchOptions::SERVE ||
       (job->policy().automatic && !BetterKept(version, job->policy())))) {
    if (!MakeBuckets(index, job)) return false;
    // At start such a job is made for the boxes alone.
    const bool boxes = version.plans().view().grid->size() > 1;
    if (!boxes || !job->policy().automatic ||
        WorkerSearches::Due(keeper_, version, job->policy())) {
      return HandOver(index, job, before->made);
    }
    job->FinishRestored(*before);
    return false;
  }
  watch.Lap();
  BuildTimes times;
  absl::StatusOr<BuiltPlan> built = BuildPlan(ToolsOf(index), *job, &times);
  const int64_t ms = watch.Lap();
  if (!built.ok()) {
    EndWithoutPlan(*job, built.status(), ms);
    return false;
  }
  if (built->plan == nullptr) return Park(job, *built);
  return ServeAndGoOn(index, job, *std::move(built), times, ms);
}

JobTools CompileWorkers::ToolsOf(int index) {
  return {*workers_[index]->backend, loader_, keeper_, registry_->metrics().server(),
          backends_.cache()};
}

bool CompileWorkers::ServeAndGoOn(int index, const std::shared_ptr<CompileJob>& job,
                                  BuiltPlan built, const BuildTimes& times, int64_t ms) {
  ModelVersion& version = *job->version();
  const std::shared_ptr<TapPlan> tapped = job->tapped();
  const std::shared_ptr<const ServedPlan> plan = built.plan;
  const PlanOrigin origin = built.origin;
  Lease lease = std::move(built.lease);
  std::optional<StoredChoice> better = std::move(built.better);
  const absl::Status served = Serve(*job, std::move(built));
  const bool serves = served.ok();
  LetOthersFind(std::move(lease));
  if (absl::IsFailedPrecondition(served)) {
    // Its weights are damaged. The slot has reported that since it was detected, or waits for the
    // job of the upload that replaced them.
    LogError("plan made, not served", {{"job", job->id()},
                                       {"model", version.name()},
                                       {"version", version.version()},
                                       {"error", served.message()}});
    job->Finish(served, v1::CompileJob::STOP_ERROR);
    return false;
  }
  const v1::CompileJob state = job->state();
  LogInfo(serves ? "plan serves" : "plan made, not served",
          {{"job", job->id()},
           {"model", version.name()},
           {"version", version.version()},
           {"taps", TapsText(tapped.get())},
           {"plan", plan->info.plan_id()},
           {"origin", OriginText(origin)},
           {"kernels", state.kernels_total()},
           {"from_cache", state.kernels_from_cache()},
           {"ms", ms},
           {"lower_ms", times.lower},
           {"kernels_ms", times.kernels},
           {"check_ms", times.check},
           {"load_ms", times.load}});
  if (serves && better.has_value()) return Postpone(job, *std::move(better));
  if (serves && tapped == nullptr) {
    if (!MakeBuckets(index, job)) return false;
    const bool idle = origin == PlanOrigin::kRemembered && !WorkerSearches::Wanted(*job);
    const bool searched = origin != PlanOrigin::kLowered && WorkerSearches::Wanted(*job) &&
                          !WorkerSearches::Due(keeper_, version, job->policy());
    if (!idle && !searched) return HandOver(index, job, plan->made);
    job->FinishRestored(*plan);
    return false;
  }
  const bool deleted = !serves && job->slot()->plan() == nullptr;
  job->Finish(absl::OkStatus(),
              deleted ? v1::CompileJob::STOP_MODEL_DELETED : v1::CompileJob::STOP_BASELINE_ONLY);
  return false;
}

bool CompileWorkers::Postpone(const std::shared_ptr<CompileJob>& job, StoredChoice better) {
  job->Update([&](v1::CompileJob& state) {
    state.set_phase(v1::CompileJob::QUEUED);
    state.set_message(absl::StrCat("the baseline serves until plan ", better.made->plan.plan_id(),
                                   " has the ", better.missing.size(),
                                   " kernels that are not in the cache"));
  });
  {
    MutexLock lock(mu_);
    // Whoever stops the job from here on finds it in the queue, behind jobs whose callers wait for
    // a first plan.
    if (!stopping_ && !job->stop_requested().has_value()) {
      postponed_.emplace(job.get(), std::move(better));
      queue_.insert(queue_.end() - static_cast<std::ptrdiff_t>(old_), job);
      return true;
    }
  }
  job->Finish(absl::OkStatus(), job->stop_requested().value_or(v1::CompileJob::STOP_SHUTDOWN));
  return false;
}

std::optional<StoredChoice> CompileWorkers::TakePostponed(const CompileJob& job) {
  MutexLock lock(mu_);
  const auto found = postponed_.find(&job);
  if (found == postponed_.end()) return std::nullopt;
  StoredChoice choice = std::move(found->second);
  postponed_.erase(found);
  return choice;
}

bool CompileWorkers::RunPostponed(int index, const std::shared_ptr<CompileJob>& job,
                                  StoredChoice better) {
  const std::shared_ptr<const ServedPlan> before = job->slot()->plan();
  const std::string plan_id = better.made->plan.plan_id();
  Stopwatch watch;
  BuildTimes times;
  absl::StatusOr<BuiltPlan> built = CompletePlan(ToolsOf(index), *job, std::move(better), &times);
  const int64_t ms = watch.Lap();
  if (built.ok()) return ServeAndGoOn(index, job, *std::move(built), times, ms);
  if (job->stop_requested().has_value() || before == nullptr) {
    EndWithoutPlan(*job, built.status(), ms);
    return false;
  }
  job->NoteWhy(std::string(built.status().message()));
  LogWarn("a stored plan does not take the baseline's place",
          {{"job", job->id()},
           {"model", job->model()},
           {"plan", plan_id},
           {"error", built.status().ToString()}});
  if (!MakeBuckets(index, job)) return false;
  return HandOver(index, job, before->made);
}

bool CompileWorkers::MakeBuckets(int index, const std::shared_ptr<CompileJob>& job) {
  const ModelVersion& version = *job->version();
  // The pinned plan serves all sizes, except boxes that are pinned themselves.
  if (!version.pinned_plan().empty() && !job->buckets().has_value() &&
      version.plans().pinned().empty()) {
    return true;
  }
  const JobTools tools = ToolsOf(index);
  const BucketTools buckets = {
      .make = [&](const Graph& graph) { return MakePlans(tools, *job, graph); },
      .pinned = [&](const Graph& graph,
                    const std::string& id) { return FindPinned(tools, *job, graph, id); },
      .load =
          [&](const Graph& graph, std::shared_ptr<const PlanSearch::Found> made) {
            return loader_.Load(version, graph, std::move(made));
          },
      .pool = backends_.pool(&registry_->ledger()),
      .max_buckets = options_.max_buckets};
  const absl::Status made = BuildBuckets(buckets, *registry_, *job);
  const auto stop = job->stop_requested();
  if (made.ok() && !stop.has_value()) return true;
  job->Finish(made, stop.value_or(v1::CompileJob::STOP_ERROR));
  return false;
}

absl::Status CompileWorkers::Serve(CompileJob& job, BuiltPlan built) {
  if (job.for_taps()) {
    const std::shared_ptr<PlanSlot> slot = job.slot();
    return slot->Set(std::move(built.plan)) ? absl::OkStatus() : slot->view().error;
  }
  const std::shared_ptr<ModelVersion> version = job.version();
  if (built.origin == PlanOrigin::kRemembered) {
    return registry_->Restore(version, std::move(built.plan), std::move(built.kept));
  }
  for (KeptPlans::Kept& kept : built.kept) {
    version->kept().AddFound(kept.info, kept.made, "");
    version->kept().SetCosts(kept.info.plan_id(), std::move(kept.costs));
  }
  return registry_->Publish(version, std::move(built.plan));
}

bool CompileWorkers::HandOver(int index, const std::shared_ptr<CompileJob>& job,
                              std::shared_ptr<const PlanSearch::Found> serving) {
  if (!WorkerSearches::Wanted(*job)) {
    job->Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY);
    return false;
  }
  job->Enter(v1::CompileJob::SEARCHING, 96, "waits for its search to begin");
  {
    MutexLock lock(mu_);
    // Whoever stops the job from here on finds it.
    if (!stopping_ && !job->stop_requested().has_value()) {
      AtWork* least = &at_work_[index];
      for (AtWork& worker : at_work_) {
        if (worker.searches < least->searches) least = &worker;
      }
      least->built.push_back({job, std::move(serving)});
      ++least->searches;
      return true;
    }
  }
  job->Finish(absl::OkStatus(), job->stop_requested().value_or(v1::CompileJob::STOP_SHUTDOWN));
  return false;
}

void CompileWorkers::EndWithoutPlan(CompileJob& job, const absl::Status& status, int64_t ms) {
  const std::shared_ptr<TapPlan> tapped = job.tapped();
  const std::shared_ptr<PlanSlot> slot = job.slot();
  const auto stop = job.stop_requested();
  if (!stop.has_value()) {
    LogError("compile job failed", {{"job", job.id()},
                                    {"model", job.version()->name()},
                                    {"version", job.version()->version()},
                                    {"taps", TapsText(tapped.get())},
                                    {"ms", ms},
                                    {"error", status.ToString()}});
    slot->Fail(status);
    job.Finish(status, v1::CompileJob::STOP_ERROR);
    return;
  }
  LogInfo("compile job stopped", {{"job", job.id()},
                                  {"model", job.version()->name()},
                                  {"taps", TapsText(tapped.get())},
                                  {"ms", ms}});
  if (*stop == v1::CompileJob::STOP_CANCELLED) slot->Fail(WasCancelled(job, tapped.get()));
  job.Finish(absl::OkStatus(), *stop);
}

}  // namespace athanor
