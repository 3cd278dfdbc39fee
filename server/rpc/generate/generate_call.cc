#include "server/rpc/generate/generate_call.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/base/public_status.h"
#include "server/calls/language_version.h"
#include "server/calls/prompt.h"
#include "server/rpc/call.h"
#include "server/rpc/generate/generate_service.h"

namespace athanor {
namespace {

constexpr char kMethod[] = "Generate";

}  // namespace

GenerateCall::GenerateCall(ServerCore& core, std::shared_ptr<StreamWriter> writer,
                           WorkQueue* text_queue, grpc::CallbackServerContext* context,
                           const grpc::ByteBuffer* request)
    : slot_(core, context->peer()),
      core_(core),
      text_queue_(*text_queue),
      context_(context),
      request_bytes_(request),
      stream_(std::make_shared<TokenStream>(this, &core.timer(), std::move(writer))),
      owner_(std::make_shared<CallOwner>(&core.timer())) {}

GenerateCall* GenerateCall::Begin() {
  if (absl::Status s = slot_.status(); !s.ok()) {
    stream_->Refuse(s);
  } else if (InflatesLong(*request_bytes_)) {
    core_.inflate_queue().Submit([this] { Read(); });
  } else {
    Read();
  }
  return this;
}

void GenerateCall::Read() {
  if (absl::Status s = Accept(); !s.ok()) {
    stream_->Refuse(s);
  } else if (TakesLong(request_)) {
    text_queue_.Submit([this] { Tokenize(); });
  } else {
    Tokenize();
  }
}

absl::Status GenerateCall::Accept() {
  RETURN_IF_ERROR(ParseRequest(core_, *request_bytes_, &request_, &parsed_memory_));
  ASSIGN_OR_RETURN(version_, FindLanguageModel(core_, request_.model(), request_.version()));
  ASSIGN_OR_RETURN(input_, ReadSettings(request_, *version_->language_model(), arrived_));
  input_.sequence.deadline = std::min(input_.sequence.deadline, DeadlineOf());
  return absl::OkStatus();
}

GenerateCall::Clock::time_point GenerateCall::DeadlineOf() const {
  const auto left = context_->deadline() - std::chrono::system_clock::now();
  // gRPC's "no deadline" is so far away that adding it to anything would overflow.
  return left < std::chrono::hours(24 * 365) ? Clock::now() + left : Clock::time_point::max();
}

absl::Status GenerateCall::MakePrompt() {
  // It may have waited for others' texts.
  RETURN_IF_ERROR(stream_->cancelled());
  if (Clock::now() >= input_.sequence.deadline) {
    return absl::DeadlineExceededError(
        absl::StrCat(version_->Describe(), ": its time was up before its prompt was read"));
  }
  ASSIGN_OR_RETURN(input_.sequence.prompt, PromptTokens(request_, *version_->language_model()));
  return absl::OkStatus();
}

void GenerateCall::Tokenize() {
  if (absl::Status s = MakePrompt(); !s.ok()) {
    stream_->Refuse(s);
    return;
  }
  FreeRequest();
  if (version_->plan() != nullptr) {
    Start();
  } else {
    AwaitPlan();
  }
}

void GenerateCall::AwaitPlan() {
  // Outlive the call, which may end as soon as it waits.
  const std::shared_ptr<CallOwner> owner = owner_;
  const std::shared_ptr<ModelVersion> version = version_;
  stalled_ = Clock::now();
  const auto longest = arrived_ + std::chrono::milliseconds(core_.options().max_wait_ms);
  const auto limit = std::min<Clock::time_point>(input_.sequence.deadline, longest);
  switch (owner->StartWaiting(limit, [this] { Expire(); })) {
    case CallOwner::Waiting::kStarted:
      owner->AwaitPlan(version->serving(), [this](const absl::Status& status) { GotPlan(status); });
      return;
    case CallOwner::Waiting::kCancelled:
      stream_->Refuse(stream_->cancelled());
      return;
    case CallOwner::Waiting::kExpired:
      Expire();
      return;
  }
}

void GenerateCall::GotPlan(const absl::Status& status) {
  owner_->StopTimer();
  EndStall();
  if (status.ok()) {
    Start();
  } else {
    stream_->Refuse(status);
  }
}

void GenerateCall::Expire() {
  owner_->LeavePlan(version_->serving());
  EndStall();
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - arrived_);
  stream_->Refuse(absl::DeadlineExceededError(absl::StrCat(
      version_->Describe(), ": its baseline plan was not ready after ", waited.count(), " ms")));
}

