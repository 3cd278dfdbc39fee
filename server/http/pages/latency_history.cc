#include "server/http/pages/latency_history.h"

#include <iterator>
#include <utility>

#include "absl/strings/string_view.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

struct Kind {
  Metric metric;
  absl::string_view name;
};
// The first that a version has is drawn in its row.
constexpr Kind kKinds[] = {{Metric::kTimeToFirstToken, "TTFT"},
                           {Metric::kInterTokenLatency, "ITL"},
                           {Metric::kRequestSeconds, "call"}};

}  // namespace

void LatencyHistory::Take(const std::vector<VersionCells>& versions) {
  MutexLock lock(mu_);
  std::erase_if(tracks_, [](const auto& entry) { return entry.first.expired(); });
  for (const VersionCells& version : versions) {
    auto& tracks = tracks_[version];
    for (const Kind& kind : kKinds) {
      const auto found = tracks.find(kind.metric);
      if (found != tracks.end()) {
        TakeStep(kind.metric, *version, &found->second);
      } else if (version->cells.histogram(kind.metric).count() > 0) {
        TakeStep(kind.metric, *version, &tracks[kind.metric]);
      }
    }
  }
}

void LatencyHistory::TakeStep(Metric metric, const VersionMetrics& version, Track* track) {
  HistogramCounts now = version.cells.histogram(metric);
  HistogramCounts since = now;
  for (size_t i = 0; i < track->before.buckets.size(); ++i) {
    since.buckets[i] -= track->before.buckets[i];
  }
  track->before = std::move(now);
  Step step{.calls = since.count()};
  if (step.calls > 0) {
    const auto bounds = RowOf(metric).bounds;
    step.p50 = static_cast<float>(static_cast<double>(Quantile(bounds, since, 0.5)) / 1e9);
    step.p99 = static_cast<float>(static_cast<double>(Quantile(bounds, since, 0.99)) / 1e9);
  }
  track->steps.push_back(step);
  if (track->steps.size() > kSteps) track->steps.pop_front();
}

Json LatencyHistory::Of(const VersionCells& version) const {
  Json all = Json::array();
  MutexLock lock(mu_);
  const auto found = tracks_.find(version);
  if (found == tracks_.end()) return all;
  for (const Kind& kind : kKinds) {
    const auto track = found->second.find(kind.metric);
    if (track == found->second.end()) continue;
    Json p50 = Json::array(), p99 = Json::array(), calls = Json::array();
    for (const Step& step : track->second.steps) {
      p50.push_back(step.calls == 0 ? Json() : Json(step.p50));
      p99.push_back(step.calls == 0 ? Json() : Json(step.p99));
      calls.push_back(step.calls);
    }
    all.push_back({{"name", kind.name},
                   {"p50", std::move(p50)},
                   {"p99", std::move(p99)},
                   {"calls", std::move(calls)}});
  }
  return all;
}

}  // namespace athanor
