#include "server/rpc/call.h"

#include "server/base/call_log.h"
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
                     const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string id = RequestId(context);
  context.AddTrailingMetadata(kRequestIdKey, id);
  const absl::Status told = PublicStatus(status);
  LogFailedCall({id, method, context.peer(), ""}, told);
  return ToGrpc(told);
}

void UnaryCall::Begin(const grpc::ByteBuffer& bytes, absl::AnyInvocable<absl::Status()> answer) {
  absl::Status admitted = traits_.while_draining ? absl::OkStatus() : slot_.status();
  if (!admitted.ok()) {
    Finish(EndCall(traits_.name, *context_, admitted));
    return;
  }
  auto work = [this, answer = std::move(answer)]() mutable {
    const absl::Status status = answer();
    // The context may be gone as soon as Finish is called, so the answer's captures must not need
    // it.
    Finish(EndCall(traits_.name, *context_, status));
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
