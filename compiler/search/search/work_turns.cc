#include "compiler/search/search/work_turns.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace athanor {

void WorkTurns::CountKernel() {
  // Number of kernels, about, over which spent_ is averaged.
  constexpr double kTurnMemory = 64;
  // An exponential average: work of long ago counts little.
  for (double& spent : spent_) spent *= 1 - 1 / kTurnMemory;
  ++spent_[static_cast<size_t>(working_)];
}

std::array<Work, kWorks> WorkTurns::Order(const std::array<double, kWorks>& promise) const {
  constexpr double kLeastShare = 0.2;
  double all = 0;
  for (double p : promise) all += p;
  std::array<double, kWorks> waited;  // by Work: kernels spent per promise; the least comes first
  for (size_t w = 0; w < kWorks; ++w) {
    waited[w] = promise[w] > 0 ? spent_[w] / std::max(promise[w], kLeastShare * all)
                               : std::numeric_limits<double>::infinity();
  }
  std::array<Work, kWorks> turns = {Work::kSchedules, Work::kFlips, Work::kForms};
  std::sort(turns.begin(), turns.end(), [&](Work a, Work b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return std::tie(waited[i], promise[j], i) < std::tie(waited[j], promise[i], j);
  });
  return turns;
}

}  // namespace athanor
