// The state of the server as samples for its metrics.
//
//   core.metrics().AddCollector([&core](std::vector<MetricSample>* samples) {
//     AddCoreSamples(core, samples);
//   });
//
// Reads the parts of the core. May run on any thread, concurrently with everything else.
#ifndef ATHANOR_SERVER_HTTP_PAGES_CORE_SAMPLES_H_
#define ATHANOR_SERVER_HTTP_PAGES_CORE_SAMPLES_H_

#include <cstdint>
#include <vector>

#include "server/core/core.h"
#include "server/metrics/exposition.h"

namespace athanor {

void AddCoreSamples(ServerCore& core, std::vector<MetricSample>* samples);

// Count the requests that wait in queues, and the compile jobs that have not ended.
int64_t QueuedRequests(ServerCore& core);
int64_t UnfinishedJobs(ServerCore& core);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_CORE_SAMPLES_H_
