// The server's HTTP side: a few read-only pages, made anew for each request.
//
//   HttpOptions options{.listen = "127.0.0.1:8080"};
//   auto http = HttpServer::Start(options, {{"/metrics", "text/plain", [] { return text; }}});
//   (*http)->port();
//
// Serves GET and HEAD of the pages; other paths are 404, other methods 405, other hosts 421.
// cpp-httplib parses and answers; every connection carries one request with a limit of time and
// size (connection.h). A connection occupies one of a few threads only when its request is complete
// and until its answer must wait for the client (connection_queue.h): slow, silent or flooding
// clients disturb neither calls nor other clients. Rejected: keep-alive, because idle connections
// would take the places of others; compression and byte ranges, because they let a request of a few
// bytes cost much. The destructor stops it and waits for no client. Thread-safe; pages are made on
// its threads.
#ifndef ATHANOR_SERVER_HTTP_HTTP_SERVER_H_
#define ATHANOR_SERVER_HTTP_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/connection.h"
#include "server/net/tls.h"

namespace athanor {

struct HttpPage {
  std::string path;
  std::string content_type;
  std::function<std::string()> body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct HttpOptions {
  std::string listen;                   // "host:port", "[::1]:port"; port 0 is any free port
  std::shared_ptr<TlsCertificate> tls;  // null: no TLS
  std::vector<std::string> hosts;       // further names of this server (host_names.h)
  HttpLimits limits;
};

class HttpServer {
 public:
  // Returns INVALID_ARGUMENT if the address is malformed, FAILED_PRECONDITION if listening there
  // fails. Both name the flag.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpOptions& options,
                                                           std::vector<HttpPage> pages);
  ~HttpServer();

  int port() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_HTTP_HTTP_SERVER_H_
