// The status page: ServerStatus as HTML. It is complete without its script, which only updates the
// numbers (page.js). One file, no outside resource, light and dark.
//
//   StatusPage(ServerStatus(core));
//
// Escapes every text; the policy lets only the built-in script run. Immutable, so thread-safe.
#ifndef ATHANOR_SERVER_HTTP_PAGES_PAGE_H_
#define ATHANOR_SERVER_HTTP_PAGES_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace athanor {

std::string StatusPage(const nlohmann::json& status);

// Returns the page's Content-Security-Policy: it allows the one script and the one style by their
// hashes, status.json, and nothing else.
std::string StatusPagePolicy();

// Escapes text for HTML text and for attributes in double quotes.
std::string Escaped(absl::string_view text);

// Formats a number for people, null as a dash. `as`: "count", "bytes" (1.5 KiB), "share" (of 1, as
// percent), "seconds" (73 µs, 1.25 ms), "duration" (2 h 5 min). page.js has the same function.
std::string Shown(const nlohmann::json& value, absl::string_view as);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_PAGE_H_
