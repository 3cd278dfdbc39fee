#include "server/jobs/job_builder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/jobs/parked_jobs.h"
#include "server/keeper/remembered.h"
#include "server/plans/plan_way.h"
#include "server/plans/tap_plans.h"

namespace athanor {
namespace {

using Phase = v1::CompileJob;

absl::Status Stopped(const CompileJob& job) {
  if (!job.stop_requested().has_value()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("job ", job.id(), " was stopped"));
}

// Counts a kernel that was compiled or found.
void CountKernel(const KernelObject& object, v1::CompileJob& state) {
  state.set_kernels_done(state.kernels_done() + 1);
  state.set_kernels_from_cache(state.kernels_from_cache() + (object.from_cache ? 1 : 0));
}

absl::StatusOr<KernelObject> BuildKernel(CompileBackend& backend, CompileJob& job,
                                         const v1::Plan& plan, int index) {
  RETURN_IF_ERROR(Stopped(job));
  absl::StatusOr<KernelObject> object = backend.CompileKernel(plan, index);
  if (!object.ok()) return object.status();
  const int total = plan.kernels_size();
  job.Update([&](v1::CompileJob& state) {
    CountKernel(*object, state);
    state.set_percent(5 +
                      75.0f * static_cast<float>(state.kernels_done()) / static_cast<float>(total));
    state.set_message(
        absl::StrCat("kernel ", index + 1, " of ", total, ": ", plan.kernels(index).name()));
  });
  return object;
}

// Compiles and checks the kernels of a lowered plan, with the workers that have time.
absl::StatusOr<std::shared_ptr<const CompiledPlan>> MakeKernels(const JobTools& tools,
                                                                internal::LowerReply lowered,
                                                                KernelWork::Calls calls,
                                                                BuildTimes* times) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ms = [](std::chrono::steady_clock::duration time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  calls.changed = tools.wake;
  const auto work = std::make_shared<KernelWork>(std::move(lowered), std::move(calls));
  tools.share(work);
  const absl::Cleanup alone = [&] { tools.share(nullptr); };
  RETURN_IF_ERROR(work->Finish(tools.backend));
  times->kernels = ms(work->compiled() - begin);
  times->check = ms(std::chrono::steady_clock::now() - work->compiled());
  // A server that is killed once the plan serves has its kernels when it starts again.
  constexpr std::chrono::seconds kMostWait{1};
  if (tools.cache != nullptr) tools.cache->Flush(kMostWait).IgnoreError();
  auto made = std::make_shared<CompiledPlan>();
  made->objects = work->TakeObjects();
  made->plan = work->plan();
  return std::shared_ptr<const CompiledPlan>(std::move(made));
}

void Observe(const BuildTimes& times, MetricCells& metrics) {
  const auto observe = [&metrics](int64_t ms, CompilePhase phase) {
    metrics.Observe(Metric::kCompileSeconds, std::chrono::milliseconds(ms), phase);
  };
  observe(times.lower, CompilePhase::kLower);
  observe(times.kernels, CompilePhase::kKernels);
  observe(times.check, CompilePhase::kCheck);
  observe(times.load, CompilePhase::kLoad);
}

// Returns `plan` with its missing kernels compiled.
absl::StatusOr<std::shared_ptr<const CompiledPlan>> CompileMissing(const JobTools& tools,
                                                                   CompileJob& job,
                                                                   const CompiledPlan& plan) {
  auto whole = std::make_shared<CompiledPlan>(plan);
  for (int i : std::exchange(whole->missing, {})) {
    ASSIGN_OR_RETURN(whole->objects[i], BuildKernel(tools.backend, job, plan.plan, i));
  }
  RETURN_IF_ERROR(Stopped(job));
  return std::shared_ptr<const CompiledPlan>(std::move(whole));
}

// Verifies a plan that was found and completed: the next start finds a correct one complete, and a
// wrong one not at all.
absl::Status VerifyFound(const JobTools& tools, const ModelVersion& version, const Graph& graph,
                         const PlanKey& key, const KeptPlan& found, bool pinned) {
  const std::string& id = found.plan->id();
  const absl::Status verdict = tools.backend.Verify(graph, *found.plan);
  if (verdict.ok()) {
    absl::Status s = tools.keeper.PutVerified(version, key, found, pinned);
    if (!s.ok()) LogWarn("a verified plan is not kept", {{"plan", id}, {"error", s.message()}});
  }
  if (!IsWrong(verdict)) return verdict;
  tools.keeper.Quarantine(version, key, id, verdict);
  return Prefixed(absl::StrCat("plan ", id, " was verified again and is wrong: "), verdict);
}

// Compiles what is missing of a found plan, and verifies it. A baseline is rather lowered again,
// which brings the checks of its kernels, unless that would be another plan than the one pinned.
absl::Status Complete(const JobTools& tools, CompileJob& job, ChosenPlan& chosen) {
  const std::shared_ptr<const CompiledPlan> found = chosen.plan;
  const int total = found->plan.kernels_size(), missing = static_cast<int>(found->missing.size());
  const bool pinned = job.version()->pinned_plan() == found->id();
  if (missing > 0 && found->how.budget().empty() && !pinned) {
    return absl::NotFoundError(absl::StrCat(missing, " of the ", total, " kernels of plan ",
                                            found->id(), " are not in the cache"));
  }
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(total);
    state.set_kernels_done(total - missing);
    state.set_kernels_from_cache(total - missing);
  });
  if (missing == 0) return absl::OkStatus();
  job.Enter(Phase::COMPILING_KERNELS, 5, absl::StrCat("compiles ", missing, " kernels"));
  ASSIGN_OR_RETURN(chosen.plan, CompileMissing(tools, job, *found));
  job.Enter(Phase::CHECKING, 80, "compares the plan with the baseline and with f64");
  KeptPlan whole{.plan = chosen.plan, .costs = {}};
  for (KeptPlan& kept : chosen.kept) {
    if (kept.plan != found) continue;
    kept.plan = chosen.plan;
    whole.costs = kept.costs;
  }
  const ModelVersion& version = *job.version();
  const PlanKey key = tools.keeper.KeyOf(version, version.graph(), found->how);
  return VerifyFound(tools, version, version.graph(), key, whole, pinned);
}

