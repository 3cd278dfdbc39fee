// The server: the core with its gRPC services, health per model, reflection, and the HTTP side.
//
//   std::unique_ptr<Server> server = Server::Start(options, factory).value();
//   server->port();
//   server->Drain();     // refuses new calls, lets running ones finish, and stops
#ifndef ATHANOR_SERVER_SERVER_H_
#define ATHANOR_SERVER_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/core.h"
#include "server/http/http_server.h"
#include "server/net/connections.h"
#include "server/net/tls.h"
#include "server/rpc/cache/cache_service.h"
#include "server/rpc/compile/compile_service.h"
#include "server/rpc/health_service.h"
#include "server/rpc/inference/inference_service.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       std::shared_ptr<CompileBackends> backends,
                                                       Disk* disk = nullptr);
  ~Server() { Drain(); }

  int port() const { return port_; }
  // Returns the port of --http_listen, 0 without one.
  int http_port() const { return http_ == nullptr ? 0 : http_->port(); }
  ServerCore& core() { return *core_; }

  // Reads --tls_cert and --tls_key again for clients that connect from now on. Returns until when
  // the certificate is valid, empty without TLS. If the files are wrong, keeps the old certificate.
  absl::StatusOr<std::string> ReloadCertificate();

  // Stops the server: health turns NOT_SERVING, new calls get UNAVAILABLE, running ones may finish
  // within --drain, and compile jobs stop. The HTTP side serves until the end. Returns true if all
  // calls finished. Does this once.
  bool Drain();

 private:
  explicit Server(std::unique_ptr<ServerCore> core);
  absl::Status ReadCertificate();
  absl::Status Listen();
  absl::Status AcceptConnections(std::unique_ptr<Listener> listener);
  absl::Status ListenForHttp();

  std::unique_ptr<ServerCore> core_;
  std::shared_ptr<TlsCertificate> tls_;  // null without TLS
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  InferenceService inference_;
  ModelService models_;
  CompileService compile_;
  CacheService cache_;
  HealthService health_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<Connections> connections_;  // uses the acceptor while the gRPC server runs
  std::unique_ptr<HttpServer> http_;
  int port_ = 0;
  bool drained_ = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SERVER_H_
