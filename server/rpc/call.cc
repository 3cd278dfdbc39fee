#include "server/rpc/call.h"

#include "server/base/call_log.h"
#include "server/base/log.h"
#include "server/base/public_status.h"
#include "server/tracing/trace.h"

namespace athanor {
namespace {

// Codes that say that the server failed, not the request, as OpenTelemetry has it for gRPC.
bool IsServersFault(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsUnimplemented(status) ||
         absl::IsInternal(status) || absl::IsUnavailable(status);
}

void EndTrace(Trace& trace, const absl::Status& told) {
  const std::string code = absl::StatusCodeToString(told.code());
  trace.Set("rpc.response.status_code", code);
  if (IsServersFault(told)) trace.Fail(code, told.message());
  trace.End();
}

}  // namespace

grpc::Status SerializeReply(const google::protobuf::Message& message, grpc::ByteBuffer* bytes) {
  bytes->Clear();  // a stream passes the same buffer again
  bool own = false;
  return grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, bytes,
                                                                                    &own);
}

void EndRequest(absl::string_view method, const grpc::CallbackServerContext& context,
                const absl::Status& status, RpcAdmission* admission) {
  const absl::Status told = PublicStatus(status);
  admission->End();
  if (admission->trace() != nullptr) EndTrace(*admission->trace(), told);
  if (told.ok()) return;
  const std::string peer = context.peer();
  LogFailedCall({.request = admission->request_id(),
                 .method = method,
                 .peer = peer,
                 .client = admission->caller().name(),
                 .trace = admission->trace_id()},
                told);
}

grpc::Status EndCall(absl::string_view method, grpc::CallbackServerContext& context,
                     const absl::Status& status, RpcAdmission* admission) {
  EndRequest(method, context, status, admission);
  context.AddTrailingMetadata(kRequestIdKey, std::string(admission->request_id()));
  return ToGrpc(status);
}

grpc::Status EndUnadmitted(absl::string_view method, grpc::CallbackServerContext& context,
                           const absl::Status& status, const Caller& caller) {
  if (status.ok()) return grpc::Status::OK;
  const std::string id = RequestIdOf(context), peer = context.peer();
  context.AddTrailingMetadata(kRequestIdKey, id);
  LogFailedCall({.request = id, .method = method, .peer = peer, .client = caller.name()},
                PublicStatus(status));
  return ToGrpc(status);
}

void LogCall(absl::string_view method, const RpcAdmission& admission, absl::string_view model,
             std::chrono::steady_clock::time_point arrived, const absl::Status& status) {
  if (!DebugLogged()) return;
  const auto took = std::chrono::steady_clock::now() - arrived;
  LogDebug("call", {{"request", admission.request_id()},
                    LogField::Optional("trace", admission.trace_id()),
                    {"method", method},
                    {"model", model},
                    {"us", std::chrono::duration_cast<std::chrono::microseconds>(took).count()},
                    {"code", absl::StatusCodeToString(status.code())}});
}

void LogAudited(const RpcAdmission& admission, const grpc::CallbackServerContext& context,
                absl::string_view model) {
  const Caller& caller = admission.caller();
  LogAuditedCall({admission.request_id(), admission.row().method, context.peer(), caller.name(),
                  admission.trace_id()},
                 model, /*always=*/caller.administers());
}

absl::Status UnaryCall::CheckModel(const google::protobuf::Message& request) {
  if (admission_.row().audited) model_ = admission_.ModelOf(request);
  return admission_.CheckModel(request);
}

void UnaryCall::Begin(const grpc::ByteBuffer& bytes, absl::AnyInvocable<absl::Status()> answer) {
  BeginLater(bytes, [answer = std::move(answer)](Done done) mutable { done(answer()); });
}

void UnaryCall::BeginLater(const grpc::ByteBuffer& bytes, absl::AnyInvocable<void(Done)> answer) {
  if (absl::Status admitted = admission_.status(traits_.while_draining); !admitted.ok()) {
    Finish(EndCall(traits_.name, *context_, admitted, &admission_));
    return;
  }
  auto work = [this, answer = std::move(answer)]() mutable {
    answer([this](const absl::Status& status) { End(status); });
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

void UnaryCall::End(const absl::Status& status) {
  // The context may be gone as soon as Finish is called, so the answer's captures must not need it.
  if (status.ok() && admission_.row().audited) LogAudited(admission_, *context_, model_);
  Finish(EndCall(traits_.name, *context_, status, &admission_));
}

UnaryCall::Done UnaryCall::Wait() {
  // A call that waits may end at once, and be gone.
  const auto state = state_;
  State runs = State::kRuns;
  if (!state->compare_exchange_strong(runs, State::kWaits)) return nullptr;
  return [this, state](const absl::Status& status) {
    if (state->exchange(State::kEnded) == State::kWaits) End(status);
  };
}

absl::Status UnaryCall::Left() const {
  return std::chrono::system_clock::now() < context_->deadline()
             ? absl::CancelledError("the call was cancelled")
             : absl::DeadlineExceededError("the call's deadline is over");
}

void UnaryCall::OnCancel() {
  if (state_->exchange(State::kEnded) != State::kWaits) return;
  // The work goes on, and may be done yet.
  if (admission_.row().audited) LogAudited(admission_, *context_, model_);
  End(Left());
}

}  // namespace athanor