// Reports whether the job's version may be served by another plan until this one is whole: none
// serves it, and it was not promised this one.
bool MayBeServedMeanwhile(const ModelVersion& version, const CompiledPlan& chosen) {
  return !chosen.whole() && version.plan() == nullptr && version.pinned_plan().empty() &&
         !version.row().deterministic;
}

// Returns the whole baseline that was kept beside the chosen plan; null: there is none.
std::shared_ptr<const CompiledPlan> WholeBaseline(const ChosenPlan& chosen) {
  for (const KeptPlan& kept : chosen.kept) {
    // Besides the chosen plan, only whole ones are among them.
    if (kept.plan != chosen.plan && !kept.plan->searched()) return kept.plan;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const ServedPlan>> LoadPlan(
    const JobTools& tools, CompileJob& job, std::shared_ptr<const CompiledPlan> compiled,
    BuildTimes* times) {
  Stopwatch watch;
  job.Enter(Phase::PREPARING, 95, "loads kernels and lays out weights");
  auto served = tools.loader.Load(*job.version(), job.version()->graph(), std::move(compiled));
  times->load = watch.Lap();
  return served;
}

// Loads the baseline, which serves until the chosen plan is whole.
absl::StatusOr<std::shared_ptr<const ServedPlan>> LoadMeanwhile(
    const JobTools& tools, CompileJob& job, std::shared_ptr<const CompiledPlan> baseline,
    BuildTimes* times) {
  const int total = baseline->plan.kernels_size();
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(total);
    state.set_kernels_done(total);
    state.set_kernels_from_cache(total);
  });
  return LoadPlan(tools, job, std::move(baseline), times);
}

