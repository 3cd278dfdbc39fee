// Prometheus' text format 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format).
//
//   Exposition text;
//   text.Begin(row);                                     // # HELP ..., # TYPE ...
//   text.AddCounter(row, {"digits", "1", "OK"}, 17);
//   std::move(text).Take();
//
// Label values are whatever users chose: backslashes, quotes and line ends are escaped. Used by one
// thread.
#ifndef ATHANOR_SERVER_METRICS_EXPOSITION_H_
#define ATHANOR_SERVER_METRICS_EXPOSITION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/metrics/metric_cells.h"
#include "server/metrics/metric_table.h"

namespace athanor {

// A value of a row of MetricScope::kAsked, with a text for each of its labels.
struct MetricSample {
  Metric metric;
  std::vector<std::string> labels;
  double value = 0;
};

class Exposition {
 public:
  using Labels = std::vector<absl::string_view>;  // in the order of LabelNames(row)

  void Begin(const MetricRow& row);
  void AddCounter(const MetricRow& row, const Labels& labels, int64_t value);
  void AddValue(const MetricRow& row, const Labels& labels, double value);
  // Cumulative buckets, `_sum` in seconds, `_count`.
  void AddHistogram(const MetricRow& row, const Labels& labels, const HistogramCounts& counts);
  std::string Take() && { return std::move(text_); }

 private:
  void AddName(const MetricRow& row, absl::string_view suffix, const Labels& labels,
               absl::string_view le = "");

  std::string text_;
};

// All of them: `model` and `version` first where the row is of versions.
std::vector<absl::string_view> LabelNames(const MetricRow& row);

// 1'600'000 is "0.0016": exact, as short as possible.
std::string SecondsText(int64_t nanoseconds);

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_EXPOSITION_H_
