#include "server/calls/embedding_runs.h"

#include <algorithm>
#include <numeric>

namespace athanor {

std::vector<EmbeddingRun> EmbeddingRuns(absl::Span<const int64_t> lengths,
                                        const EmbeddingLimits& limits) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return lengths[a] != lengths[b] ? lengths[a] > lengths[b] : a < b;
  });
  std::vector<EmbeddingRun> runs;
  int64_t used = 0;  // positions of the last run that are no padding
  for (const size_t input : order) {
    const int64_t length = std::max(lengths[input], limits.least_length);
    if (!runs.empty()) {
      EmbeddingRun& run = runs.back();
      const auto rows = static_cast<int64_t>(run.inputs.size()) + 1;
      if (rows <= limits.rows && rows * run.length <= limits.tokens &&
          4 * (used + length) >= 3 * rows * run.length) {
        run.inputs.push_back(input);
        used += length;
        continue;
      }
    }
    runs.push_back({.length = length, .inputs = {input}});
    used = length;
  }
  return runs;
}

}  // namespace athanor
