// What the HTTP side shows: the status page at "/", the same as JSON at "/status.json", metrics at
// "/metrics".
#ifndef ATHANOR_SERVER_HTTP_STATUS_PAGES_H_
#define ATHANOR_SERVER_HTTP_STATUS_PAGES_H_

#include <vector>

#include "server/core/core.h"
#include "server/http/http_server.h"

namespace athanor {

// `core` outlives whoever asks for them.
std::vector<HttpPage> StatusPages(ServerCore& core);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_STATUS_PAGES_H_
