// Serves routes over HTTP/1.1, plain or TLS.
//
//   HttpThreads threads;
//   HttpOptions options{.flag = "http_listen", .listen = "127.0.0.1:8080"};
//   auto http = HttpServer::Start(options, &threads, &ledger, {{"GET", "/", Role::kNone, 0,
//   Page}});
//   (*http)->port();
//
// Other paths are 404, other methods 405, other hosts 421. A thread per server accepts clients, up
// to a limit (server/net/connections.h); all further work of all servers runs on two I/O threads,
// which never wait: a slow client holds its socket and nothing else. Connections are kept alive;
// quiet ones give way to new ones. Rejected: compression and byte ranges, because they let a
// request of a few bytes cost much.
#ifndef ATHANOR_SERVER_HTTP_HTTP_SERVER_H_
#define ATHANOR_SERVER_HTTP_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/routes.h"
#include "server/http/session.h"
#include "server/memory/server_ledger.h"
#include "server/net/tls.h"

namespace athanor {

// The threads of all HTTP servers. Outlives them.
class HttpThreads {
 public:
  HttpThreads();
  ~HttpThreads();
  HttpThreads(const HttpThreads&) = delete;
  HttpThreads& operator=(const HttpThreads&) = delete;

 private:
  friend class HttpServer;
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

struct HttpOptions {
  std::string flag;                     // whose address it is, for errors: "http_listen"
  std::string listen;                   // "host:port", "[::1]:port"; port 0 is any free port
  std::shared_ptr<TlsCertificate> tls;  // null: no TLS
  std::vector<std::string> hosts;       // further names of this server (host_names.h)
  HttpLimits limits;
  int64_t most_connections = 128;
  int64_t peer_percent = 75;                                  // of them, for one peer
  std::chrono::milliseconds quiet = std::chrono::seconds(1);  // then a connection may give way
  std::function<void()> refused;  // called for each connection that finds no place
  // Null: everybody. `enter` admits a request once more when its body is whole, and keeps what
  // counts it: before, a client that sends slowly would hold a place among the calls.
  Admit admit, enter;
  ErrorBody error_body;      // null: plain text
  Tracer* tracer = nullptr;  // null: requests are not recorded
};

class HttpServer {
 public:
  // Returns INVALID_ARGUMENT if the address is malformed, FAILED_PRECONDITION if listening there
  // fails. Both name the flag. Bodies are counted in `ledger`.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           HttpThreads* threads,
                                                           ServerLedger* ledger,
                                                           std::vector<Route> routes);
  // Closes all connections; waits for no client. Exchanges may live on.
  ~HttpServer();

  int port() const;
  const Routes& routes() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_HTTP_SERVER_H_
