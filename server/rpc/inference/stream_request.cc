#include "server/rpc/inference/stream_request.h"

#include <utility>

#include "compiler/ir/value/message.h"
#include "server/base/public_status.h"
#include "server/rpc/call.h"
#include "server/rpc/inference/begin_inference.h"

namespace athanor {
namespace {

// Triton's parameters of a request and of its response.
constexpr char kWantsFinal[] = "triton_enable_empty_final_response";
constexpr char kFinal[] = "triton_final_response";

}  // namespace

StreamRequest::StreamRequest(ServerCore& core, grpc::CallbackServerContext* context,
                             StreamCall* call, grpc::ByteBuffer bytes)
    : admission_(core, *context, kMethod),
      core_(core),
      context_(context),
      call_(*call),
      bytes_(std::move(bytes)),
      inference_(core, InferenceCallerOf(*context, admission_), this) {}

void StreamRequest::Begin() {
  if (absl::Status s = admission_.status(); !s.ok()) {
    inference_.Refuse(s);
  } else {
    BeginInference(core_, admission_, bytes_, &inference_,
                   [this](inference::ModelInferRequest* request) { return Read(request); });
  }
}

absl::Status StreamRequest::Read(inference::ModelInferRequest* request) {
  id_ = request->id();
  model_ = request->model_name();
  const auto wants = request->parameters().find(kWantsFinal);
  if (wants == request->parameters().end()) return absl::OkStatus();
  if (!wants->second.has_bool_param()) return Invalid("parameter ", kWantsFinal, " must be a bool");
  marks_final_ = wants->second.bool_param();
  request->mutable_parameters()->erase(kWantsFinal);
  return absl::OkStatus();
}

absl::Status StreamRequest::Answer(inference::ModelInferResponse* reply) {
  inference::ModelStreamInferResponse answer;
  answer.mutable_infer_response()->Swap(reply);
  if (marks_final_) {
    (*answer.mutable_infer_response()->mutable_parameters())[kFinal].set_bool_param(true);
  }
  const grpc::Status sent = SerializeReply(answer, &answer_);
  return sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message());
}

void StreamRequest::Done(const absl::Status& status) {
  LogCall(kMethod, admission_, model_, inference_.arrived(), status);
  status_ = status;
  if (!status.ok()) {
    inference::ModelStreamInferResponse answer;
    answer.set_error_message(std::string(PublicStatus(status).message()));
    answer.mutable_infer_response()->set_id(id_);
    answer.mutable_infer_response()->set_model_name(model_);
    SerializeReply(answer, &answer_);
  }
  EndRequest(kMethod, *context_, status, &admission_);
  call_.Ended(this);
}

}  // namespace athanor
