// The pages of the HTTP side: the status page at "/", the same as JSON at "/status.json", and
// metrics at "/metrics".
#ifndef ATHANOR_SERVER_HTTP_STATUS_PAGES_H_
#define ATHANOR_SERVER_HTTP_STATUS_PAGES_H_

#include <vector>

#include "server/core/core.h"
#include "server/http/http_server.h"

namespace athanor {

// `core` must outlive the users of the pages.
std::vector<HttpPage> StatusPages(ServerCore& core);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_STATUS_PAGES_H_