// Finds the plan that the job's version has already, which may lack kernels; plans with taps are
// not kept. NOT_FOUND says why there is none.
absl::StatusOr<ChosenPlan> LookUpPlan(const JobTools& tools, const CompileJob& job) {
  ASSIGN_OR_RETURN(const internal::TargetReply machine, tools.backend.Machine());
  tools.keeper.SetMachine(machine);
  const ModelVersion& version = *job.version();
  ChosenPlan chosen;
  if (version.plan() == nullptr && !version.row().plans.empty()) {
    absl::StatusOr<std::vector<KeptPlan>> had = FindRemembered(tools.keeper, version);
    if (had.ok()) {
      chosen.origin = PlanOrigin::kRemembered;
      chosen.plan = ServingOf(*had, version);
      chosen.kept = *std::move(had);
      return chosen;
    }
    // Neither is served by whatever there may be.
    if (!version.pinned_plan().empty() || version.row().deterministic) return had.status();
  }
  SearchPolicy policy = job.policy();
  const PlanKey key = tools.keeper.KeyOf(version, version.graph(), policy.ToProto());
  // A plan that its searches may not swap in does not serve it either.
  if (policy.use != v1::SearchOptions::SERVE || version.row().deterministic) {
    policy.budget.search = false;
  }
  ASSIGN_OR_RETURN(std::vector<KeptPlan> best, tools.keeper.FindBest(key, policy));
  chosen.origin = PlanOrigin::kCached;
  chosen.plan = best.front().plan;
  if (best.size() > 1 && best.back().plan->whole()) {
    chosen.kept.push_back(std::move(best.back()));
  }
  return chosen;
}

absl::StatusOr<JobPlan> BuildStored(const JobTools& tools, CompileJob& job, BuildTimes* times) {
  Stopwatch watch;
  absl::StatusOr<ChosenPlan> chosen = LookUpPlan(tools, job);
  times->lower = watch.Lap();
  if (!chosen.ok()) return chosen.status();
  if (MayBeServedMeanwhile(*job.version(), *chosen->plan)) {
    if (auto baseline = WholeBaseline(*chosen); baseline != nullptr) {
      auto loaded = LoadMeanwhile(tools, job, std::move(baseline), times);
      if (loaded.ok()) return JobPlan{.chosen = *std::move(chosen), .loaded = *std::move(loaded)};
      LogWarn("a stored baseline does not serve",
              {{"job", job.id()}, {"error", loaded.status().message()}});
    }
  }
  return CompletePlan(tools, job, *std::move(chosen), times);
}

using MadePlan = absl::StatusOr<std::shared_ptr<const CompiledPlan>>;

// Calls `make(plain)`; if that goes wrong, once more for a plain plan.
MadePlan MakeOrMakePlain(CompileJob& job, absl::FunctionRef<MadePlan(bool plain)> make) {
  PlanWay way;
  MadePlan made = make(way.plain());
  if (!Stopped(job).ok() || !way.TurnPlain(made.status())) return made;
  job.NoteWhy(absl::StrCat("made plain: ", made.status().message()));
  LogWarn("a baseline is made plain", {{"job", job.id()},
                                       {"model", job.version()->name()},
                                       {"version", job.version()->version()},
                                       {"error", made.status().message()}});
  made = make(way.plain());
  if (made.ok()) return made;
  return way.Explained(made.status());
}

MadePlan LowerAndCheck(const JobTools& tools, CompileJob& job, const Graph& graph, bool plain,
                       BuildTimes* times) {
  Stopwatch watch;
  job.Enter(Phase::LOWERING, 1, "lowers the graph to kernels");
  absl::StatusOr<internal::LowerReply> lowered = tools.backend.Lower(graph, plain);
  times->lower = watch.Lap();
  if (!lowered.ok()) return lowered.status();
  const int total = lowered->plan().kernels_size();
  job.Enter(Phase::COMPILING_KERNELS, 5, absl::StrCat("compiles ", total, " kernels"));
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(total);
    state.set_kernels_done(0);
    state.set_kernels_from_cache(0);
  });
  std::vector<std::string> names;
  for (const v1::Kernel& kernel : lowered->plan().kernels()) names.push_back(kernel.name());
  const auto compiled = [&](int kernel, const KernelObject& object) {
    job.Update([&](v1::CompileJob& state) {
      CountKernel(object, state);
      state.set_percent(5 + 75.0f * static_cast<float>(state.kernels_done()) /
                                static_cast<float>(total));
      state.set_message(absl::StrCat("kernel ", kernel + 1, " of ", total, ": ", names[kernel]));
      if (state.kernels_done() < total) return;
      state.set_phase(Phase::CHECKING);
      state.set_message("checks kernels against the reference evaluator");
    });
  };
  return MakeKernels(tools, *std::move(lowered),
                     {.stopped = [&] { return Stopped(job); },
                      .compiled = compiled,
                      .device = job.version()->device()},
                     times);
}

