// All metrics of the server, and their text for Prometheus.
//
//   Metrics metrics(/*max_versions=*/1000);
//   std::shared_ptr<VersionMetrics> digits = metrics.ForVersion("digits", 1);
//   digits->cells.Observe(Metric::kExecSeconds, std::chrono::microseconds(73));
//   metrics.server().Count(Metric::kRefusals, Refusal::kMemory);
//   metrics.AddCollector([&](std::vector<MetricSample>* samples) {
//     samples->push_back({Metric::kCalls, {}, 3});
//   });
//   metrics.Text();   // exposition format 0.0.4
//
// Thread-safe. Counting takes no lock (metric_cells.h); reading, and adding or removing a version,
// take one. Prometheus-cpp was rejected: it locks a mutex per observation and brings a second HTTP
// server.
#ifndef ATHANOR_SERVER_METRICS_METRICS_H_
#define ATHANOR_SERVER_METRICS_METRICS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/bazel/libs/mutex.h"
#include "server/metrics/exposition.h"
#include "server/metrics/metric_cells.h"
#include "server/metrics/metric_table.h"

namespace athanor {

// The cells of one model version and their labels. Owned by the version: when it is destroyed, they
// disappear from the text.
struct VersionMetrics {
  VersionMetrics(std::string model, std::string version)
      : model(std::move(model)), version(std::move(version)) {}
  const std::string model;
  const std::string version;
  MetricCells cells{MetricScope::kVersion};
};

class Metrics {
 public:
  // Appends its samples, in any order; runs on the thread that reads.
  using Collector = std::function<void(std::vector<MetricSample>*)>;

  // Versions beyond `max_versions` at a time share one set of cells for as long as they live: a
  // counter that moved from one set of labels to another would look like a restart.
  explicit Metrics(int64_t max_versions);

  // Makes new cells on each call: call it once per version.
  std::shared_ptr<VersionMetrics> ForVersion(const std::string& model, int64_t version);
  // Cells of calls for a model that does not exist: their labels are empty.
  MetricCells& no_version() { return no_version_->cells; }
  // Reports whether `version` has labels of its own.
  bool IsOwn(const VersionMetrics& version) const { return &version != others_.get(); }
  MetricCells& server() { return server_; }

  void AddCollector(Collector collector);
  // Returns the current samples of all collectors.
  std::vector<MetricSample> Ask() const;
  // Returns the text of all metrics. For versions, of which there may be many, leaves out
  // histograms without observations and codes that never occurred.
  std::string Text() const;

 private:
  std::vector<std::shared_ptr<const VersionMetrics>> Living() const;

  const int64_t max_versions_;
  MetricCells server_{MetricScope::kServer};
  const std::shared_ptr<VersionMetrics> no_version_;
  const std::shared_ptr<VersionMetrics> others_;
  mutable Mutex mu_;
  mutable std::map<std::pair<std::string, int64_t>, std::weak_ptr<const VersionMetrics>> versions_
      ABSL_GUARDED_BY(mu_);
  // Erases expired versions at this size of versions_; at most max_versions_.
  int64_t erase_at_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<Collector> collectors_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_METRICS_H_
