#include "server/http/http_server.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/http/sessions.h"
#include "server/net/connections.h"
#include "server/net/listener.h"
#include "server/net/peers.h"

namespace athanor {
namespace {

constexpr int kThreads = 2;  // so that a TLS handshake holds up no stream

}  // namespace

class HttpThreads::Impl {
 public:
  Impl() : work_(io_.get_executor()) {
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this] { Run(); });
      pthread_setname_np(threads_.back().native_handle(), "http");
    }
  }
  ~Impl() {
    work_.reset();
    for (std::thread& thread : threads_) thread.join();
  }

  boost::asio::io_context& io() { return io_; }
  ConnectionCalls& calls() { return calls_; }

 private:
  void Run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& e) {
        // Boost throws where memory is short; the connection at hand is lost.
        LogError("HTTP connection failed", {{"reason", e.what()}});
      }
    }
  }

  boost::asio::io_context io_{kThreads};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  ConnectionCalls calls_;
  std::vector<std::thread> threads_;
};

HttpThreads::HttpThreads() : impl_(std::make_unique<Impl>()) {}
HttpThreads::~HttpThreads() = default;

class HttpServer::Impl {
 public:
  Impl(HttpThreads::Impl* threads, SessionSetup setup)
      : threads_(threads), setup_(std::move(setup)) {
    setup_.calls = &threads_->calls();
    setup_.sessions = &sessions_;
  }
  ~Impl() {
    connections_.reset();
    sessions_.CloseAll();
  }

  absl::Status Accept(std::unique_ptr<Listener> listener, const HttpOptions& options) {
    ConnectionOptions connections;
    connections.limits = {.most = options.most_connections,
                          .peer_percent = options.peer_percent,
                          .quiet = options.quiet,
                          .calls = setup_.calls};
    connections.take = [this](int fd) { Take(fd); };
    connections.refused = options.refused != nullptr ? options.refused : [] {};
    ASSIGN_OR_RETURN(connections_, Connections::Start(std::move(listener), std::move(connections)));
    return absl::OkStatus();
  }

  int port() const { return connections_->port(); }
  const Routes& routes() const { return setup_.routes; }

 private:
  void Take(int fd) {
    const auto session = HttpSession::Make(threads_->io(), fd, &setup_);
    if (session == nullptr) return;
    sessions_.Add(session);
    session->Begin();
  }

  HttpThreads::Impl* const threads_;
  Sessions sessions_;
  SessionSetup setup_;
  std::unique_ptr<Connections> connections_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
const Routes& HttpServer::routes() const { return impl_->routes(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                              HttpThreads* threads,
                                                              ServerLedger* ledger,
                                                              std::vector<Route> routes) {
  if (absl::StartsWith(options.listen, "unix:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", options.flag, "=", options.listen,
                     ": must be host:port; unix sockets are not supported"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                   Listener::Open(options.flag, options.listen));
  auto impl = std::make_unique<Impl>(threads->impl_.get(),
                                     SessionSetup{.limits = options.limits,
                                                  .hosts = HostNames(options.listen, options.hosts),
                                                  .routes = Routes(std::move(routes)),
                                                  .admit = options.admit,
                                                  .enter = options.enter,
                                                  .error_body = options.error_body,
                                                  .tls = options.tls,
                                                  .ledger = ledger,
                                                  .tracer = options.tracer});
  RETURN_IF_ERROR(impl->Accept(std::move(listener), options));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

}  // namespace athanor
