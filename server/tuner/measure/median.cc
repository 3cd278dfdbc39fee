#include "server/tuner/measure/median.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace athanor {

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

bool ComparisonIsKnown(std::vector<Median> medians, double share) {
  std::sort(medians.begin(), medians.end(),
            [](const Median& a, const Median& b) { return a.value < b.value; });
  for (size_t i = 1; i < medians.size(); ++i) {
    const Median &less = medians[i - 1], &more = medians[i];
    const bool apart = less.high < more.low;
    if (!apart && !(less.KnownWithin(share) && more.KnownWithin(share))) return false;
  }
  return true;
}

}  // namespace athanor