absl::StatusOr<std::shared_ptr<const ServedPlan>> BuildLowered(const JobTools& tools,
                                                               CompileJob& job, const Graph& graph,
                                                               BuildTimes* times) {
  MadePlan made = MakeOrMakePlain(
      job, [&](bool plain) { return LowerAndCheck(tools, job, graph, plain, times); });
  if (!made.ok()) return made.status();
  RETURN_IF_ERROR(Stopped(job));
  Stopwatch watch;
  job.Enter(Phase::PREPARING, 95, "loads kernels and lays out weights");
  auto served = tools.loader.Load(*job.version(), graph, *std::move(made));
  times->load = watch.Lap();
  if (served.ok()) Observe(*times, tools.metrics);
  return served;
}

// Stores a baseline for the next start and for uploads of the same graph.
void KeepBaseline(const JobTools& tools, const ModelVersion& version,
                  const CompiledPlan& baseline) {
  const absl::StatusOr<internal::TargetReply> machine = tools.backend.Machine();
  if (!machine.ok()) return;
  tools.keeper.SetMachine(*machine);
  tools.keeper.PutBaseline(tools.keeper.KeyOf(version, version.graph(), {}), baseline);
}

// Returns the key under which the version's baseline is kept; empty if it is not kept.
std::string LeaseKeyOf(const JobTools& tools, const ModelVersion& version) {
  if (tools.cache == nullptr || !tools.keeper.ready(version)) return "";
  return GateHash(tools.keeper.KeyOf(version, version.graph(), {}).Fields());
}

}  // namespace

namespace {

absl::Status GivesWay(const CompileJob& job) {
  return absl::AbortedError(absl::StrCat("job ", job.id(), " gives way to a first plan"));
}

// Returns the plans of `graph` that the cache has whole.
CompiledPlans FindWhole(const JobTools& tools, CompileJob& job, const Graph& graph) {
  constexpr size_t kMost = 3;
  SearchPolicy policy = job.policy();
  // The plans of a deterministic version must not change with what others found.
  if (job.version()->row().deterministic) policy.budget.search = false;
  const PlanKey key = tools.keeper.KeyOf(*job.version(), graph, policy.ToProto());
  CompiledPlans plans = tools.keeper.FindAll(key, policy, kMost);
  int total = 0;
  for (const auto& plan : plans) total = std::max(total, plan->plan.kernels_size());
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(state.kernels_total() + total);
    state.set_kernels_done(state.kernels_done() + total);
    state.set_kernels_from_cache(state.kernels_from_cache() + total);
  });
  return plans;
}

}  // namespace

absl::StatusOr<CompiledPlans> MakePlans(const JobTools& tools, CompileJob& job,
                                        const Graph& graph) {
  const absl::StatusOr<internal::TargetReply> machine = tools.backend.Machine();
  if (machine.ok()) {
    tools.keeper.SetMachine(*machine);
    CompiledPlans plans = FindWhole(tools, job, graph);
    if (!plans.empty()) return plans;
  }
  if (tools.gives_way()) return GivesWay(job);
  // Does not fall back to a plain plan: the full range's plan serves these sizes,
  // and is faster.
  ASSIGN_OR_RETURN(internal::LowerReply lowered, tools.backend.Lower(graph, /*plain=*/false));
  const int total = lowered.plan().kernels_size();
  job.Update(
      [&](v1::CompileJob& state) { state.set_kernels_total(state.kernels_total() + total); });
  const auto stopped = [&] {
    RETURN_IF_ERROR(Stopped(job));
    return tools.gives_way() ? GivesWay(job) : absl::OkStatus();
  };
  const auto compiled = [&](int, const KernelObject& object) {
    job.Update([&](v1::CompileJob& state) { CountKernel(object, state); });
  };
  BuildTimes times;
  ASSIGN_OR_RETURN(
      auto made,
      MakeKernels(tools, std::move(lowered),
                  {.stopped = stopped, .compiled = compiled, .device = job.version()->device()},
                  &times));
  if (machine.ok()) tools.keeper.PutBaseline(tools.keeper.KeyOf(*job.version(), graph, {}), *made);
  return CompiledPlans{std::move(made)};
}

