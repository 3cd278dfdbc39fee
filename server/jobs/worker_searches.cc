#include "server/jobs/worker_searches.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"

namespace athanor {
namespace {

using Clock = SearchTime::Clock;

// Time that a search gets before it makes room for one that waits in line. A search with less time
// left goes on until its end.
constexpr std::chrono::seconds kShare(60);

double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

bool WorkerSearches::Wanted(const CompileJob& job) {
  const SearchPolicy& policy = job.policy();
  // A pinned version is served by its pinned plan, whatever the search finds.
  const bool in_vain =
      policy.use == v1::SearchOptions::SERVE && !job.version()->pinned_plan().empty();
  return policy.budget.search && !in_vain;
}

bool WorkerSearches::BringStoppedForward() {
  const auto stopped = std::find_if(searches_.begin(), searches_.end(), [](const Searching& s) {
    return s.job->stop_requested().has_value() || s.time.Over(Clock::now());
  });
  if (stopped == searches_.end()) return false;
  std::rotate(searches_.begin(), stopped, stopped + 1);
  return true;
}

Clock::time_point WorkerSearches::FirstEnd() const {
  Clock::time_point first = Clock::time_point::max();
  for (const Searching& s : searches_) first = std::min(first, s.time.end());
  return first;
}

std::optional<LeaseWait> WorkerSearches::Start(const std::shared_ptr<CompileJob>& job,
                                               std::shared_ptr<const CompiledPlan> serving) {
  if (const auto stop = job->stop_requested()) {
    job->Finish(absl::OkStatus(), *stop);
    return std::nullopt;
  }
  // The version may have been pinned since its plan was built.
  if (!Wanted(*job)) {
    job->Finish(absl::OkStatus(), v1::CompileJob::STOP_BASELINE_ONLY);
    return std::nullopt;
  }
  Lease lease;
  if (auto wait = TakeLease(job, &lease, &serving)) return wait;
  if (job->finished()) return std::nullopt;
  ModelVersion& version = *job->version();
  const SearchPolicy& policy = job->policy();
  if (policy.use == v1::SearchOptions::COMPARE) {
    if (auto first = version.plans().view().full().first(); first != nullptr)
      serving = std::move(first);
  }
  const auto due = [&](const Graph& graph) { return PartDue(keeper_, version, policy, graph); };
  Searching s{job, SearchParts(version, policy, due)};
  if (!s.parts.full_range()) {
    s.contest = BoxContest(version, s.parts.grid(), s.parts.bucket());
    if (s.contest.leader() != nullptr) serving = s.contest.leader();
  }
  if (absl::Status begun = Begin(s, *serving); !begun.ok()) {
    if (const auto stop = job->stop_requested()) {
      job->Finish(absl::OkStatus(), *stop);
      return std::nullopt;
    }
    // A backend without searches has not failed.
    const bool none = absl::IsUnimplemented(begun);
    LogWarn("no search", {{"model", version.name()}, {"error", begun.ToString()}});
    job->Finish(begun,
                none ? v1::CompileJob::STOP_BASELINE_ONLY : v1::CompileJob::STOP_SEARCH_FAILED);
    return std::nullopt;
  }
  // Plans it finds are stored under this compiler, which may differ from the one before the start.
  if (const auto machine = backend_.Machine(); machine.ok()) keeper_.SetMachine(*machine);
  job->Update([](v1::CompileJob& state) { state.clear_waits_for(); });
  job->Enter(v1::CompileJob::SEARCHING, 96, "looks for a faster plan");
  s.lease = std::move(lease);
  searches_.push_back(std::move(s));
  return std::nullopt;
}

absl::Status WorkerSearches::Swap(const Searching& s, std::shared_ptr<const CompiledPlan> found) {
  const std::shared_ptr<ModelVersion> held = s.job->version();
  ModelVersion& version = *held;
  const std::string pinned = version.pinned_plan();
  if (!pinned.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(version.Describe(), " is pinned to plan ", pinned));
  }
  ASSIGN_OR_RETURN(auto served, loader_.Load(version, s.parts.graph(), std::move(found)));
  if (s.parts.full_range()) return registry_.Publish(held, std::move(served));
  return registry_.PublishBox(version, s.parts.grid(), s.parts.bucket(), std::move(served));
}

absl::Status WorkerSearches::Take(const Searching& s,
                                  const std::shared_ptr<const CompiledPlan>& found) {
  ModelVersion& version = *s.job->version();
  switch (s.job->policy().use) {
    case v1::SearchOptions::COMPARE:
      return absl::OkStatus();
    case v1::SearchOptions::KEEP:
      if (version.plan() == nullptr) {
        return absl::AbortedError(absl::StrCat(version.Describe(), " was deleted"));
      }
      if (s.parts.full_range()) {
        registry_.Keep(version, found);
      } else {
        version.plans().Keep(s.parts.grid(), s.parts.bucket(), found);
      }
      return absl::OkStatus();
    default:
      return Swap(s, found);
  }
}

void WorkerSearches::Remember(const Searching& s, const CompiledPlan& found) {
  const ModelVersion& version = *s.job->version();
  if (s.job->policy().use == v1::SearchOptions::COMPARE || !keeper_.ready()) return;
  keeper_.PutFound(keeper_.KeyOf(version, s.parts.graph(), found.how), found, s.from,
                   s.search->progress().best());
}

void WorkerSearches::RememberEnd(const Searching& s, v1::CompileJob::StopReason reason) {
  switch (reason) {
    case v1::CompileJob::STOP_ROOFLINE:
    case v1::CompileJob::STOP_STAGNATION:
    case v1::CompileJob::STOP_EXHAUSTED:
      break;
    case v1::CompileJob::STOP_BUDGET:
      // A search that got no time, because of others, has no result.
      if (s.search->progress().candidates() > 0) break;
      return;
    default:
      return;
  }
  if (!keeper_.ready()) return;
  const ModelVersion& version = *s.job->version();
  const SearchPolicy& policy = s.job->policy();
  keeper_.PutSearch(keeper_.KeyOf(version, s.parts.graph(), policy.ToProto()), policy,
                    {.stop = reason,
                     .seconds = Seconds(s.time.Used(Clock::now())),
                     .candidates = s.search->progress().candidates()});
}

void WorkerSearches::ShowProgress(const Searching& s) {
  const double seconds = Seconds(s.time.Used(Clock::now()));
  const SearchBudget budget = s.parts.share();
  const v1::SearchProgress& progress = s.search->progress();
  auto pictures = s.search->TakePictures();
  if (!pictures.empty() && s.parts.full_range()) s.job->version()->SetPictures(std::move(pictures));
  double done = 0;
  if (budget.time.count() > 0) done = std::min(1.0, seconds / Seconds(budget.time));
  if (budget.candidates > 0) {
    done = std::min(
        1.0, static_cast<double>(progress.candidates()) / static_cast<double>(budget.candidates));
  }
  done = (s.parts.ended() + done) / s.parts.total();
  const std::string bucket = s.parts.Text();
  s.job->Update([&](v1::CompileJob& state) {
    *state.mutable_search() = progress;
    state.mutable_search()->set_seconds(seconds);
    state.set_search_bucket(bucket);
    state.set_percent(96 + static_cast<float>(3.9 * done));
    state.set_message(absl::StrFormat("%s%d candidates, %.1f %% of the baseline's time",
                                      bucket.empty() ? "" : absl::StrCat("bucket ", bucket, ": "),
                                      progress.candidates(), 100 * progress.best()));
  });
}

absl::Status WorkerSearches::AtEnd(Searching& s) {
  absl::Status status;
  if (s.contest.open()) status = Contest(s, /*at_end=*/true);
  if (!status.ok()) return status;
  if (s.job->policy().use != v1::SearchOptions::SERVE && s.parts.full_range()) status = Compare(s);
  if (!status.ok() || s.job->stop_requested()) return status;
  status = NoteCosts(s);
  if (status.ok() || (absl::IsAborted(status) && !s.last_try)) return status;
  LogWarn("steps of a plan not measured",
          {{"model", s.job->version()->name()}, {"error", status.ToString()}});
  return absl::OkStatus();
}

absl::Status WorkerSearches::Compare(Searching& s) {
  const std::shared_ptr<const ServedPlan> serving = s.job->version()->plan();
  if (serving == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(v1::PlanComparison comparison, s.search->CompareWith(*serving->compiled));
  s.job->Update([&](v1::CompileJob& state) { *state.mutable_comparison() = comparison; });
  return absl::OkStatus();
}

absl::Status WorkerSearches::NoteCosts(Searching& s) {
  ModelVersion& version = *s.job->version();
  const std::shared_ptr<const ServedPlan> serving = Serving(s);
  if (serving == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<v1::PlanCost> costs, s.search->Costs(*serving->compiled));
  if (keeper_.ready()) {
    keeper_.PutCosts(keeper_.KeyOf(version, s.parts.graph(), serving->compiled->how), serving->id(),
                     costs);
  }
  version.plans().SetCosts(s.parts.grid(), s.parts.bucket(), serving->id(),
                           std::make_shared<std::vector<v1::PlanCost>>(std::move(costs)));
  return absl::OkStatus();
}

void WorkerSearches::TakeFound(Searching& s, CompiledPlan found) {
  const CompileJob& job = *s.job;
  found.how = job.policy().ToProto();
  const auto made = std::make_shared<const CompiledPlan>(std::move(found));
  const absl::Status taken = Take(s, made);
  s.search->Taken(taken);
  if (!taken.ok()) return;
  s.contest = {};  // the new plan is faster than the leader
  Remember(s, *made);
  LogInfo("plan taken", {{"job", job.id()},
                         {"model", job.version()->name()},
                         {"version", job.version()->version()},
                         {"bucket", s.parts.Text()},
                         {"plan", made->id()},
                         {"use", v1::SearchOptions::Use_Name(job.policy().use)},
                         {"share_of_baseline", s.search->progress().best()}});
}

std::optional<WorkerSearches::End> WorkerSearches::Step(Searching& s) {
  CompileJob& job = *s.job;
  const auto start = Clock::now();
  const End over{v1::CompileJob::STOP_BUDGET, {}};
  if (!s.time.begun()) s.time.Begin(s.parts.share().time, start);
  if (s.time.Over(start)) return over;
  s.search->Until(s.time.end());
  absl::StatusOr<PlanSearch::Step> step = PlanSearch::Step{};
  // Until requests leave gaps to measure in, the serving plan stays.
  const absl::Status contest =
      s.contest.open() && s.begun ? Contest(s, /*at_end=*/false) : absl::OkStatus();
  if (contest.ok()) step = s.search->Next();
  s.begun |= step.ok();
  if (step.ok() && step->found.has_value()) TakeFound(s, *std::move(step->found));
  const bool at_end = step.ok() && step->stop.has_value();
  const bool late = s.time.Over(Clock::now());
  const absl::Status status = at_end && !late ? AtEnd(s) : step.status();
  s.turns += Clock::now() - start;
  ShowProgress(s);
  if (const auto stop = job.stop_requested()) return End{*stop, {}};
  // A build may have interfered, which is finished by the next step; the search then reports its
  // end again.
  if (at_end && absl::IsAborted(status) && !std::exchange(s.last_try, true)) return std::nullopt;
  if (!status.ok() && !(absl::IsAborted(status) && s.time.Over(Clock::now()))) {
    // The serving plan stays: an error of the search does not fail the job.
    LogWarn("search ended", {{"model", job.version()->name()}, {"error", status.ToString()}});
    return End{v1::CompileJob::STOP_SEARCH_FAILED, status};
  }
  if (step->stop.has_value()) return End{*step->stop, {}};
  const auto now = Clock::now();
  if (s.time.Over(now)) return over;
  if (s.time.MustFinish(now, TimeOfAPlan(s.search->progress()))) s.search->Finish();
  return std::nullopt;
}

void WorkerSearches::Step() {
  Searching s = std::move(searches_.front());
  searches_.pop_front();
  std::optional<End> end;
  if (const auto stop = s.job->stop_requested()) end = End{*stop, {}};
  if (!end) end = Step(s);
  if (!end) return TakeTurns(std::move(s));
  const v1::SearchProgress& progress = s.search->progress();
  LogInfo("search ended", {{"job", s.job->id()},
                           {"model", s.job->version()->name()},
                           {"version", s.job->version()->version()},
                           {"bucket", s.parts.Text()},
                           {"reason", v1::CompileJob::StopReason_Name(end->reason)},
                           {"budget", ToText(s.job->policy().budget)},
                           {"seed", s.job->policy().seed},
                           {"seconds", Seconds(s.time.Used(Clock::now()))},
                           {"candidates", progress.candidates()},
                           {"failed", progress.candidates_failed()},
                           {"plans_taken", progress.plans_taken()},
                           {"share_of_baseline", progress.best()}});
  RememberEnd(s, end->reason);
  if (GoOn(s, *end)) return TakeTurns(std::move(s));
  LetOthersGoOn(s.lease);
  s.job->Finish(s.first_end->error, s.first_end->reason);
}

void WorkerSearches::TakeTurns(Searching s) {
  const auto soon = Clock::now() + kShare;
  // `searches_` does not contain this search here. Searches with little time left come first.
  const size_t pressed =
      std::count_if(searches_.begin(), searches_.end(), [&](const Searching& other) {
        return other.time.end() <= soon && other.time.end() <= s.time.end();
      });
  const size_t most = backend_.most_searches();
  const bool waited_for = searches_.size() >= most;
  const bool had_its_share = waited_for && s.turns >= kShare;
  size_t place = std::max(pressed, std::min(searches_.size(), most - 1));
  if (had_its_share) {
    s.turns = {};
    place = searches_.size();
  }
  if (s.time.end() <= soon) place = pressed;
  searches_.insert(searches_.begin() + static_cast<std::ptrdiff_t>(place), std::move(s));
}

}  // namespace athanor