void GenerateCall::EndStall() {
  version_->metrics().cells.Observe(Metric::kStallSeconds, Clock::now() - stalled_);
}

void GenerateCall::Start() {
  // Outlives the call, which may end as soon as its stream is open.
  const std::shared_ptr<TokenStream> stream = stream_;
  Engine* engine = version_->language_model()->engine.get();
  StreamFacts facts = Facts();
  absl::StatusOr<Engine::Started> started =
      engine->Start(std::move(input_), [stream] { stream->Ask(); });
  if (!started.ok()) {
    stream->Refuse(started.status());
    return;
  }
  stream->Open(engine, *std::move(started), std::move(facts));
}

StreamFacts GenerateCall::Facts() const {
  return {.arrived = arrived_,
          .seed = input_.sampling.seed,
          .model_version = absl::StrCat(version_->version()),
          .logprobs = input_.sampling.logprobs.has_value(),
          .tokenizer = version_->language_model()->text.tokenizer};
}

void GenerateCall::FreeRequest() {
  const std::string model = request_.model();  // for the log
  v1::GenerateRequest().Swap(&request_);
  request_.set_model(model);
  // gRPC made the buffer for this call only, though it passes it to the method as const.
  const_cast<grpc::ByteBuffer*>(request_bytes_)->Clear();
  parsed_memory_ = {};
}

void GenerateCall::OnCancel() {
  // A server that ends cancels its calls, as clients do.
  const absl::Status left =
      core_.draining()
          ? absl::UnavailableError("the call did not end within --drain, or the client left")
          : absl::CancelledError("the client left");
  stream_->Cancel(left);
  if (!owner_->Cancel()) return;
  owner_->StopTimer();
  owner_->LeavePlan(version_->serving());
  EndStall();
  stream_->Refuse(left);
}

void GenerateCall::OnDone() {
  stream_->Leave();
  delete this;
}

void GenerateCall::Write(const v1::GenerateResponse& message) {
  // Has at most an outbox's events, so that it always has room in a buffer.
  SerializeReply(message, &bytes_);
  StartWrite(&bytes_);
}

void GenerateCall::WriteLast(const v1::GenerateResponse& message, const absl::Status& status) {
  SerializeReply(message, &bytes_);
  StartWriteAndFinish(&bytes_, grpc::WriteOptions(), Ended(status));
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
  if (absl::IsCancelled(ended) && Clock::now() >= DeadlineOf()) {
    ended = absl::DeadlineExceededError("the call's deadline is over");
  }
  const auto took = Clock::now() - arrived_;
  MetricCells& metrics =
      version_ == nullptr ? core_.metrics().no_version() : version_->metrics().cells;
  metrics.Count(Metric::kRequests, PublicStatus(ended).code());
  metrics.Observe(Metric::kRequestSeconds, took);
  if (DebugLogged()) {
    LogDebug("call", {{"request", RequestId(*context_)},
                      {"method", kMethod},
                      {"model", request_.model()},
                      {"us", std::chrono::duration_cast<std::chrono::microseconds>(took).count()},
                      {"code", absl::StatusCodeToString(ended.code())}});
  }
  return EndCall(kMethod, *context_, ended);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateService::Generate(Context* context,
                                                                      const Bytes* request) {
  return (new GenerateCall(core_, writer_, &text_queue_, context, request))->Begin();
}

}  // namespace athanor
