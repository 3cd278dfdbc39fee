#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/access/access.h"
#include "server/access/rpcs.h"
#include "server/base/log.h"
#include "server/base/work_queue.h"
#include "server/calls/stream_writer.h"
#include "server/core/core.h"
#include "server/http/http_server.h"
#include "server/http/pages/core_samples.h"
#include "server/http/pages/status_pages.h"
#include "server/net/connections.h"
#include "server/net/tls.h"
#include "server/net/tls_credentials.h"
#include "server/openai/error.h"
#include "server/openai/routes.h"
#include "server/repository/repository.h"
#include "server/rest/rest_error.h"
#include "server/rest/routes.h"
#include "server/rpc/cache/cache_service.h"
#include "server/rpc/call.h"
#include "server/rpc/compile/compile_service.h"
#include "server/rpc/generate/generate_service.h"
#include "server/rpc/health_service.h"
#include "server/rpc/inference/inference_service.h"
#include "server/rpc/models/model_service.h"
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

// Counts a connection for which there is no place.
std::function<void()> CountRefusal(ServerCore& core) {
  return [&core] { core.metrics().server().Count(Metric::kRefusals, Refusal::kConnections); };
}

// Finds who asks, and whether they may, for all of HTTP. Pages take passwords too, which browsers
// ask for: whoever looks changes nothing, so that another site's page gains nothing by them.
absl::Status AdmitCaller(const Access& access, const Route& route, HttpExchange* exchange) {
  const HttpRequest& request = exchange->request();
  const std::string* header = request.Header("Authorization");
  std::string token;
  if (header != nullptr) token = std::string(BearerToken(*header));
  if (header != nullptr && token.empty() && route.role == Role::kMonitor) {
    token = BasicPassword(*header);
  }
  // Browsers show a certificate whichever site asks, and tell it when they send something: only a
  // page may be had with it then. Whoever shows something else than a token may be a client of the
  // certificate's owner.
  const bool another_site = request.Header("Origin") != nullptr && route.role != Role::kMonitor;
  Caller caller;
  const absl::Status admitted = access.Admit(
      {route.role}, absl::StrCat(request.method, " ", route.path), token,
      header != nullptr || another_site ? nullptr : request.certificate.get(), &caller);
  if (!caller.name().empty()) exchange->set_client(caller.name());
  exchange->set_caller(std::move(caller));  // of a refused one too: the log names it
  return admitted;
}

// Returns what all HTTP addresses share.
HttpOptions HttpOptionsOf(ServerCore& core, std::shared_ptr<TlsCertificate> tls) {
  const ServerOptions& options = core.options();
  HttpOptions http;
  http.tls = std::move(tls);
  for (absl::string_view name : absl::StrSplit(options.http_hosts, ',', absl::SkipEmpty())) {
    http.hosts.emplace_back(absl::StripAsciiWhitespace(name));
  }
  http.limits.least_rate = options.upload_least_rate;
  http.peer_percent = options.max_peer_percent;
  http.refused = CountRefusal(core);
  http.tracer = core.tracer();
  http.admit = [&core](const Route& route, HttpExchange* exchange) {
    return AdmitCaller(core.access(), route, exchange);
  };
  return http;
}

// Gives a request a place among the calls until it is answered. Health and pages take none: a
// server with too many calls is not down.
absl::Status TakePlace(ServerCore& core, const Route& route, HttpExchange* exchange) {
  if (route.role == Role::kNone || route.role == Role::kMonitor) return absl::OkStatus();
  const auto slot = std::make_shared<CallSlot>(core);
  RETURN_IF_ERROR(slot->status());
  exchange->Keep(slot);
  return absl::OkStatus();
}

}  // namespace

struct Server::Network {
  explicit Network(ServerCore* core)
      : inference(core),
        models(core),
        compile(core),
        cache(core),
        generate(core, writer),
        health(core) {}
  ~Network() { writer->Stop(); }
  HttpThreads* StartedHttpThreads() {
    if (!http_threads.has_value()) http_threads.emplace();
    return &*http_threads;
  }

  // Refuses those who may not call before their messages are read.
  void JudgeHeaders(ServerCore& core) {
    const auto judge = [&core](const std::string& method) -> JudgeHeader {
      if (RpcNamed(method).roles.empty()) return nullptr;
      return [&core, method](grpc::CallbackServerContext& context, Caller* caller) {
        const absl::Status may = FindCaller(core, context, method, caller);
        return EndUnadmitted(method, context, may, *caller);
      };
    };
    inference.JudgeHeaders(inference::GRPCInferenceService::service_full_name(), judge);
    models.JudgeHeaders(v1::ModelService::service_full_name(), judge);
    compile.JudgeHeaders(v1::CompileService::service_full_name(), judge);
    cache.JudgeHeaders(v1::CacheService::service_full_name(), judge);
    generate.JudgeHeaders(v1::GenerateService::service_full_name(), judge);
  }

