// What the server counts and measures: one row each. Everything else about a metric (its cells, its
// text, its place on the status page) is read from its row.
//
//   const MetricRow& row = RowOf(Metric::kQueueSeconds);
//   row.name;      // "athanor_queue_seconds"
//   row.bounds;    // upper bounds of its buckets; nanoseconds where its unit is seconds
//
// Names follow Prometheus: base units in the name, `_total` for what only grows.
#ifndef ATHANOR_SERVER_METRICS_METRIC_TABLE_H_
#define ATHANOR_SERVER_METRICS_METRIC_TABLE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

enum class Metric : uint8_t {
  // Of a model version.
  kRequests,
  kRequestSeconds,
  kQueueSeconds,
  kStallSeconds,
  kExecSeconds,
  kBatchSeconds,
  kBatchRows,
  kBatchSplits,
  kPlanSwaps,
  // Of the server.
  kRefusals,
  kUploads,
  kCompileJobs,
  kCompileSeconds,
  // Not counted here: asked for when they are read.
  kCandidates,
  kKernelsCompiled,
  kCacheHits,
  kCacheMisses,
  kCacheBytes,
  kSearchShare,
  kModels,
  kCalls,
  kQueued,
  kUploadsRunning,
  kJobsUnfinished,
  kMemory,
  kMemoryLimit,
  kResident,
  kStartTime,
  kInfo,
};
inline constexpr int kMetrics = static_cast<int>(Metric::kInfo) + 1;

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };
absl::string_view MetricTypeName(MetricType type);

// Where the numbers come from.
enum class MetricScope : uint8_t {
  kVersion,  // cells of each model version; labels `model` and `version` come first
  kServer,   // cells of the server
  kAsked,    // a collector, when somebody reads
};

struct MetricRow {
  Metric metric;
  absl::string_view name;
  MetricType type;
  MetricScope scope;
  absl::string_view unit;  // "seconds", "bytes", "ratio", "rows", or empty for a plain count
  absl::string_view help;
  absl::Span<const absl::string_view> labels;  // without `model` and `version` of kVersion
  // Of the one label that cells may have; an empty one stands for a number that is not in use.
  absl::Span<const absl::string_view> values;
  // Of a histogram; inclusive, ascending; nanoseconds where the unit is seconds.
  absl::Span<const int64_t> bounds;

  // Cells that it takes: one per label value, or per label value and bucket with a sum behind.
  constexpr int cells() const {
    if (scope == MetricScope::kAsked) return 0;
    const int series = values.empty() ? 1 : static_cast<int>(values.size());
    return type == MetricType::kHistogram ? series * (static_cast<int>(bounds.size()) + 2) : series;
  }
};

// In the order of Metric.
absl::Span<const MetricRow> MetricTable();
const MetricRow& RowOf(Metric metric);

// The number of a label value. Those of kRequests and kUploads are absl::StatusCode, those of
// kCompileJobs v1::CompileJob::StopReason.
enum class Refusal : uint8_t {
  kDraining,
  kPending,
  kQueue,
  kUploads,
  kMemory,
  kCompileJobs,
  kStreams,
  kConnections
};
enum class CompilePhase : uint8_t { kLower, kKernels, kCheck, kLoad };

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_METRIC_TABLE_H_
