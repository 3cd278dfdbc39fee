#include "server/rpc/inference/infer_call.h"

#include "server/rpc/call.h"
#include "server/rpc/inference/begin_inference.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "ModelInfer";

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
  } else {
    // A single call has one response, the last.
    BeginInference(
        core_, admission_, *request_bytes_, &inference_,
        [](inference::ModelInferRequest* request) { return TakeWantsFinal(request).status(); });
  }
  return this;
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
