#include "server/jobs/job_builder.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "compiler/ir/value/message.h"
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

absl::StatusOr<KernelObject> BuildKernel(CompileBackend& backend, CompileJob& job,
                                         const v1::Plan& plan, int index) {
  if (absl::Status s = Stopped(job); !s.ok()) return s;
  absl::StatusOr<KernelObject> object = backend.CompileKernel(plan, index);
  if (!object.ok()) return object.status();
  const int total = plan.kernels_size();
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_done(state.kernels_done() + 1);
    state.set_kernels_from_cache(state.kernels_from_cache() + (object->from_cache ? 1 : 0));
    state.set_percent(5 +
                      75.0f * static_cast<float>(state.kernels_done()) / static_cast<float>(total));
    state.set_message(
        absl::StrCat("kernel ", index + 1, " of ", total, ": ", plan.kernels(index).name()));
  });
  return object;
}

absl::StatusOr<std::vector<KernelObject>> BuildKernels(CompileBackend& backend, CompileJob& job,
                                                       const v1::Plan& plan) {
  const int total = plan.kernels_size();
  job.Enter(Phase::COMPILING_KERNELS, 5, absl::StrCat("compiles ", total, " kernels"));
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(total);
    state.set_kernels_done(0);
    state.set_kernels_from_cache(0);
  });
  std::vector<KernelObject> objects;
  for (int i = 0; i < total; ++i) {
    absl::StatusOr<KernelObject> object = BuildKernel(backend, job, plan, i);
    if (!object.ok()) return object.status();
    objects.push_back(*std::move(object));
  }
  return objects;
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

absl::Status CompileMissing(const JobTools& tools, CompileJob& job, PlanSearch::Found& made,
                            absl::Span<const int> missing) {
  for (int i : missing) {
    absl::StatusOr<KernelObject> object = BuildKernel(tools.backend, job, made.plan, i);
    if (!object.ok()) return object.status();
    made.objects[i] = *std::move(object);
  }
  return Stopped(job);
}

// Verifies a plan that was found and completed: the next start finds a correct one complete, and a
// wrong one not at all.
absl::Status VerifyFound(const JobTools& tools, const ModelVersion& version, const Graph& graph,
                         const PlanKey& key, const PlanKeeper::Kept& found, bool pinned) {
  const std::string& id = found.made->plan.plan_id();
  const absl::Status verdict = tools.backend.Verify(graph, *found.made);
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
absl::Status Complete(const JobTools& tools, CompileJob& job, StoredChoice& choice) {
  const v1::Plan& plan = choice.made->plan;
  const int total = plan.kernels_size(), missing = static_cast<int>(choice.missing.size());
  const bool pinned = job.version()->pinned_plan() == plan.plan_id();
  if (missing > 0 && choice.made->how.budget().empty() && !pinned) {
    return absl::NotFoundError(absl::StrCat(missing, " of the ", total, " kernels of plan ",
                                            plan.plan_id(), " are not in the cache"));
  }
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(total);
    state.set_kernels_done(total - missing);
    state.set_kernels_from_cache(total - missing);
  });
  if (missing == 0) return absl::OkStatus();
  job.Enter(Phase::COMPILING_KERNELS, 5, absl::StrCat("compiles ", missing, " kernels"));
  absl::Status s = CompileMissing(tools, job, *choice.made, choice.missing);
  if (!s.ok()) return s;
  job.Enter(Phase::CHECKING, 80, "compares the plan with the baseline and with f64");
  PlanKeeper::Kept found{choice.made, {}, {}};
  for (const KeptPlans::Kept& kept : choice.kept) {
    if (kept.made == choice.made) found.costs = kept.costs;
  }
  const ModelVersion& version = *job.version();
  const PlanKey key = tools.keeper.KeyOf(version, version.graph(), choice.made->how);
  return VerifyFound(tools, version, version.graph(), key, found, pinned);
}

// Whether the job's version may be served by another plan until this one is whole: none serves it,
// and it was not promised that one.
bool MayBeServedMeanwhile(const ModelVersion& version, const StoredChoice& choice) {
  return !choice.missing.empty() && version.plan() == nullptr && version.pinned_plan().empty() &&
         !version.row().deterministic;
}

