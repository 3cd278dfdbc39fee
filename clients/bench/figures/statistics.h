// Percentiles and their 95 % intervals by block bootstrap.
//
//   Resamples resamples(blocks, RoundsFor(samples.size()), seed);
//   Percentiles(sorted, {0.5, 0.99}, resamples)[1].low
//
// Neighbouring calls are slow together, so single calls are not independent draws. Blocks of time
// are drawn with replacement instead, and the figure is computed for each draw (Carlstein 1986,
// "The use of subseries values for estimating the variance of a general statistic from a stationary
// sequence"; the interval is Efron's percentile interval). Pure and thread-safe.
#ifndef ATHANOR_CLIENTS_BENCH_FIGURES_STATISTICS_H_
#define ATHANOR_CLIENTS_BENCH_FIGURES_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"

namespace athanor::bench {

inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A figure and its 95 % interval; NaN if undefined (no call, or a single block).
struct Interval {
  double value = kNone, low = kNone, high = kNone;
};

struct Sample {
  double value;
  int block;  // number of its block of time, from 0
};

// Returns the percentile at share `p` in [0, 1] of sorted values: interpolates linearly at position
// p (n - 1), counted from 0. NaN for no values. Values may be infinite.
double Percentile(absl::Span<const double> sorted, double p);
double Mean(absl::Span<const double> values);
// Returns the sample's standard deviation, with n - 1; NaN for fewer than two values.
double StandardDeviation(absl::Span<const double> values);

// Draws of blocks with replacement, determined by the seed.
class Resamples {
 public:
  Resamples(int blocks, int rounds, uint64_t seed);

  int blocks() const { return blocks_; }
  int rounds() const { return blocks_ < 2 ? 0 : rounds_; }
  // Returns how often each block occurs in the draw of this round.
  absl::Span<const uint32_t> Weights(int round) const;

 private:
  int blocks_, rounds_;
  std::vector<uint32_t> weights_;
};

// Returns how many draws to make for a figure of `samples` values: 1000, down to 200 above 100,000
// values.
int RoundsFor(size_t samples);

// Returns the percentile of each share in `ps`. REQUIRES: `sorted` is sorted by value, `ps` ascend,
// blocks are in range.
std::vector<Interval> Percentiles(absl::Span<const Sample> sorted, absl::Span<const double> ps,
                                  const Resamples& resamples);
// Returns sum(numerators) / sum(denominators), both given per block: means, and counts per second.
Interval RatioOfSums(absl::Span<const double> numerators, absl::Span<const double> denominators,
                     const Resamples& resamples);

}  // namespace athanor::bench

#endif  // ATHANOR_CLIENTS_BENCH_FIGURES_STATISTICS_H_
