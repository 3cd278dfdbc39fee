// Compares two servers, or two runs, side by side.
//
//   Interleaved turns = RunInterleaved(first, second, {.slice = {2, 500, 500}, .pairs = 15});
//   json comparison = Compare(turns, options, options, slos);   // {"ratios": {"p99_e2el_ms":
//   {"value": 0.8, ...}}}
//
// Slices alternate A B B A A B B A ..., so that drift (clocks, heat, neighbours) affects both
// servers alike; both slices of a pair have the same arrivals and requests.
#ifndef ATHANOR_CLIENTS_BENCH_FIGURES_COMPARE_H_
#define ATHANOR_CLIENTS_BENCH_FIGURES_COMPARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "clients/bench/figures/metrics.h"
#include "clients/bench/load/load.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

struct Turns {
  Phase slice;  // load of one slice
  int pairs = 0;
  uint64_t seed = 0;         // of the first pair; each pair has another
  int64_t first_number = 0;  // of the first call; each pair goes on where the one before it ended
};

struct Interleaved {
  Turns turns;
  std::vector<LoadResult> first, second;  // slices of equal index form a pair
  int64_t next_number = 0;                // behind those of all calls
};

// Runs the slices. REQUIRES: both loads have the same kind of arrivals.
Interleaved RunInterleaved(Load* first, Load* second, const Turns& turns);

// Joins slices, one after the other, into one run. Each lasts until its last call has ended.
LoadResult Join(absl::Span<const LoadResult> slices);

// Returns the keys for which ratios are computed.
std::vector<std::string> ComparedKeys();

// Returns ratios of the second to the first. A latency's ratio is the median over the pairs in
// which both servers answered. A ratio of throughput or goodput uses the sums over all pairs, so
// that a slice without an answer counts as 0. Each ratio has the quartiles over pairs (null:
// infinite) and, with at least five pairs, a 95 % interval from drawing pairs with replacement.
// "warnings" holds a sentence about each thing left out.
nlohmann::json Compare(const Interleaved& slices, const LoadOptions& first,
                       const LoadOptions& second, absl::Span<const Slo> slos);

// Compares two runs made at different times: the ratio of their figures, and its interval from both
// figures' intervals, taken as independent and normal on the logarithmic scale. "warnings" as in
// Compare.
nlohmann::json CompareSummaries(const nlohmann::json& first, const nlohmann::json& second);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FIGURES_COMPARE_H_