  std::shared_ptr<TlsCertificate> tls;  // null without TLS
  std::shared_ptr<grpc::ServerCredentials> credentials;
  const std::shared_ptr<StreamWriter> writer = std::make_shared<StreamWriter>();
  InferenceService inference;
  ModelService models;
  CompileService compile;
  CacheService cache;
  GenerateService generate;
  HealthService health;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> grpc_server;
  std::unique_ptr<Connections> connections;  // uses the acceptor while the gRPC server runs
  WorkQueue pages{"pages", 1};
  std::optional<StatusPages> status_pages;  // null without the HTTP side
  std::optional<HttpThreads> http_threads;  // null without HTTP
  std::unique_ptr<Access> keys;             // of --openai_keys; null without
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<HttpServer> openai;
  int port = 0;
};

Server::Server(std::unique_ptr<ServerCore> core)
    : core_(std::move(core)), network_(std::make_unique<Network>(core_.get())) {
  core_->metrics().AddCollector([core = core_.get()](std::vector<MetricSample>* samples) {
    AddCoreSamples(*core, samples);
    AddCacheSamples(core->cache().Counts(), samples);
  });
}

Server::~Server() { Drain(); }

int Server::port() const { return network_->port; }

std::string Server::http_listen() const {
  if (network_->http == nullptr) return "";
  const std::string& given = core_->options().http_listen;
  return given == kAutoHttp ? core_->options().auto_http_listen : given;
}

int Server::http_port() const { return network_->http == nullptr ? 0 : network_->http->port(); }

int Server::openai_port() const {
  return network_->openai == nullptr ? 0 : network_->openai->port();
}

std::vector<Server::ServedRoute> Server::routes() const {
  std::vector<ServedRoute> served;
  for (const HttpServer* http : {network_->http.get(), network_->openai.get()}) {
    if (http == nullptr) continue;
    for (const Route& route : http->routes().rows()) {
      served.push_back({route.method, route.path, route.role, http->port()});
    }
  }
  return served;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      std::shared_ptr<CompileBackends> backends,
                                                      Disk* disk) {
  ASSIGN_OR_RETURN(auto core, ServerCore::Create(options, std::move(backends), disk));
  std::unique_ptr<Server> server(new Server(std::move(core)));
  RETURN_IF_ERROR(server->ReadCertificate());
  // Listens for HTTP first, so that a server that fails on that address has accepted no call. The
  // automatic address comes last: it yields to what the flags name.
  const bool automatic = options.http_listen == kAutoHttp;
  if (!automatic && !options.http_listen.empty()) {
    RETURN_IF_ERROR(server->ListenForHttp(options.http_listen));
  }
  RETURN_IF_ERROR(server->ListenForOpenAi());
  RETURN_IF_ERROR(server->Listen());
  if (automatic) RETURN_IF_ERROR(server->ListenForAutomaticHttp());
  return server;
}

absl::Status Server::ReadCertificate() {
  const ServerOptions& options = core_->options();
  if (options.tls_cert.empty()) {
    network_->credentials = grpc::InsecureServerCredentials();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(network_->tls,
                   TlsCertificate::Load(options.tls_cert, options.tls_key, options.tls_client_ca));
  network_->credentials = TlsCredentials(network_->tls);
  if (!options.tls_client_ca.empty()) {
    core_->access().TrustBy([tls = network_->tls](const PeerCertificate& certificate) {
      return tls->Trusts(certificate);
    });
  }
  return network_->credentials == nullptr
             ? absl::InternalError("gRPC did not make credentials of the certificate and the key")
             : absl::OkStatus();
}

absl::StatusOr<std::string> Server::ReloadCertificate() {
  if (network_->tls == nullptr) return "";
  RETURN_IF_ERROR(network_->tls->Reload());
  return network_->tls->Now()->valid_until;
}

absl::Status Server::ReloadIdentities() {
  if (network_->keys != nullptr) RETURN_IF_ERROR(network_->keys->Reload());
  return core_->access().Reload();
}

absl::Status Server::Listen() {
  const ServerOptions& options = core_->options();
  ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Open("listen", options.listen));
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  network_->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      network_->credentials);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(-1);
  // Disabled, since gRPC would inflate before any limit; rpc/inflate.h inflates under our limits.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Makes further calls wait at the client, not in gRPC's memory here.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(options.max_connection_calls));
  SetKeepalive(options.keepalive_ms, &builder);
  if (!core_->access().open()) network_->JudgeHeaders(*core_);
  builder.RegisterService(&network_->inference);
  builder.RegisterService(&network_->models);
  builder.RegisterService(&network_->compile);
  builder.RegisterService(&network_->cache);
  builder.RegisterService(&network_->generate);
  builder.RegisterService(&network_->health);
  network_->grpc_server = builder.BuildAndStart();
  if (network_->grpc_server == nullptr) return absl::InternalError("gRPC's server does not start");
  // Before there are watchers, who would never hear of what changes in between.
  core_->registry().publisher().SetHook(
      [this](const std::string& name) { network_->health.Tell(name); });
  core_->backends().OnLoss([this] { network_->health.TellAll(); });
  if (Repository* repository = core_->repository()) {
    repository->SetReadyHook([this] { network_->health.TellAll(); });
  }
  return AcceptConnections(std::move(listener));
}

