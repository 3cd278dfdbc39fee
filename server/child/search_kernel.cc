#include "server/child/search_kernel.h"

namespace athanor {

bool FasterThanBest(absl::Span<const double> seconds, const internal::SearchKernel& kernel) {
  double is = 0, best = 0;
  for (size_t s = 0; s < seconds.size(); ++s) {
    const int size = static_cast<int>(s);
    const double weight = kernel.size_weights().empty() ? 1 : kernel.size_weights(size);
    is += weight * seconds[s];
    best += weight * kernel.best_seconds(size);
  }
  return is < best;
}

const v1::Kernel& OwnKernel(const v1::Plan& plan) {
  return plan.kernels(plan.run(plan.run_size() - 1).kernel());
}

}  // namespace athanor
