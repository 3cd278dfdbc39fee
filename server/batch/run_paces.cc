#include "server/batch/run_paces.h"

#include <algorithm>

namespace athanor {
namespace {

// Weight of the latest run in a model's pace (moving average).
constexpr double kNewShare = 0.1;
// Beyond this many models, all paces are forgotten at once, since most models are not used any
// more.
constexpr size_t kMostPaces = 4096;
constexpr double kLeastRatio = 1e-3, kMostRatio = 1e3;

}  // namespace

double RunPaces::Of(const std::string& model) const {
  const auto pace = paces_.find(model);
  return pace == paces_.end() ? 1 : pace->second.ratio;
}

bool RunPaces::Shares(const std::string& model) const {
  const auto pace = paces_.find(model);
  return pace != paces_.end() && pace->second.shared;
}

void RunPaces::Learn(const std::string& model, int64_t predicted_us,
                     std::chrono::steady_clock::duration took, size_t requests) {
  const double ratio =
      std::chrono::duration<double, std::micro>(took).count() / static_cast<double>(predicted_us);
  if (paces_.size() > kMostPaces) paces_.clear();
  Pace& pace = paces_[model];
  pace.shared = requests > 1;
  // The prediction itself has the weight of one run.
  const double share = std::max(kNewShare, 1.0 / static_cast<double>(++pace.runs + 1));
  pace.ratio += share * (std::clamp(ratio, kLeastRatio, kMostRatio) - pace.ratio);
}

}  // namespace athanor
