#include "server/metrics/metric_table.h"

#include <cstddef>

namespace athanor {
namespace {

using Text = absl::string_view;

constexpr int64_t kMicrosecond = 1'000;
constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kSecond = 1'000'000'000;

// Steps of a factor of 1.6 (a fifth of a decade) where calls are expected, wider elsewhere.
constexpr int64_t kLatencyBounds[] = {
    10 * kMicrosecond,    16 * kMicrosecond,  25 * kMicrosecond,    40 * kMicrosecond,
    63 * kMicrosecond,    100 * kMicrosecond, 160 * kMicrosecond,   250 * kMicrosecond,
    400 * kMicrosecond,   630 * kMicrosecond, 1 * kMillisecond,     1'600 * kMicrosecond,
    2'500 * kMicrosecond, 4 * kMillisecond,   6'300 * kMicrosecond, 10 * kMillisecond,
    32 * kMillisecond,    100 * kMillisecond, 320 * kMillisecond,   1 * kSecond,
    3'200 * kMillisecond, 10 * kSecond,
};
// Compilations take longer.
constexpr int64_t kCompileBounds[] = {
    1 * kMillisecond,   3'200 * kMicrosecond, 10 * kMillisecond, 32 * kMillisecond,
    100 * kMillisecond, 320 * kMillisecond,   1 * kSecond,       3'200 * kMillisecond,
    10 * kSecond,       32 * kSecond,         100 * kSecond,     320 * kSecond,
    1'000 * kSecond,
};

constexpr int64_t kRowBounds[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1'024, 4'096, 16'384};

constexpr Text kCode[] = {"code"};
// Indexed by code, as in absl and gRPC.
constexpr Text kCodes[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};
constexpr Text kReason[] = {"reason"};
constexpr Text kRefusals[] = {"draining", "pending",      "queue",   "uploads",
                              "memory",   "compile_jobs", "streams", "connections"};
// Indexed by v1::CompileJob::StopReason.
constexpr Text kStopReasons[] = {
    "",         "baseline_only", "error",     "cancelled", "model_deleted", "shutdown",
    "roofline", "stagnation",    "exhausted", "budget",    "search_failed", "restored"};
constexpr Text kPhase[] = {"phase"};
constexpr Text kPhases[] = {"lower", "kernels", "check", "load"};
constexpr Text kTier[] = {"tier"};
constexpr Text kTierReason[] = {"tier", "reason"};
constexpr Text kModelVersion[] = {"model", "version"};
constexpr Text kState[] = {"state"};
constexpr Text kKind[] = {"kind"};
constexpr Text kVersion[] = {"version"};
constexpr Text kDevice[] = {"device"};
constexpr Text kDeviceClocks[] = {"device", "clock"};
constexpr Text kDeviceFacts[] = {"device", "chip", "compute_capability", "driver"};

constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;
constexpr MetricType kHistogram = MetricType::kHistogram;
constexpr MetricScope kOfVersion = MetricScope::kVersion;
constexpr MetricScope kOfServer = MetricScope::kServer;
constexpr MetricScope kAsked = MetricScope::kAsked;

constexpr MetricRow kTable[] = {
    {Metric::kRequests,
     "athanor_requests_total",
     kCounter,
     kOfVersion,
     "",
     "ModelInfer calls that ended, by status code; calls for an unknown model have empty labels.",
     kCode,
     kCodes,
     {}},
    {Metric::kRequestSeconds,
     "athanor_request_seconds",
     kHistogram,
     kOfVersion,
     "seconds",
     "ModelInfer calls from arrival to the end of their reply, whatever their status.",
     {},
     {},
     kLatencyBounds},
    {Metric::kQueueSeconds,
     "athanor_queue_seconds",
     kHistogram,
     kOfVersion,
     "seconds",
     "Time from a call's arrival to the start of its run, with the wait for a plan, without the "
     "wait for others to share the run.",
     {},
     {},
     kLatencyBounds},
    {Metric::kStallSeconds,
     "athanor_stall_seconds",
     kHistogram,
     kOfVersion,
     "seconds",
     "Waits of calls for a plan that was not compiled yet.",
     {},
     {},
     kCompileBounds},
    {Metric::kExecSeconds,
     "athanor_exec_seconds",
     kHistogram,
     kOfVersion,
     "seconds",
     "Runs of plans, failed ones included; one that several calls share counts once.",
     {},
     {},
     kLatencyBounds},
    {Metric::kBatchSeconds,
     "athanor_batch_seconds",
     kHistogram,
     kOfVersion,
     "seconds",
     "Time that calls of batched versions waited for others to share a run.",
     {},
     {},
     kLatencyBounds},
    {Metric::kBatchRows,
     "athanor_batch_rows",
     kHistogram,
     kOfVersion,
     "rows",
     "Rows per run of batched versions.",
     {},
     {},
     kRowBounds},
    {Metric::kBatchSplits,
     "athanor_batch_splits_total",
     kCounter,
     kOfVersion,
     "",
     "Shared runs that failed, so that each of their calls ran alone.",
     {},
     {},
     {}},
    {Metric::kPlanSwaps,
     "athanor_plan_swaps_total",
     kCounter,
     kOfVersion,
     "",
     "Plans that began to serve: baselines, found ones, pinned ones.",
     {},
     {},
     {}},
    {Metric::kRefusals,
     "athanor_refusals_total",
     kCounter,
     kOfServer,
     "",
     "Calls, jobs and connections refused because of a limit or of the server's state.",
     kReason,
     kRefusals,
     {}},
    {Metric::kUploads,
     "athanor_uploads_total",
     kCounter,
     kOfServer,
     "",
     "UploadModel calls that ended, by status code.",
     kCode,
     kCodes,
     {}},
    {Metric::kCompileJobs,
     "athanor_compile_jobs_total",
     kCounter,
     kOfServer,
     "",
     "Compile jobs that ended, by reason.",
     kReason,
     kStopReasons,
     {}},
    {Metric::kCompileSeconds, "athanor_compile_seconds", kHistogram, kOfServer, "seconds",
     "Time of each phase of building a baseline or a plan with taps.", kPhase, kPhases,
     kCompileBounds},
    {Metric::kCandidates,
     "athanor_search_candidates_total",
     kCounter,
     kAsked,
     "",
     "Kernels and whole plans that searches measured, failed ones included.",
     {},
     {},
     {}},
    {Metric::kKernelsCompiled,
     "athanor_kernels_compiled_total",
     kCounter,
     kAsked,
     "",
     "Kernels compiled for a device, including those of candidates.",
     kDevice,
     {},
     {}},
    {Metric::kCacheHits,
     "athanor_cache_hits_total",
     kCounter,
     kAsked,
     "",
     "Look-ups that the cache answered.",
     kTier,
     {},
     {}},
    {Metric::kCacheMisses,
     "athanor_cache_misses_total",
     kCounter,
     kAsked,
     "",
     "Look-ups that the cache did not answer, by reason.",
     kTierReason,
     {},
     {}},
    {Metric::kCacheBytes,
     "athanor_cache_bytes",
     kGauge,
     kAsked,
     "bytes",
     "Size of the cache's file, with its log.",
     {},
     {},
     {}},
    {Metric::kSearchShare,
     "athanor_search_share_ratio",
     kGauge,
     kAsked,
     "ratio",
     "Time of the best plan that the version's latest search found, as a share of its baseline's.",
     kModelVersion,
     {},
     {}},
    {Metric::kModels,
     "athanor_models",
     kGauge,
     kAsked,
     "",
     "Model versions kept, by state.",
     kState,
     {},
     {}},
    {Metric::kCalls,
     "athanor_calls",
     kGauge,
     kAsked,
     "",
     "Calls being answered, streams included.",
     {},
     {},
     {}},
    {Metric::kQueued,
     "athanor_queued_requests",
     kGauge,
     kAsked,
     "",
     "Requests that wait for a run.",
     {},
     {},
     {}},
    {Metric::kUploadsRunning,
     "athanor_uploads_running",
     kGauge,
     kAsked,
     "",
     "Uploads under way.",
     {},
     {},
     {}},
    {Metric::kJobsUnfinished,
     "athanor_compile_jobs_unfinished",
     kGauge,
     kAsked,
     "",
     "Compile jobs that wait, compile or search.",
     {},
     {},
     {}},
    {Metric::kMemory,
     "athanor_memory_bytes",
     kGauge,
     kAsked,
     "bytes",
     "Memory held under --memory_limit, by kind.",
     kKind,
     {},
     {}},
    {Metric::kMemoryLimit,
     "athanor_memory_limit_bytes",
     kGauge,
     kAsked,
     "bytes",
     "Memory limit in bytes.",
     {},
     {},
     {}},
    {Metric::kResident,
     "athanor_resident_bytes",
     kGauge,
     kAsked,
     "bytes",
     "Memory of the server's process, as the system counts it.",
     {},
     {},
     {}},
    {Metric::kDeviceMemory,
     "athanor_device_memory_bytes",
     kGauge,
     kAsked,
     "bytes",
     "Memory that the server holds on a device with memory of its own.",
     kDevice,
     {},
     {}},
    {Metric::kDeviceMemoryLimit,
     "athanor_device_memory_limit_bytes",
     kGauge,
     kAsked,
     "bytes",
     "Most memory that the server may hold on a device with memory of its own.",
     kDevice,
     {},
     {}},
    {Metric::kDeviceClock,
     "athanor_device_clock_hertz",
     kGauge,
     kAsked,
     "hertz",
     "Clocks of a GPU now: of its multiprocessors (core) and its memory; 0 where its driver does "
     "not tell.",
     kDeviceClocks,
     {},
     {}},
    {Metric::kDeviceLost,
     "athanor_device_lost",
     kGauge,
     kAsked,
     "",
     "1 if a device is lost until the server restarts, else 0.",
     kDevice,
     {},
     {}},
    {Metric::kDeviceInfo,
     "athanor_device_info",
     kGauge,
     kAsked,
     "",
     "1, with what a GPU is; the CPU has a name only.",
     kDeviceFacts,
     {},
     {}},
    {Metric::kStartTime,
     "athanor_start_time_seconds",
     kGauge,
     kAsked,
     "seconds",
     "Time at which the server started, in seconds since 1970.",
     {},
     {},
     {}},
    {Metric::kInfo,
     "athanor_info",
     kGauge,
     kAsked,
     "",
     "1, with the server's version.",
     kVersion,
     {},
     {}},
};
static_assert(sizeof(kTable) / sizeof(kTable[0]) == kMetrics);

constexpr bool InOrder() {
  for (int i = 0; i < kMetrics; ++i) {
    if (static_cast<int>(kTable[i].metric) != i) return false;
  }
  return true;
}
static_assert(InOrder());

}  // namespace

absl::string_view MetricTypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

absl::Span<const MetricRow> MetricTable() { return kTable; }

const MetricRow& RowOf(Metric metric) { return kTable[static_cast<size_t>(metric)]; }

}  // namespace athanor
