// The state of the server as JSON, for the status page and other programs.
//
//   ServerStatus(core).dump();
//
// Reads the parts of the core. May run on any thread, concurrently with everything else.
#ifndef ATHANOR_SERVER_HTTP_PAGES_SERVER_STATUS_H_
#define ATHANOR_SERVER_HTTP_PAGES_SERVER_STATUS_H_

#include <cstddef>
#include <string>

#include "nlohmann/json.hpp"
#include "server/core/core.h"
#include "server/http/pages/latency_history.h"

namespace athanor {

// Most versions listed, by name, the newest first; the others are only counted.
inline constexpr size_t kMostVersionsListed = 200;
// Most buckets listed per version: as many as a version may have by default (--max_buckets).
inline constexpr int kMostBucketsListed = 64;

// With a history, each model has its latencies of the last minutes under "history": only the page
// draws them, and /status.json is read every second.
//
// Times are in seconds, sizes in bytes, shares are parts of 1; null means not known yet. Counts
// begin when the server starts, latencies cover all calls since then. User texts are returned
// unescaped: callers that show them must escape them. docs/metrics.md lists the fields.
nlohmann::json ServerStatus(ServerCore& core, const LatencyHistory* history = nullptr);

// Returns ServerStatus without history as text; replaces bytes that are not UTF-8.
std::string ServerStatusText(ServerCore& core);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_SERVER_STATUS_H_
