#include "server/http/http_server.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/http/connection_queue.h"
#include "server/http/host_names.h"
#include "server/net/listener.h"

namespace athanor {

// Derived from httplib::Server, because its function that answers over a custom stream is
// protected.
class HttpServer::Impl final : private httplib::Server {
 public:
  Impl(const HttpOptions& options, HostNames hosts, std::vector<HttpPage> pages,
       std::unique_ptr<Listener> listener, int stop_fd, int wake_fd)
      : limits_(options.limits),
        hosts_(std::move(hosts)),
        pages_(std::move(pages)),
        tls_(options.tls),
        listener_(std::move(listener)),
        stop_fd_(stop_fd),
        wake_fd_(wake_fd) {
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      Answer(request, &response);
      return HandlerResponse::Handled;
    });
    // cpp-httplib announces byte ranges, for HEAD only.
    set_post_routing_handler([](const httplib::Request&, httplib::Response& response) {
      response.headers.erase("Accept-Ranges");
    });
    thread_ = std::thread([this] { Listen(); });
    pthread_setname_np(thread_.native_handle(), "http-listen");
  }

  ~Impl() override {
    const uint64_t one = 1;
    while (write(stop_fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
    close(stop_fd_);
  }

  int port() const { return listener_->port(); }

 private:
  void Listen() {
    ConnectionQueue queue(limits_, wake_fd_, [this](Connection& whole) { Serve(whole); });
    for (int fd = listener_->Accept(stop_fd_); fd >= 0; fd = listener_->Accept(stop_fd_)) {
      const auto tls = tls_ == nullptr ? nullptr : tls_->Now();
      auto connection =
          std::make_unique<Connection>(fd, tls == nullptr ? nullptr : tls->context.get(), limits_);
      if (queue.Push(connection)) continue;
      connection->Refuse("503 Service Unavailable");
      connection->Advance();
    }
  }

  void Serve(Connection& connection) {
    bool closed = false;
    process_request(connection, /*close_connection=*/true, closed, [](httplib::Request& request) {
      request.ranges.clear();
      request.headers.erase("Accept-Encoding");
    });
  }

  void Answer(const httplib::Request& request, httplib::Response* response) const {
    response->set_header("X-Content-Type-Options", "nosniff");
    response->set_header("Cache-Control", "no-store");
    std::vector<std::string> asked;
    for (size_t i = 0; i < request.get_header_value_count("Host"); ++i) {
      asked.push_back(request.get_header_value("Host", i));
    }
    if (const auto refused = hosts_.Check(asked, request.version != "HTTP/1.0")) {
      response->status = refused->status;
      response->set_content(refused->text, "text/plain; charset=utf-8");
      return;
    }
    if (request.method != "GET" && request.method != "HEAD") {
      response->status = 405;
      response->set_header("Allow", "GET, HEAD");
      response->set_content("405: only GET and HEAD\n", "text/plain; charset=utf-8");
      return;
    }
    for (const HttpPage& page : pages_) {
      if (page.path != request.path) continue;
      for (const auto& [name, value] : page.headers) response->set_header(name, value);
      response->status = 200;
      response->set_content(page.body(), page.content_type);
      return;
    }
    std::string text = "404: no such page; available:";
    for (const HttpPage& page : pages_) absl::StrAppend(&text, " ", page.path);
    response->status = 404;
    response->set_content(text + "\n", "text/plain; charset=utf-8");
  }

  const HttpLimits limits_;
  const HostNames hosts_;
  const std::vector<HttpPage> pages_;
  const std::shared_ptr<TlsCertificate> tls_;
  const std::unique_ptr<Listener> listener_;
  const int stop_fd_;
  const int wake_fd_;  // owned by queue_
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              std::vector<HttpPage> pages) {
  if (absl::StartsWith(options.listen, "unix:")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--http_listen=", options.listen, ": must be host:port; unix sockets are not supported"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                   Listener::Open("http_listen", options.listen));
  const int stop_fd = eventfd(0, EFD_CLOEXEC);
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_fd < 0 || wake_fd < 0) {
    for (const int fd : {stop_fd, wake_fd}) {
      if (fd >= 0) close(fd);
    }
    return absl::ResourceExhaustedError("--http_listen: no descriptor left");
  }
  return std::unique_ptr<HttpServer>(new HttpServer(
      std::make_unique<Impl>(options, HostNames(options.listen, options.hosts), std::move(pages),
                             std::move(listener), stop_fd, wake_fd)));
}

}  // namespace athanor
