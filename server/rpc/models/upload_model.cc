#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/base/public_status.h"
#include "server/models/upload.h"
#include "server/models/version_batching.h"
#include "server/rpc/call.h"
#include "server/rpc/chunk_reads.h"
#include "server/rpc/models/model_service.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "UploadModel";
// Metadata keys that this project's clients send and read (model.proto).
constexpr char kRefusalBytesKey[] = "athanor-max-refusal-bytes";
constexpr char kRefusalsKey[] = "athanor-refusals-bin";
constexpr int64_t kMostRefusalBytes = 1 << 20;

// Processes messages on the disk queue, and the commit of an imported model on the import queue.
class UploadCall final : public ChunkReads {
 public:
  UploadCall(ServerCore& core, grpc::CallbackServerContext* context, grpc::ByteBuffer* reply)
      : ChunkReads(core, context, core.disk_queue(), "upload", kMethod),
        reply_bytes_(reply),
        upload_(&core.registry(), &core.ledger(), core.options(),
                [context] { return context->IsCancelled(); }) {}

  void OnDone() override {
    // Removes temporary files on the disk queue too.
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
    ServerLedger::Reservation held;
    absl::Status status = ParseRequest(core_, bytes_, &message, &held);
    if (status.ok() && message.has_header()) status = CheckHeader(message.header());
    if (status.ok() && message.has_commit()) status = CheckNumberOfModels();
    if (status.ok() && message.has_commit() && upload_.imports()) {
      core_.import_queue().Submit([this, message] { Go(upload_.Take(message)); });
      return;
    }
    Go(status.ok() ? upload_.Take(message) : status);
  }

  absl::Status CheckHeader(const v1::UploadHeader& header) {
    RETURN_IF_ERROR(admission_.caller().MayUse(header.name()));
    RETURN_IF_ERROR(core_.registry().CheckUploaded(header.name()));
    name_ = header.name();
    RETURN_IF_ERROR(CheckNumberOfModels());
    const auto& rules = header.disable_rules();
    return core_.workers().policies().CheckRules("header.disable_rules",
                                                 {rules.begin(), rules.end()});
  }

  // Counts the names of models that the caller's patterns have: at first, so that nothing is sent
  // in vain, and at the commit, when others may have come.
  absl::Status CheckNumberOfModels() {
    const Caller& caller = admission_.caller();
    if (caller.max_models() == 0) return absl::OkStatus();
    std::set<std::string> names;
    for (const auto& version : core_.registry().versions().List("")) {
      if (version->name() == name_) return absl::OkStatus();  // one version more
      if (caller.Sees(version->name())) names.insert(version->name());
    }
    if (static_cast<int64_t>(names.size()) < caller.max_models()) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat(caller.name(), " has ", names.size(),
                     " models, the most it may have (max_models in --auth's file); delete one"));
  }

  // Continues after a message.
  void Go(const absl::Status& status) {
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
    if (upload_.dry_run()) {
      *reply.mutable_model() = version->Interface();
      *reply.mutable_batching() = reply.model().batching();
      return Reply(reply);
    }
    reply.set_version(absl::StrCat(version->version()));
    *reply.mutable_batching() = version->batching().ToProto();
    // The model is stored even if the job cannot be started now.
    auto job = core_.workers().Start(version);
    if (job.ok()) {
      reply.set_compile_job_id((*job)->id());
    } else {
      version->serving().Fail(job.status());
    }
    LogAudited(admission_, *context_, version->name());
    LogInfo("model uploaded", {{"request", admission_.request_id()},
                               {"model", version->name()},
                               {"version", version->version()},
                               {"job", reply.compile_job_id()}});
    LogBatching(*version);
    *reply.mutable_model() = core_.registry().versions().Describe(*version);
    return Reply(reply);
  }

  absl::Status Reply(const v1::UploadModelResponse& reply) {
    const grpc::Status sent = SerializeReply(reply, reply_bytes_);
    return sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message());
  }

  // Adds the refusals if the client asks for them: by default a client takes 8 KiB of metadata, and
  // more would end the call.
  void AddRefusals() {
    const auto asked = context_->client_metadata().find(kRefusalBytesKey);
    int64_t bytes = 0;
    if (upload_.refusals().empty() || asked == context_->client_metadata().end() ||
        !absl::SimpleAtoi(absl::string_view(asked->second.data(), asked->second.size()), &bytes)) {
      return;
    }
    bytes = std::min(bytes, kMostRefusalBytes);
    const v1::Refusals refusals = RefusalsToProto(upload_.refusals(), bytes);
    context_->AddTrailingMetadata(kRefusalsKey, refusals.SerializeAsString());
  }

  std::string WhatIsMissing() const override {
    return absl::StrCat("; ", upload_.CutOff().message());
  }

  void End(const absl::Status& status) override {
    core_.metrics().server().Count(Metric::kUploads, PublicStatus(status).code());
    AddRefusals();
    upload_.LetGo();
    FinishUpload(EndCall(kMethod, *context_, status, &admission_));
  }

  grpc::ByteBuffer* const reply_bytes_;
  std::string name_;  // of the header
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