// The whole baseline that was kept beside the choice; null: there is none.
std::shared_ptr<const PlanSearch::Found> WholeBaseline(const StoredChoice& choice) {
  for (const KeptPlans::Kept& kept : choice.kept) {
    // Besides the choice itself, only whole ones are among them.
    if (kept.made != choice.made && kept.made->plan.kind() != kSearchedPlan) return kept.made;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<const ServedPlan>> LoadPlan(
    const JobTools& tools, CompileJob& job, std::shared_ptr<const PlanSearch::Found> made,
    BuildTimes* times) {
  Stopwatch watch;
  job.Enter(Phase::PREPARING, 95, "loads kernels and lays out weights");
  auto served = tools.loader.Load(*job.version(), job.version()->graph(), std::move(made));
  times->load = watch.Lap();
  return served;
}

// The baseline, with the choice to come.
absl::StatusOr<BuiltPlan> ServeMeanwhile(const JobTools& tools, CompileJob& job,
                                         std::shared_ptr<const PlanSearch::Found> baseline,
                                         StoredChoice choice, BuildTimes* times) {
  const int total = baseline->plan.kernels_size();
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(total);
    state.set_kernels_done(total);
    state.set_kernels_from_cache(total);
  });
  auto served = LoadPlan(tools, job, std::move(baseline), times);
  if (!served.ok()) return served.status();
  BuiltPlan built{choice.origin, *std::move(served), {}};
  if (choice.origin == PlanOrigin::kRemembered) {
    for (const KeptPlans::Kept& kept : choice.kept) {
      if (kept.made != choice.made) built.kept.push_back(kept);
    }
  }
  built.better = std::move(choice);
  return built;
}

absl::StatusOr<BuiltPlan> BuildStored(const JobTools& tools, CompileJob& job, BuildTimes* times) {
  Stopwatch watch;
  absl::StatusOr<StoredChoice> choice = LookUpPlan(tools, job);
  times->lower = watch.Lap();
  if (!choice.ok()) return choice.status();
  if (MayBeServedMeanwhile(*job.version(), *choice)) {
    if (auto baseline = WholeBaseline(*choice); baseline != nullptr) {
      auto built = ServeMeanwhile(tools, job, std::move(baseline), *choice, times);
      if (built.ok()) return built;
      LogWarn("a stored baseline does not serve",
              {{"job", job.id()}, {"error", built.status().message()}});
    }
  }
  return CompletePlan(tools, job, *std::move(choice), times);
}

using MadePlan = absl::StatusOr<std::shared_ptr<PlanSearch::Found>>;

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
  absl::StatusOr<v1::Plan> plan = tools.backend.Lower(graph, plain);
  times->lower = watch.Lap();
  if (!plan.ok()) return plan.status();
  auto objects = BuildKernels(tools.backend, job, *plan);
  times->kernels = watch.Lap();
  if (!objects.ok()) return objects.status();
  if (absl::Status s = Stopped(job); !s.ok()) return s;
  job.Enter(Phase::CHECKING, 80, "checks kernels against the reference evaluator");
  if (absl::Status s = tools.backend.Check(graph, *plan, *objects); !s.ok()) return s;
  times->check = watch.Lap();
  auto made = std::make_shared<PlanSearch::Found>();
  made->plan = *std::move(plan);
  made->objects = *std::move(objects);
  return made;
}

absl::StatusOr<std::shared_ptr<const ServedPlan>> BuildLowered(const JobTools& tools,
                                                               CompileJob& job, const Graph& graph,
                                                               BuildTimes* times) {
  MadePlan made = MakeOrMakePlain(
      job, [&](bool plain) { return LowerAndCheck(tools, job, graph, plain, times); });
  if (!made.ok()) return made.status();
  if (absl::Status s = Stopped(job); !s.ok()) return s;
  Stopwatch watch;
  job.Enter(Phase::PREPARING, 95, "loads kernels and lays out weights");
  auto served = tools.loader.Load(*job.version(), graph, *std::move(made));
  times->load = watch.Lap();
  if (served.ok()) Observe(*times, tools.metrics);
  return served;
}

// Stores a baseline for the next start and for uploads of the same graph.
void KeepBaseline(const JobTools& tools, const ModelVersion& version,
                  const PlanSearch::Found& made) {
  const absl::StatusOr<internal::TargetReply> machine = tools.backend.Machine();
  if (!machine.ok()) return;
  tools.keeper.SetMachine(*machine);
  tools.keeper.PutBaseline(tools.keeper.KeyOf(version, version.graph(), {}), made);
}

