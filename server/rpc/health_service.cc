#include "server/rpc/health_service.h"

#include <atomic>
#include <utility>

#include "compiler/ir/message.h"
#include "server/rpc/call.h"

namespace athanor {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

HealthCheckResponse::ServingStatus StateOf(ServerCore& core, const std::string& name) {
  bool serves = true;
  if (!name.empty()) {
    const auto version = core.registry().Find(name, "");
    if (!version.ok()) return HealthCheckResponse::SERVICE_UNKNOWN;
    serves = (*version)->plan() != nullptr;
  }
  return serves && !core.draining() ? HealthCheckResponse::SERVING
                                    : HealthCheckResponse::NOT_SERVING;
}

absl::Status CheckOne(ServerCore& core, const grpc::ByteBuffer& bytes, grpc::ByteBuffer* reply) {
  HealthCheckRequest request;
  if (absl::Status s = ParseRequest(bytes, &request); !s.ok()) return s;
  HealthCheckResponse answer;
  answer.set_status(StateOf(core, request.service()));
  if (answer.status() == HealthCheckResponse::SERVICE_UNKNOWN) {
    return absl::NotFoundError(Cat("there is no model ", Quoted(request.service())));
  }
  const grpc::Status sent = SerializeReply(answer, reply);
  return sent.ok() ? absl::OkStatus() : absl::InternalError(sent.error_message());
}

}  // namespace

class HealthWatch;

class HealthService::Watcher {
 public:
  Mutex mu;
  HealthWatch* call ABSL_GUARDED_BY(mu) = nullptr;
  std::atomic<bool> asked{false};
};

// Writes the state, and again whenever it is another; ends with the server.
class HealthWatch final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  HealthWatch(HealthService& service, ServerCore& core, grpc::CallbackServerContext* context)
      : slot_(core, CallKind::kStream), service_(service), core_(core), context_(context) {}

  void Begin(const grpc::ByteBuffer& bytes) {
    HealthCheckRequest request;
    absl::Status status = slot_.status();
    if (status.ok()) status = ParseRequest(bytes, &request);
    // A name is held as long as it is watched, and no model has a longer one.
    const int64_t longest = core_.options().max_name_bytes;
    if (status.ok() && static_cast<int64_t>(request.service().size()) > longest) {
      status = Invalid("service has ", request.service().size(),
                       " bytes; a model's name has at most ", longest, " (--max_name_bytes)");
    }
    if (!status.ok()) {
      Finish(EndCall(kMethod, *context_, status));
      return;
    }
    name_ = request.service();
    {
      MutexLock lock(watcher_->mu);
      watcher_->call = this;
    }
    service_.Add(name_, watcher_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(watcher_->mu);
    writing_ = false;
    if (ok) {
      Pump();
    } else {
      End(absl::CancelledError("the watcher went away"));
    }
  }

  void OnCancel() override {
    MutexLock lock(watcher_->mu);
    End(absl::CancelledError("the watcher went away"));
  }

  void OnDone() override {
    service_.Remove(name_, watcher_);
    {
      MutexLock lock(watcher_->mu);
      watcher_->call = nullptr;
    }
    delete this;
  }

  // Under watcher_->mu, which the analysis cannot name from here.
  void Pump() {
    if (writing_ || ended_) return;
    const HealthCheckResponse::ServingStatus state = StateOf(core_, name_);
    if (state == sent_) {
      if (core_.draining()) End(absl::UnavailableError("the server is draining"));
      return;
    }
    sent_ = state;
    HealthCheckResponse answer;
    answer.set_status(state);
    const grpc::Status serialized = SerializeReply(answer, &bytes_);
    if (!serialized.ok()) return End(absl::InternalError(serialized.error_message()));
    writing_ = true;
    StartWrite(&bytes_);
  }

 private:
  static constexpr char kMethod[] = "Watch";

  void End(const absl::Status& status) {
    if (ended_) return;
    ended_ = true;
    Finish(EndCall(kMethod, *context_, status));
  }

  CallSlot slot_;
  HealthService& service_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  std::string name_;
  const std::shared_ptr<HealthService::Watcher> watcher_ =
      std::make_shared<HealthService::Watcher>();
  // Under watcher_->mu.
  grpc::ByteBuffer bytes_;
  bool writing_ = false;
  bool ended_ = false;
  HealthCheckResponse::ServingStatus sent_ = HealthCheckResponse::UNKNOWN;
};

void HealthService::Add(const std::string& name, std::shared_ptr<Watcher> watcher) {
  {
    MutexLock lock(mu_);
    watchers_[name].insert(watcher);
  }
  Ask(watcher);
}

void HealthService::Remove(const std::string& name, const std::shared_ptr<Watcher>& watcher) {
  MutexLock lock(mu_);
  const auto at = watchers_.find(name);
  if (at == watchers_.end()) return;
  at->second.erase(watcher);
  if (at->second.empty()) watchers_.erase(at);
}

// Called with locks held, so it only asks the timer's thread to look.
void HealthService::Ask(const std::shared_ptr<Watcher>& watcher) {
  if (watcher->asked.exchange(true)) return;
  core_.timer().At(Timer::Clock::now(), [watcher] {
    watcher->asked = false;
    MutexLock lock(watcher->mu);
    if (watcher->call != nullptr) watcher->call->Pump();
  });
}

void HealthService::Tell(const std::string& name) {
  MutexLock lock(mu_);
  const auto at = watchers_.find(name);
  if (at == watchers_.end()) return;
  for (const std::shared_ptr<Watcher>& watcher : at->second) Ask(watcher);
}

void HealthService::TellAll() {
  MutexLock lock(mu_);
  for (const auto& [name, watchers] : watchers_) {
    for (const std::shared_ptr<Watcher>& watcher : watchers) Ask(watcher);
  }
}

grpc::ServerUnaryReactor* HealthService::Check(Context* context, const Bytes* request,
                                               Bytes* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(EndCall("Check", *context, CheckOne(core_, *request, reply)));
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(Context* context,
                                                                 const Bytes* request) {
  auto* call = new HealthWatch(*this, core_, context);
  call->Begin(*request);
  return call;
}

}  // namespace athanor
