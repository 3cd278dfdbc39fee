// The server in numbers and names: as JSON for the status page and whoever reads along, and as
// samples for its metrics.
//
//   ServerStatus(core).dump();
//   core.metrics().AddCollector([&core, started](std::vector<MetricSample>* samples) {
//     AddCoreSamples(core, started, samples);
//   });
//
// Reads what the parts of the core say of themselves; from any thread, beside everything else.
#ifndef ATHANOR_SERVER_HTTP_SERVER_STATUS_H_
#define ATHANOR_SERVER_HTTP_SERVER_STATUS_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/core/core.h"
#include "server/metrics/exposition.h"

namespace athanor {

// Versions listed, by name, the newest first; the others are only counted.
inline constexpr size_t kMostVersionsListed = 200;
// And of each version; as many as it may have unless --max_buckets says more.
inline constexpr int kMostBucketsListed = 64;

// Times in seconds, sizes in bytes, shares as parts of 1; null where nothing is known yet. Counts
// begin when the server starts, latencies are of all calls since. Texts are of users as they are:
// whoever shows them escapes them. README.md lists the fields.
nlohmann::json ServerStatus(ServerCore& core);

// As text; what is not UTF-8 is replaced.
std::string ServerStatusText(ServerCore& core);

void AddCoreSamples(ServerCore& core, std::chrono::system_clock::time_point started,
                    std::vector<MetricSample>* samples);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_SERVER_STATUS_H_
