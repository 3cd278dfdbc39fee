#include "server/rpc/inference/stream_request.h"

#include <string>
#include <utility>

#include "deploy/bazel/libs/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "server/base/public_status.h"
#include "server/rpc/call.h"
#include "server/rpc/inference/begin_inference.h"
#include "server/rpc/inflate.h"

namespace athanor {
namespace {

// Triton's parameter of a response.
constexpr char kFinal[] = "triton_final_response";

// Returns the model's name, its version and the id of a request that was refused unread, for its
// answer. They stand ahead of all else on the wire; a client that compresses or reorders its
// messages, or whose names are longer than kMostNames, goes without.
inference::ModelInferRequest NamesOf(const grpc::ByteBuffer& bytes) {
  using google::protobuf::internal::WireFormatLite;
  constexpr int kMostNames = 4'096;
  inference::ModelInferRequest names;
  grpc::ByteBuffer copy = bytes;  // shares the slices
  WireReader reader(&copy);
  if (!reader.status().ok() || reader.algorithm() != GRPC_COMPRESS_NONE) return names;
  int end = 0;
  google::protobuf::io::CodedInputStream in(&reader);
  while (const uint32_t tag = in.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) > inference::ModelInferRequest::kIdFieldNumber)
      break;
    if (!WireFormatLite::SkipField(&in, tag)) break;
    end = in.CurrentPosition();
  }
  if (end > kMostNames) return names;
  WireReader again(&copy);
  google::protobuf::io::LimitingInputStream limited(&again, end);
  if (!names.ParseFromZeroCopyStream(&limited)) names.Clear();
  return names;
}

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
  ASSIGN_OR_RETURN(marks_final_, TakeWantsFinal(request));
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
  status_ = status;
  const inference::ModelInferRequest& request = *inference_.request();
  LogCall(kMethod, admission_, request.model_name(), inference_.arrived(), status);
  if (!status.ok() && request.model_name().empty()) {
    MakeError(NamesOf(bytes_));
  } else if (!status.ok()) {
    MakeError(request);
  }
  bytes_.Clear();
  EndRequest(kMethod, *context_, status, &admission_);
  // The answer may wait long for those ahead of it, or for its client to read. It takes no other
  // call's place meanwhile; its bytes stay reserved.
  admission_.LeaveSlot();
  call_.Ended(this);
}

void StreamRequest::MakeError(const inference::ModelInferRequest& request) {
  inference::ModelStreamInferResponse answer;
  answer.set_error_message(std::string(PublicStatus(status_).message()));
  answer.mutable_infer_response()->set_id(request.id());
  answer.mutable_infer_response()->set_model_name(request.model_name());
  SerializeReply(answer, &answer_);
}

}  // namespace athanor
