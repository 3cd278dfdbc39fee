// The pages of the HTTP side: the status page at "/", the same as JSON at "/status.json", and
// metrics at "/metrics".
#ifndef ATHANOR_SERVER_HTTP_PAGES_STATUS_PAGES_H_
#define ATHANOR_SERVER_HTTP_PAGES_STATUS_PAGES_H_

#include <vector>

#include "server/base/work_queue.h"
#include "server/core/core.h"
#include "server/http/routes.h"

namespace athanor {

// Makes pages on `queue`, because they take longer than an I/O thread may. Both must outlive the
// server of the routes.
std::vector<Route> StatusPages(ServerCore& core, WorkQueue& queue);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_PAGES_STATUS_PAGES_H_
