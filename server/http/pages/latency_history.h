// Keeps the latencies of the last ten minutes of each model version, in steps of ten seconds, for
// the charts of the status page.
//
//   LatencyHistory history;
//   history.Take(metrics of all versions);      // every kStep
//   history.Of(version->metrics());             // [{"name": "call", "p50": [...], ...}]
//
// A step holds what was observed since the one before it, so that its quantiles are those of ten
// seconds, not of all time. Costs 1.4 KB for each kind of latency that a version has had. Forgets
// versions that are gone. Thread-safe.
#ifndef ATHANOR_SERVER_HTTP_PAGES_LATENCY_HISTORY_H_
#define ATHANOR_SERVER_HTTP_PAGES_LATENCY_HISTORY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "deploy/bazel/libs/mutex.h"
#include "nlohmann/json.hpp"
#include "server/metrics/metrics.h"

namespace athanor {

class LatencyHistory {
 public:
  static constexpr std::chrono::seconds kStep{10};
  static constexpr size_t kSteps = 60;

  using VersionCells = std::shared_ptr<const VersionMetrics>;

  void Take(const std::vector<VersionCells>& versions);
  // Returns an object for each kind of latency that was ever observed: `name`, and `p50`, `p99`
  // (seconds, null without calls) and `calls` of the steps, the oldest first, at most kSteps.
  nlohmann::json Of(const VersionCells& version) const;

 private:
  struct Step {
    int64_t calls = 0;
    float p50 = 0, p99 = 0;  // seconds
  };
  struct Track {
    HistogramCounts before;
    std::deque<Step> steps;
  };
  static void TakeStep(Metric metric, const VersionMetrics& version, Track* track);

  mutable Mutex mu_;
  std::map<std::weak_ptr<const VersionMetrics>, std::map<Metric, Track>, std::owner_less<>> tracks_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_LATENCY_HISTORY_H_
