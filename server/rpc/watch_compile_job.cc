#include <atomic>
#include <chrono>

#include "server/rpc/call.h"
#include "server/rpc/compile_service.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "WatchCompileJob";

// Writes the job's state after each change, and again after --heartbeat without one. A watcher that
// reads slowly sees the newest state when it is ready for it; what came between is left out.
class WatchCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  WatchCall(ServerCore& core, grpc::CallbackServerContext* context)
      : slot_(core, CallKind::kStream), core_(core), context_(context) {}

  void Begin(const grpc::ByteBuffer& bytes) {
    v1::WatchCompileJobRequest request;
    absl::Status status = slot_.status();
    if (status.ok()) status = ParseRequest(bytes, &request);
    if (status.ok()) {
      auto job = core_.workers().Find(request.id());
      status = job.status();
      if (job.ok()) job_ = *std::move(job);
    }
    if (!status.ok()) {
      Finish(EndCall(kMethod, *context_, status));
      return;
    }
    {
      MutexLock lock(link_->mu);
      link_->call = this;
    }
    // Called with the job locked, so it only asks the timer's thread to look.
    watch_ = job_->Watch([&core = core_, link = link_] {
      if (!link->asked.exchange(true)) LookAt(core, link, Timer::Clock::now());
    });
    LookAt(core_, link_, Timer::Clock::now());
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(link_->mu);
    writing_ = false;
    if (ok) {
      Pump();
    } else {
      End(absl::CancelledError("the watcher went away"));
    }
  }

  void OnCancel() override {
    MutexLock lock(link_->mu);
    End(absl::CancelledError("the watcher went away"));
  }

  void OnDone() override {
    if (job_ != nullptr) job_->Unwatch(watch_);
    {
      MutexLock lock(link_->mu);
      link_->call = nullptr;
    }
    delete this;
  }

 private:
  // How the job and the timer reach the call while it lives.
  struct Link {
    Mutex mu;
    WatchCall* call ABSL_GUARDED_BY(mu) = nullptr;
    std::atomic<bool> asked{false};
  };

  static void LookAt(ServerCore& core, const std::shared_ptr<Link>& link,
                     Timer::Clock::time_point when) {
    core.timer().At(when, [link] {
      link->asked = false;
      MutexLock lock(link->mu);
      if (link->call != nullptr) link->call->Pump();
    });
  }

  // Under link_->mu, which the analysis cannot name from here.
  void Pump() {
    if (writing_ || ended_) return;
    const auto now = Timer::Clock::now();
    const auto heartbeat = std::chrono::milliseconds(core_.options().heartbeat_ms);
    uint64_t sequence = 0;
    const v1::CompileJob state = job_->state(&sequence);
    if (sequence == sent_ && now < sent_at_ + heartbeat) return;
    sent_ = sequence;
    sent_at_ = now;
    const grpc::Status serialized = SerializeReply(state, &bytes_);
    writing_ = true;
    if (!serialized.ok() || IsFinal(state.phase())) {
      ended_ = true;
      StartWriteAndFinish(&bytes_, grpc::WriteOptions(), serialized);
      return;
    }
    StartWrite(&bytes_);
    LookAt(core_, link_, now + heartbeat);
  }

  void End(const absl::Status& status) {
    if (ended_) return;
    ended_ = true;
    Finish(EndCall(kMethod, *context_, status));
  }

  CallSlot slot_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<CompileJob> job_;
  uint64_t watch_ = 0;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
  // Under link_->mu.
  grpc::ByteBuffer bytes_;
  bool writing_ = false;
  bool ended_ = false;
  uint64_t sent_ = 0;
  Timer::Clock::time_point sent_at_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* CompileService::WatchCompileJob(Context* context,
                                                                            const Bytes* request) {
  auto* call = new WatchCall(core_, context);
  call->Begin(*request);
  return call;
}

}  // namespace athanor
