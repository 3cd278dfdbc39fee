#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "server/base/log.h"
#include "server/http/server_status.h"
#include "server/http/status_pages.h"
#include "server/net/tls_credentials.h"
#include "server/storage/cache_samples.h"

namespace athanor {
namespace {

// Detects clients that vanished: they hold a connection and the resources of their calls.
void SetKeepalive(int64_t milliseconds, grpc::ServerBuilder* builder) {
  if (milliseconds == 0) return;
  const int time = static_cast<int>(milliseconds);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, time);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, time);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Limits connections that never speak HTTP/2; gRPC's own limit is two minutes.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(std::min<int64_t>(2 * milliseconds, 20'000)));
}

}  // namespace

Server::Server(std::unique_ptr<ServerCore> core)
    : core_(std::move(core)),
      inference_(core_.get()),
      models_(core_.get()),
      compile_(core_.get()),
      cache_(core_.get()),
      health_(core_.get()) {
  core_->metrics().AddCollector([core = core_.get(), started = std::chrono::system_clock::now()](
                                    std::vector<MetricSample>* samples) {
    AddCoreSamples(*core, started, samples);
    AddCacheSamples(core->cache().Counts(), samples);
  });
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      std::shared_ptr<CompileBackends> backends,
                                                      Disk* disk) {
  auto core = ServerCore::Create(options, std::move(backends), disk);
  if (!core.ok()) return core.status();
  std::unique_ptr<Server> server(new Server(*std::move(core)));
  if (absl::Status s = server->ReadCertificate(); !s.ok()) return s;
  // Listens for HTTP first, so that a server that fails on that address has accepted no call.
  if (absl::Status s = server->ListenForHttp(); !s.ok()) return s;
  if (absl::Status s = server->Listen(); !s.ok()) return s;
  return server;
}

absl::Status Server::ReadCertificate() {
  const ServerOptions& options = core_->options();
  if (options.tls_cert.empty()) {
    credentials_ = grpc::InsecureServerCredentials();
    return absl::OkStatus();
  }
  auto tls = TlsCertificate::Load(options.tls_cert, options.tls_key);
  if (!tls.ok()) return tls.status();
  tls_ = *std::move(tls);
  credentials_ = TlsCredentials(tls_);
  return credentials_ == nullptr ? absl::InternalError("gRPC takes no credentials")
                                 : absl::OkStatus();
}

absl::StatusOr<std::string> Server::ReloadCertificate() {
  if (tls_ == nullptr) return "";
  if (absl::Status s = tls_->Reload(); !s.ok()) return s;
  return tls_->Now()->valid_until;
}

absl::Status Server::Listen() {
  const ServerOptions& options = core_->options();
  absl::StatusOr<std::unique_ptr<Listener>> listener = Listener::Open("listen", options.listen);
  if (!listener.ok()) return listener.status();
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  // Disabled, since gRPC would inflate before any limit; rpc/inflate.h inflates under our limits.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Makes further calls wait at the client, not in gRPC's memory here.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(options.max_connection_calls));
  SetKeepalive(options.keepalive_ms, &builder);
  builder.RegisterService(&inference_);
  builder.RegisterService(&models_);
  builder.RegisterService(&compile_);
  builder.RegisterService(&cache_);
  builder.RegisterService(&health_);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr) return absl::InternalError("gRPC's server does not start");
  if (absl::Status s = AcceptConnections(*std::move(listener)); !s.ok()) return s;
  core_->registry().SetServingHook([this](const std::string& name) { health_.Tell(name); });
  return absl::OkStatus();
}

absl::Status Server::AcceptConnections(std::unique_ptr<Listener> listener) {
  const ServerOptions& options = core_->options();
  ConnectionOptions connections;
  connections.limits = {.most = options.max_connections,
                        .peer_percent = options.max_peer_percent,
                        .quiet = std::chrono::milliseconds(options.connection_quiet_ms),
                        .calls = &core_->connection_calls()};
  connections.take = [acceptor = acceptor_.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  connections.refused = [core = core_.get()] {
    core->metrics().server().Count(Metric::kRefusals, Refusal::kConnections);
  };
  auto started = Connections::Start(std::move(listener), std::move(connections));
  if (!started.ok()) return started.status();
  connections_ = *std::move(started);
  port_ = connections_->port();
  return absl::OkStatus();
}

absl::Status Server::ListenForHttp() {
  const ServerOptions& options = core_->options();
  if (options.http_listen.empty()) return absl::OkStatus();
  HttpOptions http;
  http.listen = options.http_listen;
  http.tls = tls_;
  for (absl::string_view name : absl::StrSplit(options.http_hosts, ',', absl::SkipEmpty())) {
    http.hosts.emplace_back(absl::StripAsciiWhitespace(name));
  }
  auto started = HttpServer::Start(http, StatusPages(*core_));
  if (!started.ok()) return started.status();
  http_ = *std::move(started);
  return absl::OkStatus();
}

bool Server::Drain() {
  if (std::exchange(drained_, true) || grpc_ == nullptr) return true;
  const auto begin = std::chrono::steady_clock::now();
  const auto limit = begin + std::chrono::milliseconds(core_->options().drain_ms);
  core_->StartDraining();
  health_.TellAll();
  LogInfo("draining", {{"calls", core_->active_calls()}});
  // Stops jobs first: calls that wait for a plan would only delay the drain.
  core_->workers().Stop();
  while (core_->active_calls() > 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const int64_t left = core_->active_calls();
  core_->registry().SetServingHook(nullptr);
  connections_.reset();
  // Cancels calls that still run.
  grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(left > 0 ? 0 : 100));
  grpc_->Wait();
  while (core_->active_calls() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  http_.reset();
  LogInfo("stopped", {{"calls_cancelled", left}});
  return left == 0;
}

}  // namespace athanor
