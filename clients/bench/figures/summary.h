// Computes the figures of a run as JSON. The keys are those shared by serving benchmarks (vLLM's
// `bench serve`), of tensors or tokens; "formula" says how each figure is computed.
//
//   nlohmann::json summary = Summarise(result, options, slos);
//   summary["p99_e2el_ms"], summary["ci95"]["p99_e2el_ms"], summary["formula"]["p99_e2el_ms"]
//
// A figure that does not exist (no call was answered, the reply does not report it) is null, never
// zero. Pure and thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_FIGURES_SUMMARY_H_
#define ATHANOR_CLIENTS_BENCH_FIGURES_SUMMARY_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "clients/bench/figures/metrics.h"
#include "clients/bench/load/load.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

// The statistics of each metric: "mean", "median", "std", "p50" ... "p999".
absl::Span<const absl::string_view> StatisticNames();
std::string FigureKey(absl::string_view statistic, absl::string_view metric);  // "p99_e2el_ms"

// A generator did not keep up if more than kLateShare of its calls were sent more than kLateMs
// late.
inline constexpr double kLateMs = 1, kLateShare = 0.01;

nlohmann::json Summarise(const LoadResult& result, const LoadOptions& options,
                         absl::Span<const Slo> slos);

// Returns vLLM's detailed arrays, one value per call: "latencies" (s), "start_times" (s),
// "queue_times" (s), "errors" (codes; "" for an answered call); of streams of tokens also
// "input_lens", "output_lens", "ttfts" (s), "itls" (s, an array per call). Of a call that was not
// answered, all but the error are null or empty.
nlohmann::json Detailed(const LoadResult& result);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FIGURES_SUMMARY_H_
