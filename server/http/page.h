// The status page: ServerStatus as HTML, whole without its script, which only keeps the numbers
// moving (page.js). One file, no outside resource, light and dark.
//
//   StatusPage(ServerStatus(core));
//
// Every text goes through Escaped, and the policy lets nothing run but the script that is built in.
// Immutable, so thread-safe.
#ifndef ATHANOR_SERVER_HTTP_PAGE_H_
#define ATHANOR_SERVER_HTTP_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace athanor {

std::string StatusPage(const nlohmann::json& status);

// Its Content-Security-Policy: the one script and the one style by their hashes, status.json, and
// nothing else.
std::string StatusPagePolicy();

// For text and for attributes in double quotes.
std::string Escaped(absl::string_view text);

// A number as people read it, or a dash for null. `as`: "count", "bytes" (1.5 KiB), "share" (of 1,
// as percent), "seconds" (73 µs, 1.25 ms), "duration" (2 h 5 min). page.js has the same.
std::string Shown(const nlohmann::json& value, absl::string_view as);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGE_H_