// Returns the key under which the version's baseline is kept; empty if it is not kept.
std::string LeaseKeyOf(const JobTools& tools, const ModelVersion& version) {
  if (tools.cache == nullptr || !tools.keeper.ready()) return "";
  return GateHash(tools.keeper.KeyOf(version, version.graph(), {}).Fields());
}

}  // namespace

absl::StatusOr<StoredChoice> LookUpPlan(const JobTools& tools, const CompileJob& job) {
  const absl::StatusOr<internal::TargetReply> machine = tools.backend.Machine();
  if (!machine.ok()) return machine.status();
  tools.keeper.SetMachine(*machine);
  const ModelVersion& version = *job.version();
  if (version.plan() == nullptr && !version.row().plans.empty()) {
    absl::StatusOr<Remembered> had = FindRemembered(tools.keeper, version);
    if (had.ok()) {
      return StoredChoice{PlanOrigin::kRemembered, std::move(had->serving), std::move(had->missing),
                          std::move(had->kept)};
    }
    // Neither is served by whatever there may be.
    if (!version.pinned_plan().empty() || version.row().deterministic) return had.status();
  }
  SearchPolicy policy = job.policy();
  const PlanKey key = tools.keeper.KeyOf(version, version.graph(), policy.ToProto());
  // What its searches may not swap in does not serve it either.
  if (policy.use != v1::SearchOptions::SERVE || version.row().deterministic) {
    policy.budget.search = false;
  }
  auto best = tools.keeper.FindBest(key, policy);
  if (!best.ok()) return best.status();
  StoredChoice choice{PlanOrigin::kCached, best->plan.made, best->plan.missing, {}};
  if (best->baseline.has_value() && best->baseline->missing.empty()) {
    choice.kept.push_back({.info = PlanInfoOf(*best->baseline->made),
                           .made = best->baseline->made,
                           .costs = best->baseline->costs});
  }
  return choice;
}

namespace {

// Whole in the cache.
std::vector<BucketPlan> FindWhole(const JobTools& tools, CompileJob& job, const Graph& graph) {
  constexpr size_t kMost = 3;
  SearchPolicy policy = job.policy();
  // The plans of a deterministic version must not change with what others found.
  if (job.version()->row().deterministic) policy.budget.search = false;
  const PlanKey key = tools.keeper.KeyOf(*job.version(), graph, policy.ToProto());
  std::vector<BucketPlan> plans;
  int total = 0;
  for (PlanKeeper::Choice& choice : tools.keeper.FindAll(key, policy, kMost)) {
    total = std::max(total, choice.made->plan.kernels_size());
    plans.push_back({std::move(choice.made), choice.share_of_baseline});
  }
  job.Update([&](v1::CompileJob& state) {
    state.set_kernels_total(state.kernels_total() + total);
    state.set_kernels_done(state.kernels_done() + total);
    state.set_kernels_from_cache(state.kernels_from_cache() + total);
  });
  return plans;
}

}  // namespace

absl::StatusOr<std::vector<BucketPlan>> MakePlans(const JobTools& tools, CompileJob& job,
                                                  const Graph& graph) {
  const absl::StatusOr<internal::TargetReply> machine = tools.backend.Machine();
  if (machine.ok()) {
    tools.keeper.SetMachine(*machine);
    std::vector<BucketPlan> plans = FindWhole(tools, job, graph);
    if (!plans.empty()) return plans;
  }
  // Does not fall back to a plain plan: the full range's plan serves these sizes,
  // and is faster.
  absl::StatusOr<v1::Plan> plan = tools.backend.Lower(graph, /*plain=*/false);
  if (!plan.ok()) return plan.status();
  auto made = std::make_shared<PlanSearch::Found>();
  made->plan = *std::move(plan);
  const int total = made->plan.kernels_size();
  job.Update(
      [&](v1::CompileJob& state) { state.set_kernels_total(state.kernels_total() + total); });
  for (int i = 0; i < total; ++i) {
    if (absl::Status s = Stopped(job); !s.ok()) return s;
    absl::StatusOr<KernelObject> object = tools.backend.CompileKernel(made->plan, i);
    if (!object.ok()) return object.status();
    job.Update([&](v1::CompileJob& state) {
      state.set_kernels_done(state.kernels_done() + 1);
      state.set_kernels_from_cache(state.kernels_from_cache() + (object->from_cache ? 1 : 0));
    });
    made->objects.push_back(*std::move(object));
  }
  if (absl::Status s = Stopped(job); !s.ok()) return s;
  if (absl::Status s = tools.backend.Check(graph, made->plan, made->objects); !s.ok()) return s;
  if (machine.ok()) tools.keeper.PutBaseline(tools.keeper.KeyOf(*job.version(), graph, {}), *made);
  return std::vector<BucketPlan>{{std::move(made)}};
}

