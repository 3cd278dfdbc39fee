// Says why the HTTP side answers a request itself: from a request's head, or from the status of
// those who admit it.
//
//   const auto routed = RouteOf(request, /*http_1_0=*/false, hosts, routes);
//   if (const auto* refusal = std::get_if<HttpRefusal>(&routed)) ... refusal->status ...
#ifndef ATHANOR_SERVER_HTTP_REFUSAL_H_
#define ATHANOR_SERVER_HTTP_REFUSAL_H_

#include <string>
#include <variant>

#include "absl/status/status.h"
#include "server/http/exchange.h"
#include "server/http/host_names.h"
#include "server/http/routes.h"

namespace athanor {

struct HttpRefusal {
  int status = 400;
  std::string message;
  HttpHeaders more = {};
};

// Refuses as Admit (routes.h) said. `browser`: of a page, for which browsers should ask for a
// password. REQUIRES: it is not OK
HttpRefusal RefusalOf(const absl::Status& status, bool browser = false);

// Returns the status as which a refusal is logged.
absl::Status StatusOf(const HttpRefusal& refusal);

// Finds the route of a request: 400 and 421 for its host, 404, 405.
std::variant<const Route*, HttpRefusal> RouteOf(const HttpRequest& request, bool http_1_0,
                                                const HostNames& hosts, const Routes& routes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_REFUSAL_H_
