// Everything the server counts, and its text for Prometheus.
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
// Thread-safe. What counts takes no lock (metric_cells.h); reading, and a version's coming and
// going, take one. Prometheus-cpp was rejected: it locks a mutex per observation and brings a
// second HTTP server.
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

// The cells of one model version and the labels they go by. Held by the version: when it goes,
// they leave the text with it.
struct VersionMetrics {
  VersionMetrics(std::string model, std::string version)
      : model(std::move(model)), version(std::move(version)) {}
  const std::string model;
  const std::string version;
  MetricCells cells{MetricScope::kVersion};
};

class Metrics {
 public:
  // Adds what it knows to the samples, in any order; from the thread that reads.
  using Collector = std::function<void(std::vector<MetricSample>*)>;

  // Versions above `max_versions` at a time are counted together, for as long as they live: a
  // counter that moved from one set of labels to another would look like a restart.
  explicit Metrics(int64_t max_versions);

  // Each call makes new cells: once per version.
  std::shared_ptr<VersionMetrics> ForVersion(const std::string& model, int64_t version);
  // Of calls for a model that there is not: empty labels.
  MetricCells& no_version() { return no_version_->cells; }
  // Whether it has labels of its own.
  bool IsOwn(const VersionMetrics& version) const { return &version != others_.get(); }
  MetricCells& server() { return server_; }

  void AddCollector(Collector collector);
  // What all collectors say now.
  std::vector<MetricSample> Ask() const;
  // All of it. A histogram that has observed nothing and a code that never was are left out for
  // versions, of which there may be many.
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
  int64_t erase_at_ ABSL_GUARDED_BY(mu_) = 0;  // size of versions_; at most max_versions_
  std::vector<Collector> collectors_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_METRICS_H_
