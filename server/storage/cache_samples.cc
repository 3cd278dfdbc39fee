#include "server/storage/cache_samples.h"

#include <cstdint>
#include <string>
#include <utility>

namespace athanor {

void AddCacheSamples(const CacheCounts& counts, std::vector<MetricSample>* samples) {
  const auto add = [samples](Metric metric, int64_t value, std::vector<std::string> labels = {}) {
    samples->push_back({metric, std::move(labels), static_cast<double>(value)});
  };
  add(Metric::kCandidates, counts.candidates_measured);
  add(Metric::kCacheBytes, counts.bytes);
  for (const CacheCounts::Tier& tier : counts.tiers) {
    const std::string name(tier.name);
    add(Metric::kCacheHits, tier.hits, {name});
    for (int i = 0; i < kMissReasonCount; ++i) {
      const std::string reason(MissReasonName(static_cast<MissReason>(i)));
      add(Metric::kCacheMisses, tier.misses[i], {name, reason});
    }
  }
}

}  // namespace athanor
