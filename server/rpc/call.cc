#include "server/rpc/call.h"

#include "server/base/call_log.h"
#include "server/base/log.h"
#include "server/base/public_status.h"

namespace athanor {
namespace {

constexpr char kRequestIdKey[] = "x-request-id";

}  // namespace

std::string RequestId(const grpc::CallbackServerContext& context) {
  auto it = context.client_metadata().find(kRequestIdKey);
  if (it == context.client_metadata().end()) return RequestIdFor("");
  return RequestIdFor(absl::string_view(it->second.data(), it->second.size()));
}

grpc::Status SerializeReply(const google::protobuf::Message& message, grpc::ByteBuffer* bytes) {
  bytes->Clear();  // a stream passes the same buffer again
  bool own = false;
  return grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, bytes,
                                                                                    &own);
}

grpc::Status EndCall(absl::string_view method, grpc::CallbackServerContext& context,
                     const absl::Status& status, RpcAdmission* admission) {
  if (admission != nullptr) admission->End();
  if (status.ok()) return grpc::Status::OK;
  const std::string id = RequestId(context);
  context.AddTrailingMetadata(kRequestIdKey, id);
  absl::string_view client;
  if (admission != nullptr) client = admission->caller().name();
  LogFailedCall({id, method, context.peer(), client}, PublicStatus(status));
  return ToGrpc(status);
}

void LogAudited(const RpcAdmission& admission, const grpc::CallbackServerContext& context,
                absl::string_view model) {
  LogInfo("audit", {{"request", RequestId(context)},
                    {"method", admission.row().method},
                    {"client", admission.caller().name()},
                    {"peer", context.peer()},
                    {"model", model}});
}

absl::Status UnaryCall::CheckModel(const google::protobuf::Message& request) {
  if (admission_.row().audited) model_ = admission_.ModelOf(request);
  return admission_.CheckModel(request);
}

void UnaryCall::Begin(const grpc::ByteBuffer& bytes, absl::AnyInvocable<absl::Status()> answer) {
  if (absl::Status admitted = admission_.status(traits_.while_draining); !admitted.ok()) {
    Finish(EndCall(traits_.name, *context_, admitted, &admission_));
    return;
  }
  auto work = [this, answer = std::move(answer)]() mutable {
    const absl::Status status = answer();
    // The context may be gone as soon as Finish is called, so the answer's captures must not need
    // it.
    if (status.ok() && admission_.row().audited) LogAudited(admission_, *context_, model_);
    Finish(EndCall(traits_.name, *context_, status, &admission_));
  };
  if (traits_.uses_disk) {
    core_.disk_queue().Submit(std::move(work));
  } else if (traits_.uses_cache) {
    core_.cache_queue().Submit(std::move(work));
  } else if (traits_.queue != nullptr) {
    traits_.queue->Submit(std::move(work));
  } else if (InflatesLong(bytes)) {
    core_.inflate_queue().Submit(std::move(work));
  } else {
    work();
  }
}

}  // namespace athanor
