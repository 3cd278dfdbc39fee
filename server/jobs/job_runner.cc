#include "server/jobs/job_runner.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"
#include "server/jobs/bucket_builder.h"

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

void EndWithoutPlan(CompileJob& job, const absl::Status& status, int64_t ms) {
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

JobRunner::GoOn JobRunner::Run(const std::shared_ptr<CompileJob>& job, JobRest rest) {
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
      registry_.Verify(version, [&] { return job->stop_requested().has_value(); });
  if (!whole.ok()) {
    EndWithoutPlan(*job, whole, watch.Lap());
    return {};
  }
  if (auto* boxes = std::get_if<BoxesLeft>(&rest)) return MakeBoxes(*job, std::move(*boxes));
  if (auto* plan = std::get_if<ChosenPlan>(&rest)) return Complete(job, std::move(*plan));
  // A plan found by a search is not replaced by the baseline: the new search goes on from it. The
  // plan that a version is pinned to is never replaced. No plan is replaced for a search whose
  // plans will not serve, or for one that nobody asked for.
  if (tapped == nullptr && before != nullptr &&
      (before->compiled->searched() || !version.pinned_plan().empty() ||
       job->policy().use != v1::SearchOptions::SERVE ||
       (job->policy().automatic && !policies_.BetterKept(version, job->policy())))) {
    // At start such a job is made for the boxes alone.
    const bool boxes = version.plans().grid()->size() > 1;
    return LeaveBoxes(*job, {.search = !boxes || !job->policy().automatic ||
                                       policies_.Due(version, job->policy())});
  }
  watch.Lap();
  BuildTimes times;
  absl::StatusOr<PlanOrWait> built = BuildPlan(tools_, *job, &times);
  const int64_t ms = watch.Lap();
  if (!built.ok()) {
    EndWithoutPlan(*job, built.status(), ms);
    return {};
  }
  if (auto* wait = std::get_if<LeaseWait>(&*built)) return std::move(*wait);
  return ServeAndGoOn(job, std::get<JobPlan>(*std::move(built)), times, ms);
}

JobRunner::GoOn JobRunner::ServeAndGoOn(const std::shared_ptr<CompileJob>& job, JobPlan built,
                                        const BuildTimes& times, int64_t ms) {
  ModelVersion& version = *job->version();
  const std::shared_ptr<TapPlan> tapped = job->tapped();
  const std::shared_ptr<const ServedPlan> plan = built.loaded;
  const PlanOrigin origin = built.chosen.origin;
  const absl::Status served = Serve(*job, built);
  const bool serves = served.ok();
  ReleaseOnceWritten(tools_.cache, &built.lease);
  if (absl::IsFailedPrecondition(served)) {
    // Its weights are damaged. The slot has reported that since it was detected, or waits for the
    // job of the upload that replaced them.
    LogError("plan made, not served", {{"job", job->id()},
                                       {"model", version.name()},
                                       {"version", version.version()},
                                       {"error", served.message()}});
    job->Finish(served, v1::CompileJob::STOP_ERROR);
    return {};
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
  if (serves && built.incomplete()) return JobRest(std::move(built.chosen));
  built = {};
  if (serves && tapped == nullptr) {
    const bool idle =
        origin == PlanOrigin::kRemembered && !SearchPolicies::Wanted(version, job->policy());
    const bool searched = origin != PlanOrigin::kLowered &&
                          SearchPolicies::Wanted(version, job->policy()) &&
                          !policies_.Due(version, job->policy());
    return LeaveBoxes(*job, {.search = !idle && !searched});
  }
  const bool deleted = !serves && job->slot()->plan() == nullptr;
  job->Finish(absl::OkStatus(),
              deleted ? v1::CompileJob::STOP_MODEL_DELETED : v1::CompileJob::STOP_BASELINE_ONLY);
  return {};
}

JobRunner::GoOn JobRunner::Complete(const std::shared_ptr<CompileJob>& job, ChosenPlan incomplete) {
  const std::shared_ptr<const ServedPlan> before = job->slot()->plan();
  const std::string plan_id = incomplete.plan->id();
  Stopwatch watch;
  BuildTimes times;
  absl::StatusOr<JobPlan> built = CompletePlan(tools_, *job, std::move(incomplete), &times);
  const int64_t ms = watch.Lap();
  if (built.ok()) return ServeAndGoOn(job, *std::move(built), times, ms);
  if (job->stop_requested().has_value() || before == nullptr) {
    EndWithoutPlan(*job, built.status(), ms);
    return {};
  }
  job->NoteWhy(std::string(built.status().message()));
  LogWarn("a stored plan does not take the baseline's place",
          {{"job", job->id()},
           {"model", job->model()},
           {"plan", plan_id},
           {"error", built.status().ToString()}});
  return LeaveBoxes(*job, {});
}

JobRunner::GoOn JobRunner::LeaveBoxes(CompileJob& job, BoxesLeft boxes) {
  const ModelVersion& version = *job.version();
  const bool any = version.plans().grid()->size() > 1 || job.buckets().has_value();
  // The pinned plan serves all sizes, except boxes that are pinned themselves.
  const bool only_pinned = !version.pinned_plan().empty() && !job.buckets().has_value() &&
                           version.plans().pinned_boxes().empty();
  if (!any || only_pinned) return AfterBoxes(job, boxes);
  return JobRest(std::move(boxes));
}

JobRunner::GoOn JobRunner::AfterBoxes(CompileJob& job, const BoxesLeft& boxes) {
  // Another plan may serve by now, or none: weights can be found damaged, and models deleted.
  const std::shared_ptr<const ServedPlan> serving = job.version()->plan();
  if (serving == nullptr) {
    job.Finish(absl::OkStatus(), job.stop_requested().value_or(v1::CompileJob::STOP_MODEL_DELETED));
    return {};
  }
  if (boxes.search) return serving->compiled;
  job.FinishRestored(*serving);
  return {};
}

JobRunner::GoOn JobRunner::MakeBoxes(CompileJob& job, BoxesLeft boxes) {
  const ModelVersion& version = *job.version();
  const v1::CompileJob before = job.state();
  job.Enter(v1::CompileJob::PREPARING, 95, "makes the plans of its boxes");
  const BucketTools buckets = {
      .make = [&](const Graph& graph) { return MakePlans(tools_, job, graph); },
      .pinned = [&](const Graph& graph,
                    const std::string& id) { return FindPinned(tools_, job, graph, id); },
      .load =
          [&](const Graph& graph, std::shared_ptr<const CompiledPlan> plan) {
            return tools_.loader.Load(version, graph, std::move(plan));
          },
      .pool = backends_.pool(version.device(), &registry_.ledger()),
      .max_buckets = options_.max_buckets};
  const absl::Status made = BuildBuckets(buckets, registry_, job);
  const auto stop = job.stop_requested();
  if (made.ok() && !stop.has_value()) return AfterBoxes(job, boxes);
  if (!absl::IsAborted(made) || stop.has_value()) {
    job.Finish(made, stop.value_or(v1::CompileJob::STOP_ERROR));
    return {};
  }
  // Counts them again when it comes back; the cache has what was made.
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(before.kernels_total());
    state.set_kernels_done(before.kernels_done());
    state.set_kernels_from_cache(before.kernels_from_cache());
    state.set_buckets_done(before.buckets_done());
  });
  return JobRest(std::move(boxes));
}

absl::Status JobRunner::Serve(CompileJob& job, const JobPlan& built) {
  if (job.for_taps()) {
    const std::shared_ptr<PlanSlot> slot = job.slot();
    return slot->Set(built.loaded) ? absl::OkStatus() : slot->view().error;
  }
  const std::shared_ptr<ModelVersion> version = job.version();
  if (built.chosen.origin == PlanOrigin::kRemembered) {
    std::vector<KeptPlan> whole;
    for (const KeptPlan& kept : built.chosen.kept) {
      if (kept.plan->whole()) whole.push_back(kept);
    }
    return registry_.publisher().Restore(version, built.loaded, std::move(whole));
  }
  for (const KeptPlan& kept : built.chosen.kept) {
    if (built.incomplete()) break;  // what serves meanwhile
    version->plans().Keep(nullptr, BucketGrid::kFullRange, kept.plan);
    version->plans().SetCosts(nullptr, BucketGrid::kFullRange, kept.plan->id(), kept.costs);
  }
  return registry_.publisher().Publish(version, built.loaded);
}

}  // namespace athanor
