// A run in figures, as JSON. Keys are those that serving benchmarks share (vLLM's `bench serve`)
// with tensors for tokens, and "formula" says how each one comes about.
//
//   nlohmann::json summary = Summarise(result, options, slos);
//   summary["p99_e2el_ms"], summary["ci95"]["p99_e2el_ms"], summary["formula"]["p99_e2el_ms"]
//
// Figures that do not exist (no call was answered, the reply does not say) are null, never zero.
// Pure and thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_SUMMARY_H_
#define ATHANOR_CLIENTS_BENCH_SUMMARY_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "clients/bench/load.h"
#include "clients/bench/metrics.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

// The statistics of each metric: "mean", "median", "std", "p50" ... "p999".
absl::Span<const absl::string_view> StatisticNames();
std::string FigureKey(absl::string_view statistic, absl::string_view metric);  // "p99_e2el_ms"

// A generator that sent more than this share of its calls more than kLateMs late did not keep up.
inline constexpr double kLateMs = 1, kLateShare = 0.01;

nlohmann::json Summarise(const LoadResult& result, const LoadOptions& options,
                         absl::Span<const Slo> slos);

// vLLM's detailed arrays, call by call: "latencies" (s), "start_times" (s), "queue_times" (s),
// "errors" (codes; "" where answered).
nlohmann::json Detailed(const LoadResult& result);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_SUMMARY_H_
