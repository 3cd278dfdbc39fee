#include "server/tuner/told_times.h"

#include <algorithm>
#include <vector>

#include "server/child/search_kernel.h"
#include "server/tuner/measure/median.h"

namespace athanor {

internal::SizeTimes RelativeTo(double seconds, const internal::SizeTimes& raced) {
  internal::SizeTimes times = raced;
  times.set_seconds(seconds * raced.ratio());
  times.set_low(seconds * raced.ratio_low());
  times.set_high(seconds * raced.ratio_high());
  return times;
}

void TellAtLeast(double seconds, const internal::SearchKernel& asked,
                 internal::TryOutcome* outcome) {
  std::vector<double> sizes;
  for (const internal::SizeTimes& size : outcome->times()) sizes.push_back(size.seconds());
  constexpr double kRounding = 1 + 1e-9;
  const double times = kRounding * seconds / WeightedSeconds(sizes, asked);
  for (internal::SizeTimes& size : *outcome->mutable_times()) {
    if (times <= 1) break;
    size.set_seconds(size.seconds() * times);
    size.set_low(size.low() * times);
    size.set_high(size.high() * times);
  }
}

void TellSurely(double best, const internal::SearchKernel& asked, internal::TryOutcome* outcome) {
  std::vector<Median> times;
  for (int s = 0; s < outcome->times_size(); ++s) {
    const internal::SizeTimes& size = outcome->times(s);
    const double weight = asked.size_weights().empty() ? 1 : asked.size_weights(s);
    times.push_back(Scaled({size.seconds(), size.low(), size.high(), size.rounds()}, weight));
  }
  const Median sum = SumOf(times);
  if (sum.value >= best) return;
  const bool gains = sum.value <= (1 - kLeastKernelGain) * best;
  TellAtLeast(gains ? std::min(sum.high, best) : best, asked, outcome);
}

}  // namespace athanor
