#include "server/cache_samples.h"

#include <cstdint>
#include <string>
#include <utility>

namespace athanor {

void AddCacheSamples(const v1::CacheStat& stat, std::vector<MetricSample>* samples) {
  const auto add = [samples](Metric metric, int64_t value, std::vector<std::string> labels = {}) {
    samples->push_back({metric, std::move(labels), static_cast<double>(value)});
  };
  add(Metric::kCandidates, stat.candidates_measured());
  add(Metric::kKernelsCompiled, stat.kernels_compiled());
  add(Metric::kCacheBytes, stat.bytes());
  for (const v1::CacheStat::TierStat& tier : stat.tiers()) {
    add(Metric::kCacheHits, tier.hits(), {tier.tier()});
    int64_t other = tier.misses();
    for (const auto& [reason, misses] : tier.misses_by_reason()) {
      add(Metric::kCacheMisses, misses, {tier.tier(), reason});
      other -= misses;
    }
    if (other > 0 || tier.misses_by_reason().empty()) {
      add(Metric::kCacheMisses, other, {tier.tier(), "other"});
    }
  }
}

}  // namespace athanor
