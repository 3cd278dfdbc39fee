// Shared parts of all calls: parsing (parse_request.h), replies, request ids, log lines.
//
//   return AnswerUnary<v1::GetModelRequest, v1::Model>(
//       core, {"GetModel"}, context, request, reply,
//       [&core](const v1::GetModelRequest& request, v1::Model* reply) { ...; return status; });
//
// Methods take and return bytes (gRPC's raw methods), because gRPC itself answers a message that
// does not parse with an uninformative code and text.
#ifndef ATHANOR_SERVER_RPC_CALL_H_
#define ATHANOR_SERVER_RPC_CALL_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "deploy/bazel/libs/status_macros.h"
#include "google/protobuf/message.h"
#include "server/base/work_queue.h"
#include "server/core/core.h"
#include "server/rpc/inflate.h"
#include "server/rpc/parse_request.h"
#include "server/rpc/rpc_admission.h"
#include "server/rpc/status.h"

namespace athanor {

grpc::Status SerializeReply(const google::protobuf::Message& message, grpc::ByteBuffer* bytes);

// Ends the admission and the trace of a request, which may be one of a stream, and logs it if it
// failed.
void EndRequest(absl::string_view method, const grpc::CallbackServerContext& context,
                const absl::Status& status, RpcAdmission* admission);

// Adds the request id to the trailing metadata, ends the trace, and logs the call if it failed.
// Call it before Finish. Ends the admission, so that the client's next call is not one too many.
grpc::Status EndCall(absl::string_view method, grpc::CallbackServerContext& context,
                     const absl::Status& status, RpcAdmission* admission);

// The same of a call that is refused ahead of its admission, or has none, as health checks. One
// that is OK is left as it is.
grpc::Status EndUnadmitted(absl::string_view method, grpc::CallbackServerContext& context,
                           const absl::Status& status, const Caller& caller);

// Logs how a call went, at the level debug.
void LogCall(absl::string_view method, const RpcAdmission& admission, absl::string_view model,
             std::chrono::steady_clock::time_point arrived, const absl::Status& status);

// Logs that a caller has done what the table of RPCs marks (server/access/rpcs.h).
void LogAudited(const RpcAdmission& admission, const grpc::CallbackServerContext& context,
                absl::string_view model);

struct MethodTraits {
  absl::string_view name;
  bool while_draining = false;  // also answered while draining
  bool uses_disk = false;       // runs on the disk queue
  bool uses_cache = false;      // runs on the cache's queue
  WorkQueue* queue = nullptr;   // runs on this one
};

// A unary call whose handler runs at once or on a queue.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(ServerCore& core, MethodTraits traits, grpc::CallbackServerContext* context)
      : admission_(core, *context, traits.name), core_(core), traits_(traits), context_(context) {}

  const RpcAdmission& admission() const { return admission_; }
  // `answer` parses `bytes`, does the work and serialises the reply.
  void Begin(const grpc::ByteBuffer& bytes, absl::AnyInvocable<absl::Status()> answer);
  // As Begin; `answer` calls its argument once, on any thread, when the work is done.
  using Done = absl::AnyInvocable<void(absl::Status)>;
  void BeginLater(const grpc::ByteBuffer& bytes, absl::AnyInvocable<void(Done)> answer);
  // Returns what others call once instead of the argument of `answer`. From now on the call also
  // ends, with CANCELLED or DEADLINE_EXCEEDED, when its client leaves or its time is up: use
  // nothing of it any more. Null: that was before, and the work must not begin.
  Done Wait();
  // Says why the call ends though its work has not.
  absl::Status Left() const;
  void OnCancel() override;
  void OnDone() override { delete this; }
  // Checks that the caller may use the model of the request, and notes it.
  absl::Status CheckModel(const google::protobuf::Message& request);

 private:
  enum class State : uint8_t { kRuns, kWaits, kEnded };

  void End(const absl::Status& status);

  RpcAdmission admission_;
  ServerCore& core_;
  const MethodTraits traits_;
  grpc::CallbackServerContext* const context_;
  std::string model_;  // of an audited call
  // Outlives the call, which may end before the work that it waits for.
  const std::shared_ptr<std::atomic<State>> state_ =
      std::make_shared<std::atomic<State>>(State::kRuns);
};

// `handler` takes the request and the reply and, if it wants to, the caller.
template <typename Request, typename Reply, typename Handler>
grpc::ServerUnaryReactor* AnswerUnary(ServerCore& core, MethodTraits traits,
                                      grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* bytes, grpc::ByteBuffer* reply_bytes,
                                      Handler handler) {
  auto* call = new UnaryCall(core, traits, context);
  call->Begin(*bytes, [&core, call, bytes, reply_bytes, handler = std::move(handler)]() mutable {
    ServerLedger::Reservation held;
    Request request;
    Reply reply;
    RETURN_IF_ERROR(ParseRequest(core, *bytes, &request, &held));
    RETURN_IF_ERROR(call->CheckModel(request));
    if constexpr (std::is_invocable_v<Handler, const Request&, Reply*, const Caller&>) {
      RETURN_IF_ERROR(handler(request, &reply, call->admission().caller()));
    } else {
      RETURN_IF_ERROR(handler(request, &reply));
    }
    const grpc::Status sent = SerializeReply(reply, reply_bytes);
    return sent.ok() ? absl::OkStatus() : absl::ResourceExhaustedError(sent.error_message());
  });
  return call;
}

// As AnswerUnary, of a call whose reply is empty. `handler` takes the request and a function that
// it calls once, on any thread, when the work is done. The call may end before, see Wait.
template <typename Request, typename Reply, typename Handler>
grpc::ServerUnaryReactor* AnswerLater(ServerCore& core, MethodTraits traits,
                                      grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* bytes, grpc::ByteBuffer* reply_bytes,
                                      Handler handler) {
  auto* call = new UnaryCall(core, traits, context);
  call->BeginLater(*bytes, [&core, call, bytes, reply_bytes,
                            handler = std::move(handler)](UnaryCall::Done done) mutable {
    ServerLedger::Reservation held;
    Request request;
    absl::Status status = ParseRequest(core, *bytes, &request, &held);
    if (status.ok()) status = call->CheckModel(request);
    if (!status.ok()) return done(status);
    SerializeReply(Reply(), reply_bytes);
    if (UnaryCall::Done waiting = call->Wait()) {
      handler(request, std::move(waiting));
    } else {
      done(call->Left());
    }
  });
  return call;
}

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_CALL_H_
