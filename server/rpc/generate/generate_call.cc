#include "server/rpc/generate/generate_call.h"

#include <grpc/grpc.h>

#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/generate/generate_service.h"
#include "server/rpc/generate/response_message.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "Generate";

std::chrono::steady_clock::time_point DeadlineOf(const grpc::CallbackServerContext& context) {
  using Clock = std::chrono::steady_clock;
  const auto left = context.deadline() - std::chrono::system_clock::now();
  // gRPC's "no deadline" is so far away that adding it to anything would overflow.
  return left < std::chrono::hours(24 * 365) ? Clock::now() + left : Clock::time_point::max();
}

}  // namespace

GenerateCall::GenerateCall(ServerCore& core, const std::shared_ptr<StreamWriter>& writer,
                           grpc::CallbackServerContext* context, const grpc::ByteBuffer* request)
    : admission_(core, *context, kMethod),
      core_(core),
      context_(context),
      request_bytes_(request),
      deadline_(DeadlineOf(*context)),
      generation_(Generation::Make(
          core, writer,
          {.client = admission_.client(),
           .cache_group = admission_.caller().cache_group(),
           .arrived = arrived_,
           .deadline = deadline_,
           .trace = admission_.trace(),
           // gRPC made the buffer for this call only, though it passes it to the method as const.
           .read = [request] { const_cast<grpc::ByteBuffer*>(request)->Clear(); }},
          {this})) {}

GenerateCall* GenerateCall::Begin() {
  if (absl::Status s = admission_.status(); !s.ok()) {
    generation_->Refuse(s);
  } else if (InflatesLong(*request_bytes_)) {
    core_.inflate_queue().Submit([this] { Read(); });
  } else {
    Read();
  }
  return this;
}

void GenerateCall::Read() {
  // Outlives the call, which may end as soon as it begins.
  const std::shared_ptr<Generation> generation = generation_;
  std::vector<v1::GenerateRequest> requests(1);
  ServerLedger::Reservation memory;
  if (absl::Status s = ParseRequest(core_, *request_bytes_, &requests[0], &memory); !s.ok()) {
    generation->Refuse(s);
    return;
  }
  model_ = requests[0].model();
  if (absl::Status s = admission_.caller().MayUse(model_); !s.ok()) {
    generation->Refuse(s);
    return;
  }
  generation->Begin(std::move(requests), std::move(memory));
}

void GenerateCall::OnDone() {
  generation_->Leave();
  delete this;
}

void GenerateCall::SetBytes(std::vector<GenerateEvent> events) {
  // Has at most an outbox's events, so that it always has room in a buffer.
  SerializeReply(ResponseMessage(std::move(events), generation_->facts(0)), &bytes_);
}

bool GenerateCall::Write(std::vector<GenerateEvent> events) {
  SetBytes(std::move(events));
  StartWrite(&bytes_);
  return true;
}

bool GenerateCall::WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) {
  SetBytes(std::move(events));
  StartWriteAndFinish(&bytes_, grpc::WriteOptions(), Ended(status));
  return true;
}

void GenerateCall::End(const absl::Status& status) { Finish(Ended(status)); }

void GenerateCall::Break(const absl::Status& why) {
  // The trailing metadata of Finish would wait behind the message that the client does not read.
  const grpc::Status sent = ToGrpc(why);
  grpc_call_cancel_with_status(context_->c_call(), static_cast<grpc_status_code>(sent.error_code()),
                               sent.error_message().c_str(), nullptr);
}

grpc::Status GenerateCall::Ended(const absl::Status& status) {
  absl::Status ended = status;
  if (absl::IsCancelled(ended) && Clock::now() >= deadline_) {
    ended = absl::DeadlineExceededError("the call's deadline is over");
  }
  generation_->Count(ended);
  LogCall(kMethod, admission_, model_, arrived_, ended);
  return EndCall(kMethod, *context_, ended, &admission_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateService::Generate(Context* context,
                                                                      const Bytes* request) {
  return (new GenerateCall(core_, writer_, context, request))->Begin();
}

}  // namespace athanor
