// The status page: ServerStatus as HTML. It is complete without its script, which only brings the
// numbers up to date, sorts and filters (page.js). One file, no outside resource, light and dark.
//
//   StatusPage(ServerStatus(core, &history));
//
// Escapes every text; the policy lets only the built-in script run. Immutable, so thread-safe.
#ifndef ATHANOR_SERVER_HTTP_PAGES_PAGE_H_
#define ATHANOR_SERVER_HTTP_PAGES_PAGE_H_

#include <string>

#include "nlohmann/json.hpp"

namespace athanor {

std::string StatusPage(const nlohmann::json& status);

// Returns the page's Content-Security-Policy: it allows the one script and the one style by their
// hashes, status.json, and nothing else.
std::string StatusPagePolicy();

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_PAGE_H_
