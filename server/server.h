// The server: the core with its gRPC services, health per model, reflection, the HTTP side and
// OpenAI's.
//
//   std::unique_ptr<Server> server = Server::Start(options, factory).value();
//   server->port();
//   server->Drain();     // refuses new calls, lets running ones finish, and stops
#ifndef ATHANOR_SERVER_SERVER_H_
#define ATHANOR_SERVER_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/role.h"
#include "server/base/options.h"

namespace athanor {

class CompileBackends;
class Disk;
class Listener;
class ServerCore;

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       std::shared_ptr<CompileBackends> backends,
                                                       Disk* disk = nullptr);
  ~Server();

  int port() const;
  // Return the address and the port of HTTP; empty and 0 without it.
  std::string http_listen() const;
  int http_port() const;
  // Returns the port of --openai_listen, 0 without one.
  int openai_port() const;
  ServerCore& core() { return *core_; }
  // Lists all routes of all HTTP addresses.
  struct ServedRoute {
    std::string method, path;
    Role role = Role::kNone;
    int port = 0;
  };
  std::vector<ServedRoute> routes() const;

  // Reads --tls_cert and --tls_key again for clients that connect from now on. Returns until when
  // the certificate is valid, empty without TLS. If the files are wrong, keeps the old certificate.
  absl::StatusOr<std::string> ReloadCertificate();

  // Reads --auth and --openai_keys again. If one is wrong, keeps what was read before.
  absl::Status ReloadIdentities();

  // Stops the server: health turns NOT_SERVING, new calls get UNAVAILABLE (503 over HTTP), running
  // ones may finish within --drain, and compile jobs stop.
  // Returns true if all calls finished. Does this once.
  bool Drain();

 private:
  explicit Server(std::unique_ptr<ServerCore> core);
  absl::Status ReadCertificate();
  absl::Status Listen();
  absl::Status AcceptConnections(std::unique_ptr<Listener> listener);
  absl::Status ListenForHttp(const std::string& address);
  // Goes on without HTTP where the address is taken.
  absl::Status ListenForAutomaticHttp();
  absl::Status ListenForOpenAi();

  // The services and what listens for them: server.cc has the headers of gRPC and HTTP.
  struct Network;

  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<Network> network_;
  bool drained_ = false;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_SERVER_H_
