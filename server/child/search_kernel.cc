#include "server/child/search_kernel.h"

namespace athanor {

double WeightedSeconds(absl::Span<const double> seconds, const internal::SearchKernel& kernel) {
  double sum = 0;
  for (size_t s = 0; s < seconds.size(); ++s) {
    const int size = static_cast<int>(s);
    sum += seconds[s] * (kernel.size_weights().empty() ? 1 : kernel.size_weights(size));
  }
  return sum;
}

bool FasterThanBest(absl::Span<const double> seconds, const internal::SearchKernel& kernel) {
  return WeightedSeconds(seconds, kernel) < WeightedSeconds(kernel.best_seconds(), kernel);
}

const v1::Kernel& OwnKernel(const v1::Plan& plan) {
  return plan.kernels(plan.run(plan.run_size() - 1).kernel());
}

}  // namespace athanor
