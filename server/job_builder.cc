#include "server/job_builder.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/plan_loader.h"
#include "server/tap_plans.h"

namespace athanor {
namespace {

using Phase = v1::CompileJob;

absl::Status Stopped(const CompileJob& job) {
  if (!job.stop_requested().has_value()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("job ", job.id(), " was stopped"));
}

absl::StatusOr<std::vector<KernelObject>> BuildKernels(CompileBackend& backend, CompileJob& job,
                                                       const v1::Plan& plan) {
  const int total = plan.kernels_size();
  job.Enter(Phase::COMPILING_KERNELS, 5, absl::StrCat("compiles ", total, " kernels"));
  job.Update([&](v1::CompileJob& state) { state.set_kernels_total(total); });
  std::vector<KernelObject> objects;
  for (int i = 0; i < total; ++i) {
    if (absl::Status s = Stopped(job); !s.ok()) return s;
    absl::StatusOr<KernelObject> object = backend.CompileKernel(plan, i);
    if (!object.ok()) return object.status();
    job.Update([&](v1::CompileJob& state) {
      state.set_kernels_done(i + 1);
      state.set_kernels_from_cache(state.kernels_from_cache() + (object->from_cache ? 1 : 0));
      state.set_percent(5 + 75.0f * static_cast<float>(i + 1) / static_cast<float>(total));
      state.set_message(
          absl::StrCat("kernel ", i + 1, " of ", total, ": ", plan.kernels(i).name()));
    });
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

}  // namespace

absl::StatusOr<std::shared_ptr<const ServedPlan>> BuildPlan(CompileBackend& backend,
                                                            Registry& registry, int64_t contexts,
                                                            CompileJob& job, BuildTimes* times) {
  const std::shared_ptr<TapPlan> tapped = job.tapped();
  std::optional<Graph> with_taps;
  if (tapped != nullptr) with_taps = WithTaps(job.version()->graph(), tapped->taps);
  const Graph& graph = with_taps.has_value() ? *with_taps : job.version()->graph();
  Stopwatch watch;
  job.Enter(Phase::LOWERING, 1, "lowers the graph to kernels");
  absl::StatusOr<v1::Plan> plan = backend.Lower(graph);
  times->lower = watch.Lap();
  if (!plan.ok()) return plan.status();
  auto objects = BuildKernels(backend, job, *plan);
  times->kernels = watch.Lap();
  if (!objects.ok()) return objects.status();
  if (absl::Status s = Stopped(job); !s.ok()) return s;
  job.Enter(Phase::CHECKING, 80, "checks kernels against the reference evaluator");
  if (absl::Status s = backend.Check(graph, *plan, *objects); !s.ok()) return s;
  times->check = watch.Lap();
  if (absl::Status s = Stopped(job); !s.ok()) return s;
  job.Enter(Phase::PREPARING, 95, "loads kernels and lays out weights");
  auto made = std::make_shared<PlanSearch::Found>();
  made->plan = *std::move(plan);
  made->objects = *std::move(objects);
  auto served = LoadPlan(backend, registry, *job.version(), graph, std::move(made), contexts);
  times->load = watch.Lap();
  if (served.ok()) Observe(*times, registry.metrics().server());
  return served;
}

}  // namespace athanor
