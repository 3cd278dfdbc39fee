// Finds the handler of a request.
//
//   Routes routes({{"GET", "/v1/models", Role::kInfer, 0, List},
//                  {"GET", "/v1/models/*", Role::kInfer, 0, Show}});
//   routes.Find("HEAD", "/v1/models/a/b").route->handler   // Show
//   routes.Find("PUT", "/v1/models")                       // 405, Allow: "GET, HEAD"
//
// Immutable.
#ifndef ATHANOR_SERVER_HTTP_ROUTES_H_
#define ATHANOR_SERVER_HTTP_ROUTES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/access/role.h"
#include "server/http/exchange.h"

namespace athanor {

struct Route {
  std::string method;       // "GET" serves HEAD too
  std::string path;         // "/v1/models/*": everything below /v1/models/, but not that itself
  Role role = Role::kNone;  // who may call it; kNone: anybody
  int64_t most_body = 0;    // bytes; a longer body is 413
  // Called on an I/O thread once the body is whole. Must not wait.
  std::function<void(std::shared_ptr<HttpExchange>)> handler;
};

// Admits a request when its header is read, before its body: checks who asks and names it
// (set_client); or when it is whole, and keeps what counts it (Keep). Called on an I/O thread; must
// not wait. UNAUTHENTICATED is 401, PERMISSION_DENIED 403, RESOURCE_EXHAUSTED 429, UNAVAILABLE 503.
using Admit = std::function<absl::Status(const Route& route, HttpExchange* exchange)>;

// Makes the body of an answer that the HTTP side gives itself, such as 404; returns its
// Content-Type and the body. `message` is plain text; `path` is empty if none is known.
using ErrorBody = std::function<std::pair<std::string, std::string>(
    int status, const std::string& message, absl::string_view path)>;

class Routes {
 public:
  explicit Routes(std::vector<Route> routes) : routes_(std::move(routes)) {}

  struct Found {
    const Route* route = nullptr;  // null: refused
    int status = 200;              // 404 or 405 where refused
    std::string allow;             // of a 405: the methods there are
  };
  Found Find(absl::string_view method, absl::string_view path) const;

  const std::vector<Route>& rows() const { return routes_; }
  // Returns all paths, once each, with a space ahead of each.
  std::string Paths() const;

 private:
  const std::vector<Route> routes_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_ROUTES_H_
