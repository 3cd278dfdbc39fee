#include "absl/strings/str_cat.h"
#include "server/log.h"
#include "server/public_status.h"
#include "server/rpc/call.h"
#include "server/rpc/chunk_reads.h"
#include "server/rpc/model_service.h"
#include "server/upload.h"
#include "server/version_batching.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "UploadModel";

// Works on messages on the disk queue.
class UploadCall final : public ChunkReads {
 public:
  UploadCall(ServerCore& core, grpc::CallbackServerContext* context, grpc::ByteBuffer* reply)
      : ChunkReads(core, context, core.disk_queue(), "upload"),
        reply_bytes_(reply),
        upload_(&core.registry(), &core.ledger(), core.options()) {}

  void OnDone() override {
    core_.uploads().fetch_sub(1);
    // Removing temporary files is work for the disk queue too.
    core_.disk_queue().Submit([this] { delete this; });
  }

 private:
  void Work(bool ok) override {
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

  std::string WhatIsMissing() const override {
    return absl::StrCat("; ", upload_.CutOff().message());
  }

  void End(const absl::Status& status) override {
    core_.metrics().server().Count(Metric::kUploads, PublicStatus(status).code());
    Finish(EndCall(kMethod, *context_, status));
  }

  grpc::ByteBuffer* const reply_bytes_;
  Upload upload_;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* ModelService::UploadModel(Context* context,
                                                                     Bytes* reply) {
  auto* call = new UploadCall(core_, context, reply);
  call->Begin();
  return call;
}

}  // namespace athanor
