#include "server/rpc/inference/infer_call.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include "server/rpc/call.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "ModelInfer";

InferenceCaller InferenceCallerOf(const grpc::CallbackServerContext& context,
                                  const RpcAdmission& admission) {
  InferenceCaller caller{.client = admission.client(), .trace = admission.trace()};
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // gRPC's "no deadline" is so far away that adding it to anything would overflow.
  if (left < std::chrono::hours(24 * 365)) caller.deadline = caller.arrived + left;
  return caller;
}

}  // namespace

InferCall::InferCall(ServerCore& core, grpc::CallbackServerContext* context,
                     const grpc::ByteBuffer* request, grpc::ByteBuffer* reply)
    : admission_(core, *context, kMethod),
      core_(core),
      context_(context),
      request_bytes_(request),
      reply_bytes_(reply),
      inference_(core, InferenceCallerOf(*context, admission_), this) {}

InferCall* InferCall::Begin() {
  if (absl::Status s = admission_.status(); !s.ok()) {
    inference_.Refuse(s);
  } else if (InflatesLong(*request_bytes_)) {
    core_.inflate_queue().Submit([this] { Start(/*on_rpc_thread=*/false); });
  } else {
    Start(/*on_rpc_thread=*/true);
  }
  return this;
}

void InferCall::Start(bool on_rpc_thread) {
  // The bytes are held twice: by gRPC and by the parsed request.
  InferenceStart start{.bytes = static_cast<int64_t>(request_bytes_->Length()) * 2,
                       .runs_here = on_rpc_thread};
  absl::Status parsed = ParseRequest(core_, *request_bytes_, inference_.request(), &start.memory);
  if (parsed.ok()) parsed = admission_.caller().MayUse(inference_.request()->model_name());
  if (parsed.ok()) {
    inference_.Begin(std::move(start));
  } else {
    inference_.Refuse(parsed);
  }
}

absl::Status InferCall::Answer(inference::ModelInferResponse* reply) {
  const grpc::Status sent = SerializeReply(*reply, reply_bytes_);
  return sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message());
}

void InferCall::Release() {
  // gRPC made the buffer for this call only, though it passes it to the method as const.
  const_cast<grpc::ByteBuffer*>(request_bytes_)->Clear();
}

void InferCall::Done(const absl::Status& status) {
  LogCall(kMethod, admission_, inference_.request()->model_name(), inference_.arrived(), status);
  Finish(EndCall(kMethod, *context_, status, &admission_));
}

}  // namespace athanor
