// The table of all metrics, one row each. Everything else about a metric (its cells, its text, its
// place on the status page) is derived from its row.
//
//   const MetricRow& row = RowOf(Metric::kQueueSeconds);
//   row.name;      // "athanor_queue_seconds"
//   row.bounds;    // upper bounds of its buckets; nanoseconds if its unit is seconds
//
// Names follow Prometheus: base units in the name, `_total` for counters.
#ifndef ATHANOR_SERVER_METRICS_METRIC_TABLE_H_
#define ATHANOR_SERVER_METRICS_METRIC_TABLE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace athanor {

enum class Metric : uint8_t {
  // Metrics of a model version.
  kRequests,
  kRequestSeconds,
  kQueueSeconds,
  kStallSeconds,
  kExecSeconds,
  kBatchSeconds,
  kBatchRows,
  kBatchSplits,
  kPlanSwaps,
  // Count sequences of a language model; names and bounds are vLLM's.
  kPromptTokens,
  kGenerationTokens,
  kPrefixQueries,
  kPrefixHits,
  kPreemptions,
  kRecomputedTokens,
  kStepTokens,
  kSequencesEnded,
  kTimeToFirstToken,
  kInterTokenLatency,
  kTimePerOutputToken,
  kSequenceSeconds,
  kSequenceQueueSeconds,
  // Metrics of the server.
  kRefusals,
  kUploads,
  kCompileJobs,
  kCompileSeconds,
  kSpansSent,
  kSpansDropped,
  // Metrics that are not counted here but collected when read.
  kCandidates,
  kKernelsCompiled,
  kCacheHits,
  kCacheMisses,
  kCacheBytes,
  kSearchShare,
  kSequencesRunning,
  kSequencesWaiting,
  kKvCacheUsage,
  kModels,
  kCalls,
  kQueued,
  kModelQueued,
  kUploadsRunning,
  kJobsUnfinished,
  kMemory,
  kMemoryLimit,
  kDeviceMemory,
  kDeviceMemoryLimit,
  kDeviceClock,
  kDeviceLost,
  kDeviceInfo,
  kBuildInfo,
  // Of the process, under the names that all of Prometheus' clients have.
  kProcessCpu,
  kProcessResident,
  kProcessVirtual,
  kProcessThreads,
  kProcessOpenFds,
  kProcessMaxFds,
  kProcessStart,
};
inline constexpr int kMetrics = static_cast<int>(Metric::kProcessStart) + 1;

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };
absl::string_view MetricTypeName(MetricType type);

// Source of a metric's values.
enum class MetricScope : uint8_t {
  kVersion,  // cells of each model version; labels `model` and `version` come first
  kServer,   // cells of the server
  kAsked,    // a collector, at each read
};

struct MetricRow {
  Metric metric;
  absl::string_view name;
  MetricType type;
  MetricScope scope;
  absl::string_view
      unit;  // "seconds", "bytes", "ratio", "rows", "tokens", "hertz", or empty for a plain count
  absl::string_view help;
  absl::Span<const absl::string_view> labels;  // without the `model` and `version` of kVersion
  // Values of the one label that cells may have; an empty one is a number not in use.
  absl::Span<const absl::string_view> values;
  // Bounds of a histogram: inclusive, ascending, nanoseconds if the unit is seconds.
  absl::Span<const int64_t> bounds;

  // Number of cells: one per label value; for a histogram, one per label value and bucket, plus one
  // for the sum.
  constexpr int cells() const {
    if (scope == MetricScope::kAsked) return 0;
    const int series = values.empty() ? 1 : static_cast<int>(values.size());
    return type == MetricType::kHistogram ? series * (static_cast<int>(bounds.size()) + 2) : series;
  }
};

// Returns all rows in the order of Metric.
absl::Span<const MetricRow> MetricTable();
const MetricRow& RowOf(Metric metric);

// Label values, by number. The numbers of kRequests and kUploads are absl::StatusCode, those of
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
enum class FinishedReason : uint8_t { kStop, kLength, kAbort, kError };
enum class SpanDrop : uint8_t { kQueue, kRequest, kRefused, kUnsent };
enum class CompilePhase : uint8_t { kLower, kKernels, kCheck, kLoad };

}  // namespace athanor

#endif  // ATHANOR_SERVER_METRICS_METRIC_TABLE_H_