absl::StatusOr<std::shared_ptr<const CompiledPlan>> FindPinned(const JobTools& tools,
                                                               CompileJob& job, const Graph& graph,
                                                               const std::string& plan_id) {
  ASSIGN_OR_RETURN(const internal::TargetReply machine, tools.backend.Machine());
  tools.keeper.SetMachine(machine);
  const ModelVersion& version = *job.version();
  v1::PlanInfo info;
  for (const VersionPlanRow& row : version.row().pinned_boxes) {
    if (row.plan_id == plan_id) info.ParseFromString(row.info);
  }
  const PlanKey key = tools.keeper.KeyOf(version, graph, info.search());
  ASSIGN_OR_RETURN(KeptPlan kept, tools.keeper.Find(version, key, plan_id));
  if (!kept.plan->whole()) {
    const int missing = static_cast<int>(kept.plan->missing.size());
    job.Update(
        [&](v1::CompileJob& state) { state.set_kernels_total(state.kernels_total() + missing); });
    ASSIGN_OR_RETURN(kept.plan, CompileMissing(tools, job, *kept.plan));
    absl::Status s = VerifyFound(tools, version, graph, key, kept, /*pinned=*/true);
    if (!s.ok()) return s;
  }
  return kept.plan;
}

absl::StatusOr<JobPlan> CompletePlan(const JobTools& tools, CompileJob& job, ChosenPlan chosen,
                                     BuildTimes* times) {
  Stopwatch watch;
  RETURN_IF_ERROR(Complete(tools, job, chosen));
  times->kernels = watch.Lap();
  RETURN_IF_ERROR(Stopped(job));
  ASSIGN_OR_RETURN(auto loaded, LoadPlan(tools, job, chosen.plan, times));
  return JobPlan{.chosen = std::move(chosen), .loaded = std::move(loaded)};
}

absl::StatusOr<PlanOrWait> BuildPlan(const JobTools& tools, CompileJob& job, BuildTimes* times) {
  const std::shared_ptr<TapPlan> tapped = job.tapped();
  const std::shared_ptr<ModelVersion> version = job.version();
  const auto lowered = [](const std::shared_ptr<const ServedPlan>& plan, Lease lease) {
    return JobPlan{.chosen = {.plan = plan->compiled}, .loaded = plan, .lease = std::move(lease)};
  };
  if (tapped != nullptr) {
    ASSIGN_OR_RETURN(auto served,
                     BuildLowered(tools, job, WithTaps(version->graph(), tapped->taps), times));
    return lowered(served, {});
  }
  absl::StatusOr<JobPlan> stored = BuildStored(tools, job, times);
  if (stored.ok()) return *std::move(stored);
  RETURN_IF_ERROR(Stopped(job));
  const bool expected = absl::IsUnimplemented(stored.status()) ||
                        (absl::IsNotFound(stored.status()) && version->row().plans.empty());
  if (!expected) {
    job.NoteWhy(std::string(stored.status().message()));
    LogInfo("a plan is made anew", {{"job", job.id()},
                                    {"model", version->name()},
                                    {"version", version->version()},
                                    {"why", stored.status().message()}});
  }
  const std::string key = LeaseKeyOf(tools, *version);
  Lease lease;
  if (!key.empty()) {
    absl::StatusOr<Lease> taken = tools.cache->leases().Take(key, kPlanLease, version->Describe());
    if (!taken.ok()) return LeaseWait{std::string(taken.status().message()), key};
    lease = *std::move(taken);
    // The plan may have been made since the lookup. If time or memory was missing, that has not
    // changed.
    const bool again =
        !absl::IsDeadlineExceeded(stored.status()) && !absl::IsResourceExhausted(stored.status());
    if (again) stored = BuildStored(tools, job, times);
    if (stored.ok()) return *std::move(stored);
  }
  ASSIGN_OR_RETURN(auto served, BuildLowered(tools, job, version->graph(), times));
  KeepBaseline(tools, *version, *served->compiled);
  return lowered(served, std::move(lease));
}

}  // namespace athanor