absl::StatusOr<BucketPlan> FindPinned(const JobTools& tools, CompileJob& job, const Graph& graph,
                                      const std::string& plan_id) {
  const absl::StatusOr<internal::TargetReply> machine = tools.backend.Machine();
  if (!machine.ok()) return machine.status();
  tools.keeper.SetMachine(*machine);
  const ModelVersion& version = *job.version();
  v1::PlanInfo info;
  for (const VersionPlanRow& row : version.row().pinned_boxes) {
    if (row.plan_id == plan_id) info.ParseFromString(row.info);
  }
  const PlanKey key = tools.keeper.KeyOf(version, graph, info.search());
  absl::StatusOr<PlanKeeper::Kept> kept = tools.keeper.Find(version, key, plan_id);
  if (!kept.ok()) return kept.status();
  if (!kept->missing.empty()) {
    const int missing = static_cast<int>(kept->missing.size());
    job.Update(
        [&](v1::CompileJob& state) { state.set_kernels_total(state.kernels_total() + missing); });
    absl::Status s = CompileMissing(tools, job, *kept->made, kept->missing);
    if (s.ok()) s = VerifyFound(tools, version, graph, key, *kept, /*pinned=*/true);
    if (!s.ok()) return s;
  }
  return BucketPlan{std::move(kept->made)};
}

absl::StatusOr<BuiltPlan> CompletePlan(const JobTools& tools, CompileJob& job, StoredChoice choice,
                                       BuildTimes* times) {
  Stopwatch watch;
  if (absl::Status s = Complete(tools, job, choice); !s.ok()) return s;
  times->kernels = watch.Lap();
  if (absl::Status s = Stopped(job); !s.ok()) return s;
  auto served = LoadPlan(tools, job, choice.made, times);
  if (!served.ok()) return served.status();
  for (KeptPlans::Kept& kept : choice.kept) {
    if (kept.made == choice.made) kept.info = (*served)->info;
  }
  return BuiltPlan{choice.origin, *std::move(served), std::move(choice.kept)};
}

absl::StatusOr<BuiltPlan> BuildPlan(const JobTools& tools, CompileJob& job, BuildTimes* times) {
  const std::shared_ptr<TapPlan> tapped = job.tapped();
  const std::shared_ptr<ModelVersion> version = job.version();
  BuiltPlan built;
  if (tapped != nullptr) {
    auto served = BuildLowered(tools, job, WithTaps(version->graph(), tapped->taps), times);
    if (!served.ok()) return served.status();
    built.plan = *std::move(served);
    return built;
  }
  absl::StatusOr<BuiltPlan> stored = BuildStored(tools, job, times);
  if (stored.ok()) return stored;
  if (absl::Status s = Stopped(job); !s.ok()) return s;
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
  if (!key.empty()) {
    absl::StatusOr<Lease> lease = tools.cache->leases().Take(key, kPlanLease, version->Describe());
    if (!lease.ok()) {
      built.waits_for = std::string(lease.status().message());
      built.key = key;
      return built;
    }
    // The plan may have been made since the lookup. If time or memory was missing, that has not
    // changed.
    const bool again =
        !absl::IsDeadlineExceeded(stored.status()) && !absl::IsResourceExhausted(stored.status());
    if (again) stored = BuildStored(tools, job, times);
    if (stored.ok()) return stored;
    built.lease = *std::move(lease);
  }
  auto served = BuildLowered(tools, job, version->graph(), times);
  if (!served.ok()) return served.status();
  KeepBaseline(tools, *version, *(*served)->made);
  built.plan = *std::move(served);
  return built;
}

}  // namespace athanor
