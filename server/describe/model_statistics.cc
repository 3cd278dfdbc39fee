#include "server/describe/model_statistics.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"

namespace athanor {
namespace {

void Set(int64_t count, int64_t nanoseconds, inference::StatisticDuration* duration) {
  duration->set_count(count);
  duration->set_ns(nanoseconds);
}

void Fill(const ModelVersion& version, inference::ModelStatistics* statistics) {
  const MetricCells& cells = version.metrics().cells;
  const auto ok = cells.value(Metric::kRequests, static_cast<int>(absl::StatusCode::kOk));
  const HistogramCounts requests = cells.histogram(Metric::kRequestSeconds);
  const HistogramCounts queue = cells.histogram(Metric::kQueueSeconds);
  const HistogramCounts runs = cells.histogram(Metric::kExecSeconds);
  statistics->set_name(version.name());
  statistics->set_version(absl::StrCat(version.version()));
  statistics->set_inference_count(ok);
  statistics->set_execution_count(runs.count());
  auto& times = *statistics->mutable_inference_stats();
  Set(ok, requests.sum, times.mutable_success());
  Set(requests.count() - ok, 0, times.mutable_fail());
  Set(queue.count(), queue.sum, times.mutable_queue());
  Set(runs.count(), runs.sum, times.mutable_compute_infer());
  // perf_analyzer wants as many of each as there are runs; their time is with the run's.
  for (auto* part : {times.mutable_compute_input(), times.mutable_compute_output()}) {
    Set(runs.count(), 0, part);
  }
  // Clients read these whether or not they are set.
  for (auto* none : {times.mutable_cache_hit(), times.mutable_cache_miss()}) Set(0, 0, none);
}

}  // namespace

absl::Status FillStatistics(ServerCore& core, const std::string& name, const std::string& version,
                            const Caller& caller, inference::ModelStatisticsResponse* statistics) {
  if (!name.empty()) {
    RETURN_IF_ERROR(caller.MayUse(name));
    ASSIGN_OR_RETURN(auto found, core.registry().versions().Find(name, version));
    Fill(*found, statistics->add_model_stats());
    return absl::OkStatus();
  }
  for (const auto& each : core.registry().versions().List("")) {
    if (caller.Sees(each->name())) Fill(*each, statistics->add_model_stats());
  }
  return absl::OkStatus();
}

}  // namespace athanor