absl::Status Server::AcceptConnections(std::unique_ptr<Listener> listener) {
  const ServerOptions& options = core_->options();
  ConnectionOptions connections;
  connections.limits = {.most = options.max_connections,
                        .peer_percent = options.max_peer_percent,
                        .quiet = std::chrono::milliseconds(options.connection_quiet_ms),
                        .calls = &core_->connection_calls()};
  connections.take = [acceptor = network_->acceptor.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  connections.refused = CountRefusal(*core_);
  ASSIGN_OR_RETURN(network_->connections,
                   Connections::Start(std::move(listener), std::move(connections)));
  network_->port = network_->connections->port();
  return absl::OkStatus();
}

absl::Status Server::ListenForAutomaticHttp() {
  const absl::Status s = ListenForHttp(core_->options().auto_http_listen);
  if (!absl::IsFailedPrecondition(s)) return s;
  network_->status_pages.reset();
  LogWarn("no status page", {{"reason", s.message()}, {"remedy", "--http_listen=HOST:PORT"}});
  return absl::OkStatus();
}

absl::Status Server::ListenForHttp(const std::string& address) {
  const ServerOptions& options = core_->options();
  HttpOptions http = HttpOptionsOf(*core_, network_->tls);
  http.flag = "http_listen";
  http.listen = address;
  http.most_connections = options.max_connections;
  http.quiet = std::chrono::milliseconds(options.connection_quiet_ms);
  http.error_body = RestErrorBody;
  http.enter = [core = core_.get()](const Route& route, HttpExchange* exchange) {
    return TakePlace(*core, route, exchange);
  };
  network_->status_pages.emplace(*core_, network_->pages);
  std::vector<Route> routes = network_->status_pages->routes();
  for (Route& route : RestRoutes(core_.get())) routes.push_back(std::move(route));
  ASSIGN_OR_RETURN(network_->http, HttpServer::Start(http, network_->StartedHttpThreads(),
                                                     &core_->ledger(), std::move(routes)));
  return absl::OkStatus();
}

absl::Status Server::ListenForOpenAi() {
  const ServerOptions& options = core_->options();
  if (options.openai_listen.empty()) return absl::OkStatus();
  HttpOptions http = HttpOptionsOf(*core_, network_->tls);
  http.flag = "openai_listen";
  http.listen = options.openai_listen;
  http.most_connections = options.max_connections;
  http.quiet = std::chrono::milliseconds(options.connection_quiet_ms);
  http.error_body = [](int status, const std::string& message, absl::string_view) {
    return OpenAiErrorBody(status, message);
  };
  if (!options.openai_keys.empty()) {
    ASSIGN_OR_RETURN(network_->keys, Access::Open(Access::Source::kKeys, options.openai_keys));
    http.admit = [keys = network_->keys.get()](const Route& route, HttpExchange* exchange) {
      return AdmitCaller(*keys, route, exchange);
    };
  }
  http.enter = [core = core_.get()](const Route& route, HttpExchange* exchange) {
    return TakePlace(*core, route, exchange);
  };
  ASSIGN_OR_RETURN(std::vector<Route> routes, OpenAiRoutes(core_.get(), network_->writer));
  ASSIGN_OR_RETURN(network_->openai, HttpServer::Start(http, network_->StartedHttpThreads(),
                                                       &core_->ledger(), std::move(routes)));
  return absl::OkStatus();
}

bool Server::Drain() {
  if (std::exchange(drained_, true) || network_->grpc_server == nullptr) return true;
  const auto begin = std::chrono::steady_clock::now();
  const auto limit = begin + std::chrono::milliseconds(core_->options().drain_ms);
  core_->StartDraining();
  network_->health.TellAll();
  LogInfo("draining", {{"calls", core_->active_calls()}});
  // Stops jobs first: calls that wait for a plan would only delay the drain.
  if (core_->repository() != nullptr) core_->repository()->Stop();
  core_->workers().Stop();
  while (core_->active_calls() > 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const int64_t left = core_->active_calls();
  core_->registry().publisher().SetHook(nullptr);
  core_->backends().OnLoss(nullptr);
  network_->connections.reset();
  network_->openai.reset();
  network_->http.reset();
  // Cancels calls that still run.
  network_->grpc_server->Shutdown(std::chrono::system_clock::now() +
                                  std::chrono::milliseconds(left > 0 ? 0 : 100));
  network_->grpc_server->Wait();
  while (core_->active_calls() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  LogInfo("stopped", {{"calls_cancelled", left}});
  return left == 0;
}

}  // namespace athanor
