#include <chrono>

#include "server/rpc/call.h"
#include "server/rpc/compile/compile_service.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "CancelCompileJob";
constexpr std::chrono::milliseconds kLookAgain{5};

// Answers once the job has stopped; polls, and holds no thread meanwhile.
class CancelCall final : public grpc::ServerUnaryReactor {
 public:
  CancelCall(ServerCore& core, grpc::CallbackServerContext* context, grpc::ByteBuffer* reply)
      : admission_(core, *context, kMethod), core_(core), context_(context), reply_bytes_(reply) {}

  void Begin(const grpc::ByteBuffer& bytes) {
    v1::CancelCompileJobRequest request;
    absl::Status status = admission_.status();
    if (status.ok()) status = ParseSmallRequest(core_, bytes, &request);
    if (status.ok()) {
      auto job = core_.workers().jobs().Find(request.id());
      status = job.status();
      if (job.ok()) status = admission_.caller().MayUse((*job)->model());
      if (status.ok()) job_ = *std::move(job);
    }
    if (!status.ok()) {
      Finish(EndCall(kMethod, *context_, status, &admission_));
      return;
    }
    LogAudited(admission_, *context_, job_->model());
    if (!job_->finished()) core_.workers().Cancel(job_, v1::CompileJob::STOP_CANCELLED);
    Look();
  }

  void OnDone() override { delete this; }

 private:
  void Look() {
    if (job_->finished()) {
      const grpc::Status sent = SerializeReply(job_->state(), reply_bytes_);
      Finish(
          EndCall(kMethod, *context_,
                  sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message()),
                  &admission_));
      return;
    }
    core_.timer().At(Timer::Clock::now() + kLookAgain, [this] { Look(); });
  }

  RpcAdmission admission_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const reply_bytes_;
  std::shared_ptr<CompileJob> job_;
};

}  // namespace

grpc::ServerUnaryReactor* CompileService::CancelCompileJob(Context* context, const Bytes* request,
                                                           Bytes* reply) {
  auto* call = new CancelCall(core_, context, reply);
  call->Begin(*request);
  return call;
}

}  // namespace athanor
