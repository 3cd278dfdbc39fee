#include "server/tuner/measure/median.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace athanor {
namespace {

// Fewer samples have no interval of 95 %. Their ratio is known only if each is far above the limit:
// noise of this size in the same plan's samples alone would have to come every time.
constexpr int kLeastKnown = 6;
constexpr double kFarAbove = 1.1;

}  // namespace

// Computes the interval whatever the distribution: ranks of the binomial by its normal
// approximation (Le Boudec, Performance Evaluation of Computer and Communication Systems, 2010,
// table A.1 and its formula).
Median MedianOf(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  const double half = 0.5 * static_cast<double>(n), off = 0.98 * std::sqrt(static_cast<double>(n));
  const size_t low = half - off < 1 ? 0 : static_cast<size_t>(half - off) - 1;
  return {samples[n / 2], samples[low], samples[n - 1 - low], static_cast<int>(n)};
}

Median PairedRatio(const std::vector<double>& samples, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(samples.size(), to.size()); ++i) {
    ratios.push_back(samples[i] / to[i]);
  }
  return MedianOf(std::move(ratios));
}

Median Scaled(const Median& ratio, double seconds) {
  return {ratio.value * seconds, ratio.low * seconds, ratio.high * seconds, ratio.samples};
}

Median SumOf(const std::vector<Median>& times) {
  Median sum;
  double below = 0, above = 0;
  for (const Median& t : times) {
    sum.samples = sum.samples == 0 ? t.samples : std::min(sum.samples, t.samples);
    sum.value += t.value;
    sum.low += t.low;
    sum.high += t.high;
    below += (t.value - t.low) * (t.value - t.low);
    above += (t.high - t.value) * (t.high - t.value);
  }
  if (sum.samples < kLeastKnown) return sum;
  sum.low = sum.value - std::sqrt(below);
  sum.high = sum.value + std::sqrt(above);
  return sum;
}

bool RatioIsKnown(const Median& ratio, double limit) {
  if (ratio.samples < kLeastKnown) return ratio.low > kFarAbove * limit;
  return ratio.high < limit || ratio.low > limit;
}

}  // namespace athanor
