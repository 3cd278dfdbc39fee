#include <chrono>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/compile/compile_service.h"
#include "server/rpc/watch_stream.h"

namespace athanor {
namespace {

// Writes the job's state after each change, and again after --heartbeat without one. A slow watcher
// gets the newest state when it is ready for it; states in between are skipped.
class JobWatch final : public WatchStream {
 public:
  JobWatch(ServerCore& core, grpc::CallbackServerContext* context)
      : WatchStream(core, context, "WatchCompileJob") {}

  void Begin(const grpc::ByteBuffer& bytes) {
    v1::WatchCompileJobRequest request;
    absl::Status status = admitted();
    if (status.ok()) status = ParseSmallRequest(core(), bytes, &request);
    if (status.ok()) {
      auto job = core().workers().jobs().Find(request.id());
      status = job.status();
      if (job.ok()) status = caller().MayUse((*job)->model());
      if (status.ok()) job_ = *std::move(job);
    }
    if (!status.ok()) return Refuse(status);
    Open();
    watch_ = job_->Watch([link = link()] { link->Ask(); });
    link()->Ask();
  }

 private:
  void Look() override {
    const auto now = Timer::Clock::now();
    const auto heartbeat = std::chrono::milliseconds(core().options().heartbeat_ms);
    uint64_t sequence = 0;
    const v1::CompileJob state = job_->state(&sequence);
    if (sequence == sent_ && now < sent_at_ + heartbeat) return;
    sent_ = sequence;
    sent_at_ = now;
    if (IsFinal(state.phase())) return WriteLast(state);
    Write(state);
    link()->AskAt(now + heartbeat);
  }

  void Leave() override {
    if (job_ != nullptr) job_->Unwatch(watch_);
  }

  std::shared_ptr<CompileJob> job_;
  uint64_t watch_ = 0;
  // Used by Look.
  uint64_t sent_ = 0;
  Timer::Clock::time_point sent_at_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* CompileService::WatchCompileJob(Context* context,
                                                                            const Bytes* request) {
  auto* call = new JobWatch(core_, context);
  call->Begin(*request);
  return call;
}

}  // namespace athanor
