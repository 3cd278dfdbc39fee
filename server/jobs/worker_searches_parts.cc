// The searches of one job, part by part: the full range, then its boxes.
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/jobs/worker_searches.h"

namespace athanor {

bool WorkerSearches::PartDue(const PlanKeeper& keeper, const ModelVersion& version,
                             const SearchPolicy& policy, const Graph& graph) {
  if (!policy.automatic || !keeper.ready()) return true;
  return !keeper.SearchEnded(keeper.KeyOf(version, graph, policy.ToProto()), policy);
}

bool WorkerSearches::Due(const PlanKeeper& keeper, const ModelVersion& version,
                         const SearchPolicy& policy) {
  if (!policy.budget.search || !version.pinned_plan().empty()) return false;
  if (PartDue(keeper, version, policy, version.graph())) return true;
  const Plans::View view = version.plans().view();
  for (int bucket = 1; bucket < view.grid->size(); ++bucket) {
    if (!view.box(bucket).pinned.empty()) continue;
    const Graph graph = NarrowedTo(version.graph(), view.grid->box(bucket));
    if (PartDue(keeper, version, policy, graph)) return true;
  }
  return false;
}

absl::Status WorkerSearches::Begin(Searching& s, const CompiledPlan& serving) {
  const SearchPolicy& policy = s.job->policy();
  PlanSearchOptions options;
  options.seed = policy.seed;
  options.max_candidates = s.parts.share().candidates;
  options.mode = policy.budget.mode;
  options.disabled_rules.assign(policy.disabled_rules.begin(), policy.disabled_rules.end());
  options.approximate = policy.approximate;
  // A search to be compared with the baseline must not use stored recipes either.
  options.recipes = policy.use != v1::SearchOptions::COMPARE;
  ASSIGN_OR_RETURN(s.search, backend_.NewSearch(s.parts.graph(), serving, options));
  s.from = serving.id();
  s.begun = s.last_try = false;
  return absl::OkStatus();
}

bool WorkerSearches::GoOn(Searching& s, const End& end) {
  const bool box = !s.parts.full_range();
  if (!s.first_end.has_value()) {
    s.first_end = end;
    s.first_bucket = s.parts.Text();
    s.first_progress = s.job->state().search();
  }
  int64_t candidates = s.search->progress().candidates();
  s.job->Update([&](v1::CompileJob& state) {
    state.set_buckets_searched(state.buckets_searched() + (box ? 1 : 0));
  });
  while (!s.job->stop_requested().has_value() && Wanted(*s.job)) {
    const auto now = SearchTime::Clock::now();
    s.parts.End(s.time.Used(now), std::exchange(candidates, 0));
    s.time = {};
    if (s.parts.empty()) break;
    s.time.Begin(s.parts.share().time, now);
    const ModelVersion& version = *s.job->version();
    s.contest = BoxContest(version, s.parts.grid(), s.parts.bucket());
    if (s.contest.leader() == nullptr) break;  // the version was deleted
    const absl::Status begun = Begin(s, *s.contest.leader());
    if (begun.ok()) return true;
    LogWarn("no search",
            {{"model", version.name()}, {"bucket", s.parts.Text()}, {"error", begun.ToString()}});
  }
  // A finished job shows the result of the first part.
  if (const auto stop = s.job->stop_requested()) s.first_end = End{*stop, {}};
  if (s.parts.ended() > 0) {
    s.job->Update([&](v1::CompileJob& state) {
      *state.mutable_search() = std::move(s.first_progress);
      state.set_search_bucket(s.first_bucket);
    });
  }
  return false;
}

std::shared_ptr<const ServedPlan> WorkerSearches::Serving(const Searching& s) {
  const ModelVersion& version = *s.job->version();
  if (s.parts.full_range()) return version.plan();
  const Plans::View view = version.plans().view();
  return view.grid == s.parts.grid() ? view.box(s.parts.bucket()).serving : nullptr;
}

absl::Status WorkerSearches::Contest(Searching& s, bool at_end) {
  ModelVersion& version = *s.job->version();
  if (s.job->policy().use != v1::SearchOptions::SERVE) {
    s.contest = {};  // the serving plan stays
    return absl::OkStatus();
  }
  absl::StatusOr<v1::PlanComparison> times = s.search->CompareWith(*s.contest.rival());
  if (absl::IsAborted(times.status()) && !s.last_try) return times.status();
  if (!times.ok()) {
    LogWarn("plans of a bucket not compared", {{"model", version.name()},
                                               {"bucket", s.parts.Text()},
                                               {"error", times.status().ToString()}});
    s.contest = {};
    return absl::OkStatus();
  }
  double share = 1;
  const bool other = s.contest.Settle(*times, &share);
  LogInfo("plans of a bucket compared", {{"job", s.job->id()},
                                         {"model", version.name()},
                                         {"version", version.version()},
                                         {"bucket", s.parts.Text()},
                                         {"own", s.contest.own()->id()},
                                         {"full_range", s.contest.full()->id()},
                                         {"full_range_by_own", share},
                                         {"serves", s.contest.leader()->id()}});
  if (!s.contest.Serve(version)) return absl::OkStatus();  // it was deleted: the job is stopped
  if (keeper_.ready()) {
    const CompiledPlan& full = *s.contest.full();
    keeper_.PutFound(keeper_.KeyOf(version, s.parts.graph(), full.how), full, s.contest.own()->id(),
                     share);
  }
  if (!other || at_end) return absl::OkStatus();
  if (absl::Status begun = Begin(s, *s.contest.leader()); !begun.ok()) {
    LogWarn("no search", {{"model", version.name()}, {"error", begun.ToString()}});
  }
  return absl::OkStatus();
}

}  // namespace athanor
