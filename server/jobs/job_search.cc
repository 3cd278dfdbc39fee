#include "server/jobs/job_search.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"

namespace athanor {
namespace {

using Clock = SearchTime::Clock;

double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

JobSearch::JobSearch(const Tools& tools, std::shared_ptr<CompileJob> job)
    : tools_(tools),
      job_(std::move(job)),
      parts_(*job_->version(), job_->policy(), [this](const Graph& graph) {
        return tools_.policies.PartDue(*job_->version(), job_->policy(), graph);
      }) {}

absl::Status JobSearch::Start(std::shared_ptr<const CompiledPlan> serving) {
  const ModelVersion& version = *job_->version();
  if (job_->policy().use == v1::SearchOptions::COMPARE) {
    if (auto first = version.plans().view().full().first(); first != nullptr)
      serving = std::move(first);
  }
  if (!parts_.full_range()) {
    contest_ = BoxContest(version, parts_.grid(), parts_.bucket());
    if (contest_.leader() != nullptr) serving = contest_.leader();
  }
  return Begin(*serving);
}

absl::Status JobSearch::Begin(const CompiledPlan& serving) {
  const SearchPolicy& policy = job_->policy();
  PlanSearchOptions options;
  options.seed = policy.seed;
  options.max_candidates = parts_.share().candidates;
  options.mode = policy.budget.mode;
  options.disabled_rules.assign(policy.disabled_rules.begin(), policy.disabled_rules.end());
  options.approximate = policy.approximate;
  // A search to be compared with the baseline must not use stored recipes either.
  options.recipes = policy.use != v1::SearchOptions::COMPARE;
  ASSIGN_OR_RETURN(search_, tools_.backend.NewSearch(parts_.graph(), serving, options));
  from_ = serving.id();
  begun_ = last_try_ = false;
  return absl::OkStatus();
}

bool JobSearch::Step() {
  std::optional<End> end;
  if (const auto stop = job_->stop_requested()) end = End{*stop, {}};
  if (!end) end = RunStep();
  if (!end) return true;
  const v1::SearchProgress& progress = search_->progress();
  LogInfo("search ended", {{"job", job_->id()},
                           {"model", job_->version()->name()},
                           {"version", job_->version()->version()},
                           {"bucket", parts_.Text()},
                           {"reason", v1::CompileJob::StopReason_Name(end->reason)},
                           {"budget", ToText(job_->policy().budget)},
                           {"seed", job_->policy().seed},
                           {"seconds", Seconds(time_.Used(Clock::now()))},
                           {"candidates", progress.candidates()},
                           {"failed", progress.candidates_failed()},
                           {"plans_taken", progress.plans_taken()},
                           {"share_of_baseline", progress.best()}});
  RememberEnd(end->reason);
  return NextPart(*end);
}

void JobSearch::Finish() { job_->Finish(first_end_->error, first_end_->reason); }

std::optional<JobSearch::End> JobSearch::RunStep() {
  CompileJob& job = *job_;
  const auto start = Clock::now();
  const End over{v1::CompileJob::STOP_BUDGET, {}};
  if (!time_.begun()) time_.Begin(parts_.share().time, start);
  if (time_.Over(start)) return over;
  search_->Until(time_.end());
  absl::StatusOr<PlanSearch::Step> step = PlanSearch::Step{};
  // Until requests leave gaps to measure in, the serving plan stays.
  const absl::Status contest =
      contest_.open() && begun_ ? Contest(/*at_end=*/false) : absl::OkStatus();
  if (contest.ok()) step = search_->Next();
  begun_ |= step.ok();
  if (step.ok() && step->found.has_value()) TakeFound(*std::move(step->found));
  const bool at_end = step.ok() && step->stop.has_value();
  const bool late = time_.Over(Clock::now());
  const absl::Status status = at_end && !late ? AtEnd() : step.status();
  ShowProgress();
  if (const auto stop = job.stop_requested()) return End{*stop, {}};
  // A build may have interfered, which is finished by the next step; the search then reports its
  // end again.
  if (at_end && absl::IsAborted(status) && !std::exchange(last_try_, true)) return std::nullopt;
  if (!status.ok() && !(absl::IsAborted(status) && time_.Over(Clock::now()))) {
    // The serving plan stays: an error of the search does not fail the job.
    LogWarn("search ended", {{"model", job.version()->name()}, {"error", status.ToString()}});
    return End{v1::CompileJob::STOP_SEARCH_FAILED, status};
  }
  if (step->stop.has_value()) return End{*step->stop, {}};
  const auto now = Clock::now();
  if (time_.Over(now)) return over;
  if (time_.MustFinish(now, TimeOfAPlan(search_->progress()))) search_->Finish();
  return std::nullopt;
}

bool JobSearch::NextPart(const End& end) {
  const bool box = !parts_.full_range();
  if (!first_end_.has_value()) {
    first_end_ = end;
    first_bucket_ = parts_.Text();
    first_progress_ = job_->state().search();
  }
  int64_t candidates = search_->progress().candidates();
  job_->Update([&](v1::CompileJob& state) {
    state.set_buckets_searched(state.buckets_searched() + (box ? 1 : 0));
  });
  while (!job_->stop_requested().has_value() &&
         SearchPolicies::Wanted(*job_->version(), job_->policy())) {
    const auto now = SearchTime::Clock::now();
    parts_.End(time_.Used(now), std::exchange(candidates, 0));
    time_ = {};
    if (parts_.empty()) break;
    time_.Begin(parts_.share().time, now);
    const ModelVersion& version = *job_->version();
    contest_ = BoxContest(version, parts_.grid(), parts_.bucket());
    if (contest_.leader() == nullptr) break;  // the version was deleted
    const absl::Status begun = Begin(*contest_.leader());
    if (begun.ok()) return true;
    LogWarn("no search",
            {{"model", version.name()}, {"bucket", parts_.Text()}, {"error", begun.ToString()}});
  }
  // A finished job shows the result of the first part.
  if (const auto stop = job_->stop_requested()) first_end_ = End{*stop, {}};
  if (parts_.ended() > 0) {
    job_->Update([&](v1::CompileJob& state) {
      *state.mutable_search() = std::move(first_progress_);
      state.set_search_bucket(first_bucket_);
    });
  }
  return false;
}

void JobSearch::TakeFound(CompiledPlan found) {
  const CompileJob& job = *job_;
  found.how = job.policy().ToProto();
  const auto made = std::make_shared<const CompiledPlan>(std::move(found));
  const absl::Status taken = Take(made);
  search_->Taken(taken);
  if (!taken.ok()) return;
  contest_ = {};  // the new plan is faster than the leader
  Remember(*made);
  LogInfo("plan taken", {{"job", job.id()},
                         {"model", job.version()->name()},
                         {"version", job.version()->version()},
                         {"bucket", parts_.Text()},
                         {"plan", made->id()},
                         {"use", v1::SearchOptions::Use_Name(job.policy().use)},
                         {"share_of_baseline", search_->progress().best()}});
}

absl::Status JobSearch::Take(const std::shared_ptr<const CompiledPlan>& found) {
  ModelVersion& version = *job_->version();
  switch (job_->policy().use) {
    case v1::SearchOptions::COMPARE:
      return absl::OkStatus();
    case v1::SearchOptions::KEEP:
      if (version.plan() == nullptr) {
        return absl::AbortedError(absl::StrCat(version.Describe(), " was deleted"));
      }
      if (parts_.full_range()) {
        tools_.registry.publisher().Keep(version, found);
      } else {
        version.plans().Keep(parts_.grid(), parts_.bucket(), found);
      }
      return absl::OkStatus();
    default:
      return Swap(found);
  }
}

absl::Status JobSearch::Swap(std::shared_ptr<const CompiledPlan> found) {
  const std::shared_ptr<ModelVersion> held = job_->version();
  ModelVersion& version = *held;
  const std::string pinned = version.pinned_plan();
  if (!pinned.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(version.Describe(), " is pinned to plan ", pinned));
  }
  ASSIGN_OR_RETURN(auto served, tools_.loader.Load(version, parts_.graph(), std::move(found)));
  if (parts_.full_range()) return tools_.registry.publisher().Publish(held, std::move(served));
  return tools_.registry.publisher().PublishBox(version, parts_.grid(), parts_.bucket(),
                                                std::move(served));
}

void JobSearch::Remember(const CompiledPlan& found) {
  const ModelVersion& version = *job_->version();
  if (job_->policy().use == v1::SearchOptions::COMPARE || !tools_.keeper.ready(version)) return;
  tools_.keeper.PutFound(tools_.keeper.KeyOf(version, parts_.graph(), found.how), found, from_,
                         search_->progress().best());
}

void JobSearch::RememberEnd(v1::CompileJob::StopReason reason) {
  switch (reason) {
    case v1::CompileJob::STOP_ROOFLINE:
    case v1::CompileJob::STOP_STAGNATION:
    case v1::CompileJob::STOP_EXHAUSTED:
      break;
    case v1::CompileJob::STOP_BUDGET:
      // A search that got no time, because of others, has no result.
      if (search_->progress().candidates() > 0) break;
      return;
    default:
      return;
  }
  const ModelVersion& version = *job_->version();
  if (!tools_.keeper.ready(version)) return;
  const SearchPolicy& policy = job_->policy();
  tools_.keeper.PutSearch(tools_.keeper.KeyOf(version, parts_.graph(), policy.ToProto()), policy,
                          {.stop = reason,
                           .seconds = Seconds(time_.Used(Clock::now())),
                           .candidates = search_->progress().candidates()});
}

void JobSearch::ShowProgress() {
  const double seconds = Seconds(time_.Used(Clock::now()));
  const SearchBudget budget = parts_.share();
  const v1::SearchProgress& progress = search_->progress();
  auto pictures = search_->TakePictures();
  if (!pictures.empty() && parts_.full_range()) job_->version()->SetPictures(std::move(pictures));
  double done = 0;
  if (budget.time.count() > 0) done = std::min(1.0, seconds / Seconds(budget.time));
  if (budget.candidates > 0) {
    done = std::min(
        1.0, static_cast<double>(progress.candidates()) / static_cast<double>(budget.candidates));
  }
  done = (parts_.ended() + done) / parts_.total();
  const std::string bucket = parts_.Text();
  job_->Update([&](v1::CompileJob& state) {
    *state.mutable_search() = progress;
    state.mutable_search()->set_seconds(seconds);
    state.set_search_bucket(bucket);
    state.set_percent(96 + static_cast<float>(3.9 * done));
    state.set_message(absl::StrFormat("%s%d candidates, %.1f %% of the baseline's time",
                                      bucket.empty() ? "" : absl::StrCat("bucket ", bucket, ": "),
                                      progress.candidates(), 100 * progress.best()));
  });
}

absl::Status JobSearch::AtEnd() {
  absl::Status status;
  if (contest_.open()) status = Contest(/*at_end=*/true);
  if (!status.ok()) return status;
  if (job_->policy().use != v1::SearchOptions::SERVE && parts_.full_range()) status = Compare();
  if (!status.ok() || job_->stop_requested()) return status;
  status = NoteCosts();
  if (status.ok() || (absl::IsAborted(status) && !last_try_)) return status;
  LogWarn("steps of a plan not measured",
          {{"model", job_->version()->name()}, {"error", status.ToString()}});
  return absl::OkStatus();
}

absl::Status JobSearch::Contest(bool at_end) {
  ModelVersion& version = *job_->version();
  if (job_->policy().use != v1::SearchOptions::SERVE) {
    contest_ = {};  // the serving plan stays
    return absl::OkStatus();
  }
  absl::StatusOr<v1::PlanComparison> times = search_->CompareWith(*contest_.rival());
  if (absl::IsAborted(times.status()) && !last_try_) return times.status();
  if (!times.ok()) {
    LogWarn("plans of a bucket not compared", {{"model", version.name()},
                                               {"bucket", parts_.Text()},
                                               {"error", times.status().ToString()}});
    contest_ = {};
    return absl::OkStatus();
  }
  double share = 1;
  const bool other = contest_.Settle(*times, &share);
  LogInfo("plans of a bucket compared", {{"job", job_->id()},
                                         {"model", version.name()},
                                         {"version", version.version()},
                                         {"bucket", parts_.Text()},
                                         {"own", contest_.own()->id()},
                                         {"full_range", contest_.full()->id()},
                                         {"full_range_by_own", share},
                                         {"serves", contest_.leader()->id()}});
  if (!contest_.Serve(version)) return absl::OkStatus();  // it was deleted: the job is stopped
  if (tools_.keeper.ready(version)) {
    const CompiledPlan& full = *contest_.full();
    tools_.keeper.PutFound(tools_.keeper.KeyOf(version, parts_.graph(), full.how), full,
                           contest_.own()->id(), share);
  }
  if (!other || at_end) return absl::OkStatus();
  if (absl::Status begun = Begin(*contest_.leader()); !begun.ok()) {
    LogWarn("no search", {{"model", version.name()}, {"error", begun.ToString()}});
  }
  return absl::OkStatus();
}

absl::Status JobSearch::Compare() {
  const std::shared_ptr<const ServedPlan> serving = job_->version()->plan();
  if (serving == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(v1::PlanComparison comparison, search_->CompareWith(*serving->compiled));
  job_->Update([&](v1::CompileJob& state) { *state.mutable_comparison() = comparison; });
  return absl::OkStatus();
}

absl::Status JobSearch::NoteCosts() {
  ModelVersion& version = *job_->version();
  const std::shared_ptr<const ServedPlan> serving = Serving();
  if (serving == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<v1::PlanCost> costs, search_->Costs(*serving->compiled));
  if (tools_.keeper.ready(version)) {
    tools_.keeper.PutCosts(tools_.keeper.KeyOf(version, parts_.graph(), serving->compiled->how),
                           serving->id(), costs);
  }
  version.plans().SetCosts(parts_.grid(), parts_.bucket(), serving->id(),
                           std::make_shared<std::vector<v1::PlanCost>>(std::move(costs)));
  return absl::OkStatus();
}

std::shared_ptr<const ServedPlan> JobSearch::Serving() const {
  const ModelVersion& version = *job_->version();
  if (parts_.full_range()) return version.plan();
  const Plans::View view = version.plans().view();
  return view.grid == parts_.grid() ? view.box(parts_.bucket()).serving : nullptr;
}

}  // namespace athanor
