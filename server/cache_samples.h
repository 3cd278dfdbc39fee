// What the cache says of itself, as samples of the server's metrics.
//
//   std::vector<MetricSample> samples;
//   AddCacheSamples(stat, &samples);
#ifndef ATHANOR_SERVER_CACHE_SAMPLES_H_
#define ATHANOR_SERVER_CACHE_SAMPLES_H_

#include <vector>

#include "proto/athanor/v1/cache.pb.h"
#include "server/metrics/exposition.h"

namespace athanor {

// With what was compiled and measured: the cache counts it (Cache::Work). Misses without a reason
// of their own have "other".
void AddCacheSamples(const v1::CacheStat& stat, std::vector<MetricSample>* samples);

}  // namespace athanor

#endif  // ATHANOR_SERVER_CACHE_SAMPLES_H_
