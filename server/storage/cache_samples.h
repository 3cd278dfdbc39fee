// Turns the cache's counters into samples of the server's metrics.
//
//   std::vector<MetricSample> samples;
//   AddCacheSamples(core.cache().Counts(), &samples);
#ifndef ATHANOR_SERVER_STORAGE_CACHE_SAMPLES_H_
#define ATHANOR_SERVER_STORAGE_CACHE_SAMPLES_H_

#include <vector>

#include "compiler/cache/cache.h"
#include "server/metrics/exposition.h"

namespace athanor {

// Adds the same series each time: every tier with every MissReason, even those at 0.
void AddCacheSamples(const CacheCounts& counts, std::vector<MetricSample>* samples);

}  // namespace athanor

#endif  // ATHANOR_SERVER_STORAGE_CACHE_SAMPLES_H_
