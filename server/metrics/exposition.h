// Writes Prometheus' text format 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format).
//
//   Exposition text;
//   text.Begin(row);                                     // # HELP ..., # TYPE ...
//   text.AddCounter(row, {"digits", "1", "OK"}, 17);
//   std::move(text).Take();
//
// Escapes backslashes, quotes and line ends in label values, which users may choose freely. Used by
// one thread.
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

// A value of a kAsked row, with a text for each of the row's labels.
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
  // Adds cumulative buckets, `_sum` in seconds and `_count`.
  void AddHistogram(const MetricRow& row, const Labels& labels, const HistogramCounts& counts);
  std::string Take() && { return std::move(text_); }

 private:
  void AddName(const MetricRow& row, absl::string_view suffix, const Labels& labels,
               absl::string_view le = "");

  std::string text_;
};

// Returns the names of all labels of `row`: `model` and `version` come first for a row of a
// version.
std::vector<absl::string_view> LabelNames(const MetricRow& row);

// Returns nanoseconds as seconds, exactly and as short as possible: 1'600'000 is "0.0016".
std::string SecondsText(int64_t nanoseconds);

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_EXPOSITION_H_
