// Says why the HTTP side answers a request itself: from a request's head, or from the status of
// those who admit it.
//
//   const auto routed = RouteOf(request, /*http_1_0=*/false, hosts, routes);
//   if (const auto* refusal = std::get_if<HttpRefusal>(&routed)) ... refusal->status ...
#ifndef ATHANOR_SERVER_HTTP_REFUSAL_H_
#define ATHANOR_SERVER_HTTP_REFUSAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
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

// Returns the Content-Type and the body of the answer. `error_body` makes it; null: plain text.
std::pair<std::string, std::string> BodyOf(const HttpRefusal& refusal, const ErrorBody& error_body,
                                           absl::string_view path);

// Returns the status as which a refusal is logged.
absl::Status StatusOf(const HttpRefusal& refusal);

// Refuses a body that is longer than the route's.
HttpRefusal TooLong(const Route& route);

// Judges a request by its head, before its body is read: by its host and its route, by those who
// admit (null: everybody), by the length of its body if that is told.
std::variant<const Route*, HttpRefusal> JudgeHead(HttpExchange* exchange, bool http_1_0,
                                                  std::optional<uint64_t> body_bytes,
                                                  const HostNames& hosts, const Routes& routes,
                                                  const Admit& admit);

// Finds the route of a request: 400 and 421 for its host, 404, 405.
std::variant<const Route*, HttpRefusal> RouteOf(const HttpRequest& request, bool http_1_0,
                                                const HostNames& hosts, const Routes& routes);

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_REFUSAL_H_
