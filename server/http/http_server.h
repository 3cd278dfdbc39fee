// The server's HTTP side: a few pages to be read, made anew for each who asks.
//
//   HttpOptions options{.listen = "127.0.0.1:8080"};
//   auto http = HttpServer::Start(options, {{"/metrics", "text/plain", [] { return text; }}});
//   (*http)->port();
//
// GET and HEAD of the pages; other paths are 404, other methods 405, other hosts 421. cpp-httplib
// parses and answers; every connection is one request with a limit of time and size (connection.h).
// It comes to one of a few threads of the server's own when its request is whole, and leaves it for
// as long as the answer is not read (connection_queue.h): whoever is slow, silent or floods it
// disturbs neither calls nor others who ask. Rejected: keep-alive, because idle connections would
// take the places of others; compression and byte ranges, because they let a request of a few bytes
// cost much. Stopped by the destructor, which waits for nobody. Thread-safe; pages are made on its
// threads.
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
  std::string listen;                   // "host:port", "[::1]:port"; port 0 is any free one
  std::shared_ptr<TlsCertificate> tls;  // null: without
  std::vector<std::string> hosts;       // names of this server's that host_names.h does not know
  HttpLimits limits;
};

class HttpServer {
 public:
  // INVALID_ARGUMENT: the address is none. FAILED_PRECONDITION: it cannot listen there. Both name
  // the flag.
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
