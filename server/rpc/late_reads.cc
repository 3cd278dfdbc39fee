#include "server/rpc/late_reads.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include <chrono>
#include <memory>
#include <utility>

namespace athanor {
namespace {

using Bytes = grpc::ByteBuffer;
using Handler = grpc::internal::MethodHandler;
using Parameter = Handler::HandlerParameter;

// How long a caller that was found holds for the call's message.
constexpr std::chrono::seconds kJudgedFor{1};

thread_local std::optional<Caller> judged_caller;

class Refusal final : public grpc::ServerBidiReactor<Bytes, Bytes> {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

void Refuse(const Parameter& call, const grpc::Status& status) {
  grpc::internal::CallbackBidiHandler<Bytes, Bytes> refusal(
      [&status](grpc::CallbackServerContext*) { return new Refusal(status); });
  refusal.RunHandler(call);
}

// Reads the message of a call, and hands it to the method's handler. Deletes itself then.
class Read final : private grpc_completion_queue_functor {
 public:
  Read(const Parameter& call, std::shared_ptr<Handler> handler, Caller caller)
      // Inlineable: on the thread that read the message, as gRPC's own start of a unary call.
      : grpc_completion_queue_functor{&Run, /*inlineable=*/1, 0, nullptr},
        call_(call),
        handler_(std::move(handler)),
        caller_(std::move(caller)) {}

  void Begin() {
    grpc_op op{};
    op.op = GRPC_OP_RECV_MESSAGE;
    op.data.recv_message.recv_message = &message_;
    const grpc_call_error error = grpc_call_start_batch(
        call_.call->call(), &op, 1, static_cast<grpc_completion_queue_functor*>(this), nullptr);
    if (error != GRPC_CALL_OK) Run(this, /*ok=*/0);
  }

 private:
  static void Run(grpc_completion_queue_functor* functor, int ok) {
    const std::unique_ptr<Read> self(static_cast<Read*>(functor));
    self->Done(ok != 0);
  }

  void Done(bool ok) {
    // Without a message the call is cancelled, or its client has sent none. Whoever has left hears
    // nothing of it.
    if (!ok || message_ == nullptr) {
      return Refuse(call_, grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                        "the call has no message; send one"));
    }
    grpc::Status status;
    void* data = nullptr;
    void* const request =
        handler_->Deserialize(call_.call->call(), std::exchange(message_, nullptr), &status, &data);
    // The method begins within this. Who may call can have changed while the message was awaited.
    if (std::chrono::steady_clock::now() - judged_ < kJudgedFor) {
      judged_caller = std::move(caller_);
    }
    handler_->RunHandler(
        Parameter(call_.call, call_.server_context, request, status, data, call_.call_requester));
    judged_caller.reset();
  }

  const Parameter call_;
  const std::shared_ptr<Handler> handler_;
  Caller caller_;
  const std::chrono::steady_clock::time_point judged_ = std::chrono::steady_clock::now();
  grpc_byte_buffer* message_ = nullptr;
};

class LateRead final : public Handler {
 public:
  LateRead(std::shared_ptr<Handler> handler, JudgeHeader judge)
      : handler_(std::move(handler)), judge_(std::move(judge)) {}

  void RunHandler(const Parameter& call) override {
    Caller caller;
    const grpc::Status status =
        judge_(*static_cast<grpc::CallbackServerContext*>(call.server_context), &caller);
    if (!status.ok()) return Refuse(call, status);
    (new Read(call, handler_, std::move(caller)))->Begin();
  }

 private:
  const std::shared_ptr<Handler> handler_;
  const JudgeHeader judge_;
};

template <typename Own>
std::shared_ptr<Handler> CopyIf(const Handler* handler) {
  const auto* own = dynamic_cast<const Own*>(handler);
  return own == nullptr ? nullptr : std::make_shared<Own>(*own);
}

}  // namespace

std::optional<Caller> TakeJudgedCaller() { return std::exchange(judged_caller, std::nullopt); }

Handler* MakeLateRead(const Handler* handler, JudgeHeader judge) {
  using grpc::internal::CallbackServerStreamingHandler;
  using grpc::internal::CallbackUnaryHandler;
  std::shared_ptr<Handler> copy = CopyIf<CallbackUnaryHandler<Bytes, Bytes>>(handler);
  if (copy == nullptr) copy = CopyIf<CallbackServerStreamingHandler<Bytes, Bytes>>(handler);
  return copy == nullptr ? nullptr : new LateRead(std::move(copy), std::move(judge));
}

}  // namespace athanor
