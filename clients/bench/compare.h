// Two servers, or two runs, side by side.
//
//   Interleaved turns = RunInterleaved(first, second, {.slice = {2, 500, 500}, .pairs = 15});
//   json comparison = Compare(turns, options, options, slos);   // {"ratios": {"p99_e2el_ms":
//   {"value": 0.8, ...}}}
//
// Slices go A B B A A B B A ..., so that what drifts (clocks, heat, neighbours) meets both alike;
// both slices of a pair have the same arrivals and requests.
#ifndef ATHANOR_CLIENTS_BENCH_COMPARE_H_
#define ATHANOR_CLIENTS_BENCH_COMPARE_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "clients/bench/load.h"
#include "clients/bench/metrics.h"
#include "nlohmann/json.hpp"

namespace athanor::bench {

struct Turns {
  Phase slice;  // one slice's load
  int pairs = 0;
};

struct Interleaved {
  Turns turns;
  std::vector<LoadResult> first, second;  // a pair per index
};

// REQUIRES: both have the same kind of arrivals.
Interleaved RunInterleaved(Load* first, Load* second, const Turns& turns);

// Slices one after the other, as one run.
LoadResult Join(absl::Span<const LoadResult> slices);

// The keys whose ratios are told.
std::vector<std::string> ComparedKeys();

// Ratios second over first. Of latencies: the median over those pairs of slices in which both
// answered. Of throughput and goodput: the sums over all pairs, so that a slice without an answer
// counts as the 0 that it is. With the quartiles of the pairs (null: infinite), and 95 % intervals
// by drawing pairs with replacement (where there are five or more). "warnings" says, in sentences,
// what is left out.
nlohmann::json Compare(const Interleaved& slices, const LoadOptions& first,
                       const LoadOptions& second, absl::Span<const Slo> slos);

// Of two runs at different times: the ratio of the two figures; its interval from both, taken as
// independent and normal on the logarithmic scale. "warnings" as above.
nlohmann::json CompareSummaries(const nlohmann::json& first, const nlohmann::json& second);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_COMPARE_H_
