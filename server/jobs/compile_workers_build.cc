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
  if (std::optional<JobPlan> incomplete = TakePostponed(*job)) {
    return RunPostponed(index, job, *std::move(incomplete));
  }
  // A plan found by a search is not replaced by the baseline: the new search goes on from it. The
  // plan that a version is pinned to is never replaced. No plan is replaced for a search whose
  // plans will not serve, or for one that nobody asked for.
  if (tapped == nullptr && before != nullptr &&
      (before->compiled->searched() || !version.pinned_plan().empty() ||
       job->policy().use != v1::SearchOptions::SERVE ||
       (job->policy().automatic && !policies_.BetterKept(version, job->policy())))) {
    if (!MakeBuckets(index, job)) return false;
    // At start such a job is made for the boxes alone.
    const bool boxes = version.plans().grid()->size() > 1;
    if (!boxes || !job->policy().automatic ||
        WorkerSearches::Due(keeper_, version, job->policy())) {
      return HandOver(index, job, before->compiled);
    }
    job->FinishRestored(*before);
    return false;
  }
  watch.Lap();
  BuildTimes times;
  absl::StatusOr<JobPlan> built = BuildPlan(ToolsOf(index), *job, &times);
  const int64_t ms = watch.Lap();
  if (!built.ok()) {
    EndWithoutPlan(*job, built.status(), ms);
    return false;
  }
  if (built->waits.has_value()) return Park(job, *std::move(built->waits));
  return ServeAndGoOn(index, job, *std::move(built), times, ms);
}

JobTools CompileWorkers::ToolsOf(int index) {
  return {*workers_[index]->backend, loader_, keeper_, registry_->metrics().server(),
          backends_.cache()};
}

bool CompileWorkers::ServeAndGoOn(int index, const std::shared_ptr<CompileJob>& job, JobPlan built,
                                  const BuildTimes& times, int64_t ms) {
  ModelVersion& version = *job->version();
  const std::shared_ptr<TapPlan> tapped = job->tapped();
  const std::shared_ptr<const ServedPlan> plan = built.loaded;
  const PlanOrigin origin = built.origin;
  const absl::Status served = Serve(*job, built);
  const bool serves = served.ok();
  LetOthersFind(std::move(built.lease));
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
           {"plan", plan->id()},
           {"origin", OriginText(origin)},
           {"kernels", state.kernels_total()},
           {"from_cache", state.kernels_from_cache()},
           {"ms", ms},
           {"lower_ms", times.lower},
           {"kernels_ms", times.kernels},
           {"check_ms", times.check},
           {"load_ms", times.load}});
  if (serves && built.incomplete()) return Postpone(job, std::move(built));
  built = {};
  if (serves && tapped == nullptr) {
    if (!MakeBuckets(index, job)) return false;
    const bool idle = origin == PlanOrigin::kRemembered && !WorkerSearches::Wanted(*job);
    const bool searched = origin != PlanOrigin::kLowered && WorkerSearches::Wanted(*job) &&
                          !WorkerSearches::Due(keeper_, version, job->policy());
    if (!idle && !searched) return HandOver(index, job, plan->compiled);
    job->FinishRestored(*plan);
    return false;
  }
  const bool deleted = !serves && job->slot()->plan() == nullptr;
  job->Finish(absl::OkStatus(),
              deleted ? v1::CompileJob::STOP_MODEL_DELETED : v1::CompileJob::STOP_BASELINE_ONLY);
  return false;
}

bool CompileWorkers::Postpone(const std::shared_ptr<CompileJob>& job, JobPlan incomplete) {
  incomplete.loaded = nullptr;  // it serves
  job->Update([&](v1::CompileJob& state) {
    state.set_phase(v1::CompileJob::QUEUED);
    state.set_message(absl::StrCat("the baseline serves until plan ", incomplete.chosen->id(),
                                   " has the ", incomplete.chosen->missing.size(),
                                   " kernels that are not in the cache"));
  });
  {
    MutexLock lock(mu_);
    // Whoever stops the job from here on finds it in the queue, behind jobs whose callers wait for
    // a first plan.
    if (!stopping_ && !job->stop_requested().has_value()) {
      postponed_.emplace(job.get(), std::move(incomplete));
      queue_.insert(queue_.end() - static_cast<std::ptrdiff_t>(old_), job);
      return true;
    }
  }
  job->Finish(absl::OkStatus(), job->stop_requested().value_or(v1::CompileJob::STOP_SHUTDOWN));
  return false;
}

std::optional<JobPlan> CompileWorkers::TakePostponed(const CompileJob& job) {
  MutexLock lock(mu_);
  const auto found = postponed_.find(&job);
  if (found == postponed_.end()) return std::nullopt;
  JobPlan incomplete = std::move(found->second);
  postponed_.erase(found);
  return incomplete;
}

bool CompileWorkers::RunPostponed(int index, const std::shared_ptr<CompileJob>& job,
                                  JobPlan incomplete) {
  const std::shared_ptr<const ServedPlan> before = job->slot()->plan();
  const std::string plan_id = incomplete.chosen->id();
  Stopwatch watch;
  BuildTimes times;
  absl::StatusOr<JobPlan> built = CompletePlan(ToolsOf(index), *job, std::move(incomplete), &times);
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
  return HandOver(index, job, before->compiled);
}

bool CompileWorkers::MakeBuckets(int index, const std::shared_ptr<CompileJob>& job) {
  const ModelVersion& version = *job->version();
  // The pinned plan serves all sizes, except boxes that are pinned themselves.
  if (!version.pinned_plan().empty() && !job->buckets().has_value() &&
      version.plans().pinned_boxes().empty()) {
    return true;
  }
  const JobTools tools = ToolsOf(index);
  const BucketTools buckets = {
      .make = [&](const Graph& graph) { return MakePlans(tools, *job, graph); },
      .pinned = [&](const Graph& graph,
                    const std::string& id) { return FindPinned(tools, *job, graph, id); },
      .load =
          [&](const Graph& graph, std::shared_ptr<const CompiledPlan> plan) {
            return loader_.Load(version, graph, std::move(plan));
          },
      .pool = backends_.pool(&registry_->ledger()),
      .max_buckets = options_.max_buckets};
  const absl::Status made = BuildBuckets(buckets, *registry_, *job);
  const auto stop = job->stop_requested();
  if (made.ok() && !stop.has_value()) return true;
  job->Finish(made, stop.value_or(v1::CompileJob::STOP_ERROR));
  return false;
}

absl::Status CompileWorkers::Serve(CompileJob& job, const JobPlan& built) {
  if (job.for_taps()) {
    const std::shared_ptr<PlanSlot> slot = job.slot();
    return slot->Set(built.loaded) ? absl::OkStatus() : slot->view().error;
  }
  const std::shared_ptr<ModelVersion> version = job.version();
  if (built.origin == PlanOrigin::kRemembered) {
    std::vector<KeptPlan> whole;
    for (const KeptPlan& kept : built.kept) {
      if (kept.plan->whole()) whole.push_back(kept);
    }
    return registry_->Restore(version, built.loaded, std::move(whole));
  }
  for (const KeptPlan& kept : built.kept) {
    if (built.incomplete()) break;  // what serves meanwhile
    version->plans().Keep(nullptr, BucketGrid::kFullRange, kept.plan);
    version->plans().SetCosts(nullptr, BucketGrid::kFullRange, kept.plan->id(), kept.costs);
  }
  return registry_->Publish(version, built.loaded);
}

bool CompileWorkers::HandOver(int index, const std::shared_ptr<CompileJob>& job,
                              std::shared_ptr<const CompiledPlan> serving) {
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
