#include "absl/strings/str_cat.h"
#include "server/log.h"
#include "server/public_status.h"
#include "server/rpc/call.h"
#include "server/rpc/model_service.h"
#include "server/upload.h"
#include "server/version_batching.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "UploadModel";

// Reads one message at a time and works on it on the disk queue, so that a slow disk slows its own
// upload only. What keeps the call from ending twice: at any time either a read, a piece of work or
// nothing is outstanding, and only its end goes on.
class UploadCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  UploadCall(ServerCore& core, grpc::CallbackServerContext* context, grpc::ByteBuffer* reply)
      : slot_(core),
        core_(core),
        context_(context),
        reply_bytes_(reply),
        upload_(&core.registry(), &core.ledger(), core.options()) {}

  void Begin() {
    absl::Status admitted = slot_.status();
    if (core_.uploads().fetch_add(1) >= core_.options().max_uploads && admitted.ok()) {
      core_.metrics().server().Count(Metric::kRefusals, Refusal::kUploads);
      admitted = absl::ResourceExhaustedError(absl::StrCat(
          core_.options().max_uploads, " uploads are under way, the most allowed (--max_uploads)"));
    }
    if (!admitted.ok()) {
      End(admitted);
    } else {
      Read();
    }
  }

  void OnReadDone(bool ok) override {
    if (!StopIdleTimer()) return;  // the timer ends the call
    core_.disk_queue().Submit([this, ok] { Work(ok); });
  }

  void OnDone() override {
    core_.uploads().fetch_sub(1);
    // Removing temporary files is work for the disk queue too.
    core_.disk_queue().Submit([this] { delete this; });
  }

 private:
  // Shared with the timer, which may outlive the call.
  struct Idle {
    std::atomic<bool> decided{false};
  };

  void Read() {
    idle_ = std::make_shared<Idle>();
    timer_ = core_.timer().At(
        Timer::Clock::now() + std::chrono::milliseconds(core_.options().upload_idle_ms),
        [this, idle = idle_] {
          if (idle->decided.exchange(true)) return;
          End(absl::DeadlineExceededError(
              absl::StrCat("upload: nothing came for ", core_.options().upload_idle_ms,
                           " ms (--upload_idle); ", upload_.CutOff().message())));
        });
    StartRead(&bytes_);
  }

  // False if the timer was first.
  bool StopIdleTimer() {
    const bool first = !idle_->decided.exchange(true);
    if (first) core_.timer().Cancel(timer_);
    return first;
  }

  void Work(bool ok) {
    if (!ok) {
      End(context_->IsCancelled() ? absl::CancelledError("the upload was cancelled")
                                  : upload_.CutOff());
      return;
    }
    v1::UploadModelRequest message;
    absl::Status status = ParseRequest(bytes_, &message);
    if (status.ok() && message.has_header()) {
      const auto& rules = message.header().disable_rules();
      status = core_.workers().CheckRules("header.disable_rules", {rules.begin(), rules.end()});
    }
    if (status.ok()) status = upload_.Take(message);
    if (!status.ok()) {
      End(status);
    } else if (upload_.committed()) {
      End(Acknowledge());
    } else {
      Read();
    }
  }

  absl::Status Acknowledge() {
    const std::shared_ptr<ModelVersion>& version = upload_.version();
    v1::UploadModelResponse reply;
    reply.set_name(version->name());
    reply.set_version(absl::StrCat(version->version()));
    *reply.mutable_batching() = version->batching().ToProto();
    // The model is stored either way; a job can be started later.
    auto job = core_.workers().Start(version);
    if (job.ok()) {
      reply.set_compile_job_id((*job)->id());
    } else {
      version->serving().Fail(job.status());
    }
    LogInfo("model uploaded", {{"request", RequestId(*context_)},
                               {"model", version->name()},
                               {"version", version->version()},
                               {"job", reply.compile_job_id()}});
    LogBatching(*version);
    const grpc::Status sent = SerializeReply(reply, reply_bytes_);
    return sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message());
  }

  void End(const absl::Status& status) {
    core_.metrics().server().Count(Metric::kUploads, PublicStatus(status).code());
    Finish(EndCall(kMethod, *context_, status));
  }

  CallSlot slot_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const reply_bytes_;
  grpc::ByteBuffer bytes_;
  Upload upload_;
  std::shared_ptr<Idle> idle_;
  Timer::Id timer_ = 0;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* ModelService::UploadModel(Context* context,
                                                                     Bytes* reply) {
  auto* call = new UploadCall(core_, context, reply);
  call->Begin();
  return call;
}

}  // namespace athanor
