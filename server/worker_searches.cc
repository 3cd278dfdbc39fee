#include "server/worker_searches.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/log.h"
#include "server/plan_loader.h"

namespace athanor {
namespace {

double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

void WorkerSearches::Start(const std::shared_ptr<CompileJob>& job,
                           std::shared_ptr<const PlanSearch::Found> serving) {
  ModelVersion& version = *job->version();
  // A pinned version is served by the plan it is pinned to, whatever there may be.
  if (job->budget() <= std::chrono::milliseconds(0) || !version.pinned_plan().empty()) {
    job->Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY);
    return;
  }
  auto search = backend_.NewSearch(version.graph(), *serving, {});
  if (!search.ok()) {
    if (const auto stop = job->stop_requested()) {
      job->Finish(absl::OkStatus(), *stop);
      return;
    }
    LogWarn("no search", {{"model", version.name()}, {"error", search.status().ToString()}});
    job->Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY);
    return;
  }
  job->Enter(v1::CompileJob::SEARCHING, 96, "looks for a faster plan");
  searches_.push_back({job, *std::move(search), {}, job->budget()});
}

bool WorkerSearches::Swap(CompileJob& job, const PlanSearch::Found& found) {
  ModelVersion& version = *job.version();
  if (!version.pinned_plan().empty()) return false;
  auto served = LoadPlan(backend_, registry_, version, version.graph(),
                         std::make_shared<const PlanSearch::Found>(found), options_.contexts);
  if (!served.ok()) {
    LogWarn("plan found, not served", {{"model", version.name()},
                                       {"plan", found.plan.plan_id()},
                                       {"error", served.status().ToString()}});
    return false;
  }
  return registry_.Publish(job.version(), *std::move(served));
}

std::optional<v1::CompileJob::StopReason> WorkerSearches::Step(Searching& s) {
  CompileJob& job = *s.job;
  const auto start = std::chrono::steady_clock::now();
  absl::StatusOr<PlanSearch::Step> step = s.search->Next();
  if (step.ok() && step->found.has_value()) {
    const bool taken = Swap(job, *step->found);
    s.search->Taken(taken);
    if (taken) {
      LogInfo("plan swapped in", {{"job", job.id()},
                                  {"model", job.version()->name()},
                                  {"version", job.version()->version()},
                                  {"plan", step->found->plan.plan_id()},
                                  {"share_of_baseline", s.search->progress().best()}});
    }
  }
  s.used += std::chrono::steady_clock::now() - start;
  const double seconds = Seconds(s.used);
  job.Update([&](v1::CompileJob& state) {
    *state.mutable_search() = s.search->progress();
    state.mutable_search()->set_seconds(seconds);
    state.set_percent(96 + static_cast<float>(3.9 * std::min(1.0, seconds / Seconds(s.budget))));
    state.set_message(absl::StrFormat("%d candidates, %.1f %% of the baseline's time",
                                      s.search->progress().candidates(),
                                      100 * s.search->progress().best()));
  });
  if (const auto stop = job.stop_requested()) return stop;
  if (!step.ok()) {
    // What serves, serves on: the search's end is no failure of the job.
    LogWarn("search ended",
            {{"model", job.version()->name()}, {"error", step.status().ToString()}});
    return v1::CompileJob::STOP_SEARCH_FAILED;
  }
  if (step->stop.has_value()) return step->stop;
  if (s.used >= s.budget) s.search->Finish();
  return std::nullopt;
}

void WorkerSearches::Step() {
  Searching s = std::move(searches_.front());
  searches_.pop_front();
  std::optional<v1::CompileJob::StopReason> stop = s.job->stop_requested();
  if (!stop) stop = Step(s);
  if (!stop) {
    searches_.push_back(std::move(s));
    return;
  }
  const v1::SearchProgress& progress = s.search->progress();
  LogInfo("search ended", {{"job", s.job->id()},
                           {"model", s.job->version()->name()},
                           {"version", s.job->version()->version()},
                           {"reason", v1::CompileJob::StopReason_Name(*stop)},
                           {"seconds", Seconds(s.used)},
                           {"candidates", progress.candidates()},
                           {"failed", progress.candidates_failed()},
                           {"plans_taken", progress.plans_taken()},
                           {"share_of_baseline", progress.best()}});
  s.job->Finish(absl::OkStatus(), *stop);
}

}  // namespace athanor
