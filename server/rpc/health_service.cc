#include "server/rpc/health_service.h"

#include "compiler/ir/value/message.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/rpc/call.h"
#include "server/rpc/watch_stream.h"

namespace athanor {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

HealthCheckResponse::ServingStatus StateOf(ServerCore& core, const std::string& name) {
  bool serves = core.serves();
  if (!name.empty()) {
    const auto version = core.registry().versions().Find(name, "");
    if (!version.ok()) return HealthCheckResponse::SERVICE_UNKNOWN;
    serves = core.serves((*version)->device()) && (*version)->plan() != nullptr;
  }
  return serves ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

// Checks that the caller may know of the model; everybody may know of the server.
absl::Status CheckName(const Caller& caller, const std::string& name) {
  return name.empty() ? absl::OkStatus() : caller.MayUse(name);
}

absl::Status CheckOne(ServerCore& core, const grpc::CallbackServerContext& context,
                      const grpc::ByteBuffer& bytes, Caller* caller, grpc::ByteBuffer* reply) {
  RETURN_IF_ERROR(FindCaller(core, context, "Check", caller));
  HealthCheckRequest request;
  RETURN_IF_ERROR(ParseSmallRequest(core, bytes, &request));
  RETURN_IF_ERROR(CheckName(*caller, request.service()));
  HealthCheckResponse answer;
  answer.set_status(StateOf(core, request.service()));
  if (answer.status() == HealthCheckResponse::SERVICE_UNKNOWN) {
    return absl::NotFoundError(Cat("there is no model ", Quoted(request.service())));
  }
  const grpc::Status sent = SerializeReply(answer, reply);
  return sent.ok() ? absl::OkStatus() : absl::InternalError(sent.error_message());
}

}  // namespace

// Writes the state, and again whenever it changes; ends with the server.
class HealthWatch final : public WatchStream {
 public:
  HealthWatch(HealthService& service, ServerCore& core, grpc::CallbackServerContext* context)
      : WatchStream(core, context, "Watch"), service_(service) {}

  void Begin(const grpc::ByteBuffer& bytes) {
    HealthCheckRequest request;
    absl::Status status = admitted();
    if (status.ok()) status = ParseSmallRequest(core(), bytes, &request);
    // Limits the name, which is held as long as it is watched: no model has a longer one.
    const int64_t longest = core().options().max_name_bytes;
    if (status.ok() && static_cast<int64_t>(request.service().size()) > longest) {
      status = Invalid("service has ", request.service().size(),
                       " bytes; a model's name has at most ", longest, " (--max_name_bytes)");
    }
    if (status.ok()) status = CheckName(caller(), request.service());
    if (!status.ok()) return Refuse(status);
    name_ = request.service();
    Open();
    service_.Add(name_, link());
  }

 private:
  void Look() override {
    const HealthCheckResponse::ServingStatus state = StateOf(core(), name_);
    if (state == sent_) {
      if (core().draining()) End(absl::UnavailableError("the server is draining"));
      return;
    }
    sent_ = state;
    HealthCheckResponse answer;
    answer.set_status(state);
    Write(answer);
  }

  void Leave() override { service_.Remove(name_, link()); }

  HealthService& service_;
  std::string name_;
  HealthCheckResponse::ServingStatus sent_ = HealthCheckResponse::UNKNOWN;  // used by Look
};

void HealthService::Add(const std::string& name, const std::shared_ptr<WatchStream::Link>& link) {
  {
    MutexLock lock(mu_);
    watchers_[name].insert(link);
  }
  link->Ask();
}

void HealthService::Remove(const std::string& name,
                           const std::shared_ptr<WatchStream::Link>& link) {
  MutexLock lock(mu_);
  const auto at = watchers_.find(name);
  if (at == watchers_.end()) return;
  at->second.erase(link);
  if (at->second.empty()) watchers_.erase(at);
}

void HealthService::Tell(const std::string& name) {
  MutexLock lock(mu_);
  const auto at = watchers_.find(name);
  if (at == watchers_.end()) return;
  for (const std::shared_ptr<WatchStream::Link>& link : at->second) link->Ask();
}

void HealthService::TellAll() {
  MutexLock lock(mu_);
  for (const auto& [name, links] : watchers_) {
    for (const std::shared_ptr<WatchStream::Link>& link : links) link->Ask();
  }
}

grpc::ServerUnaryReactor* HealthService::Check(Context* context, const Bytes* request,
                                               Bytes* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const int port = PortOfCall(context->peer());
  core_.connection_calls().Begin(port);
  Caller caller;
  const absl::Status status = CheckOne(core_, *context, *request, &caller, reply);
  core_.connection_calls().End(port);
  reactor->Finish(EndUnadmitted("Check", *context, status, caller));
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(Context* context,
                                                                 const Bytes* request) {
  auto* call = new HealthWatch(*this, core_, context);
  call->Begin(*request);
  return call;
}

}  // namespace athanor
