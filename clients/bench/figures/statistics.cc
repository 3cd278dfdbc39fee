#include "clients/bench/figures/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace athanor::bench {
namespace {

constexpr double kLow = 0.025, kHigh = 0.975;
constexpr int kFewestRounds = 200, kMostRounds = 1000;
constexpr double kMostSteps = 1e8;

Interval Around(double value, std::vector<double> drawn) {
  std::sort(drawn.begin(), drawn.end());
  return {value, Percentile(drawn, kLow), Percentile(drawn, kHigh)};
}

// Computes percentiles with each value repeated as often as its block was drawn; false without
// values.
bool WeightedPercentiles(absl::Span<const Sample> sorted, absl::Span<const double> ps,
                         absl::Span<const uint32_t> weights, std::vector<double>* out) {
  uint64_t total = 0;
  for (const Sample& sample : sorted) total += weights[sample.block];
  if (total == 0) return false;
  out->clear();
  size_t at = 0;
  uint64_t passed = weights[sorted[0].block];  // number of drawn values in sorted[0..at]
  for (double p : ps) {
    const double position = p * static_cast<double>(total - 1);
    const uint64_t below = static_cast<uint64_t>(position);
    while (passed <= below) passed += weights[sorted[++at].block];
    double value = sorted[at].value;
    if (below + 1 < total) {
      // Finds the draw's next value: the same one if it repeats, else the next one whose block was
      // drawn.
      size_t next = at;
      for (uint64_t reached = passed; reached <= below + 1;)
        reached += weights[sorted[++next].block];
      value += (position - static_cast<double>(below)) * (sorted[next].value - value);
    }
    out->push_back(value);
  }
  return true;
}

}  // namespace

double Percentile(absl::Span<const double> sorted, double p) {
  if (sorted.empty()) return kNone;
  const double position = p * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double part = position - static_cast<double>(below);
  if (part == 0 || sorted[below] == sorted[below + 1]) return sorted[below];  // avoids inf - inf
  return sorted[below] + part * (sorted[below + 1] - sorted[below]);
}

double Mean(absl::Span<const double> values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? kNone : sum / static_cast<double>(values.size());
}

double StandardDeviation(absl::Span<const double> values) {
  if (values.size() < 2) return kNone;
  const double mean = Mean(values);
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

Resamples::Resamples(int blocks, int rounds, uint64_t seed) : blocks_(blocks), rounds_(rounds) {
  if (blocks_ < 2) return;
  weights_.resize(static_cast<size_t>(blocks) * rounds);
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> block(0, blocks - 1);
  for (int round = 0; round < rounds; ++round) {
    uint32_t* weights = &weights_[static_cast<size_t>(round) * blocks];
    for (int i = 0; i < blocks; ++i) ++weights[block(random)];
  }
}

absl::Span<const uint32_t> Resamples::Weights(int round) const {
  return absl::MakeConstSpan(weights_).subspan(static_cast<size_t>(round) * blocks_, blocks_);
}

int RoundsFor(size_t samples) {
  const double rounds = kMostSteps / std::max<double>(1, static_cast<double>(samples));
  return static_cast<int>(std::clamp<double>(rounds, kFewestRounds, kMostRounds));
}

std::vector<Interval> Percentiles(absl::Span<const Sample> sorted, absl::Span<const double> ps,
                                  const Resamples& resamples) {
  std::vector<Interval> intervals(ps.size());
  if (sorted.empty()) return intervals;
  std::vector<double> values;
  for (const Sample& sample : sorted) values.push_back(sample.value);
  std::vector<std::vector<double>> drawn(ps.size());
  std::vector<double> figures;
  for (int round = 0; round < resamples.rounds(); ++round) {
    if (!WeightedPercentiles(sorted, ps, resamples.Weights(round), &figures)) continue;
    for (size_t i = 0; i < ps.size(); ++i) drawn[i].push_back(figures[i]);
  }
  for (size_t i = 0; i < ps.size(); ++i) {
    intervals[i] = Around(Percentile(values, ps[i]), std::move(drawn[i]));
  }
  return intervals;
}

Interval RatioOfSums(absl::Span<const double> numerators, absl::Span<const double> denominators,
                     const Resamples& resamples) {
  double over = 0, under = 0;
  for (double n : numerators) over += n;
  for (double d : denominators) under += d;
  if (under == 0) return {};
  std::vector<double> drawn;
  for (int round = 0; round < resamples.rounds(); ++round) {
    const absl::Span<const uint32_t> weights = resamples.Weights(round);
    double n = 0, d = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      n += weights[i] * numerators[i];
      d += weights[i] * denominators[i];
    }
    if (d != 0) drawn.push_back(n / d);
  }
  return Around(over / under, std::move(drawn));
}

}  // namespace athanor::bench
