// Refuses calls of one message before the message is read: gRPC reads it before it calls a handler,
// so that whoever may not call could still make the server receive --max_message_bytes.
//
//   auto* late = MakeLateRead(service.handler(i),
//                             [](grpc::CallbackServerContext& context, Caller* caller) { ... });
//
// A call is looked at when its header has come; of the message, no more has come then than HTTP/2's
// window lets a client send. If it may go on, its message is read and the method's own handler
// answers it as ever. That takes a turn of gRPC's completion queue more, so it is only done where
// somebody may be refused (--auth).
//
// gRPC's server is told that such a method streams its messages, as its own helpers for streamed
// unary methods do; its clients see no difference. Rejected: gRPC's metadata processor, which knows
// neither the peer's address, which the log tells, nor trailing metadata; and interceptors, which
// are called when the message is there.
#ifndef ATHANOR_SERVER_RPC_LATE_READS_H_
#define ATHANOR_SERVER_RPC_LATE_READS_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/rpc_service_method.h>

#include <functional>
#include <optional>

#include "server/access/access.h"

namespace athanor {

// Returns why a call is refused; sets `caller`. Called on gRPC's thread when its header has come:
// must not wait.
using JudgeHeader =
    std::function<grpc::Status(grpc::CallbackServerContext& context, Caller* caller)>;

// Returns the caller that was found when the call was judged whose method begins on this thread;
// nothing if it was not judged, or more than a second ago: who may call can have changed. gRPC
// hands a method nothing of what came before it. Call it once.
std::optional<Caller> TakeJudgedCaller();

// Returns a handler that judges a call, reads its message and does the same as `handler`; null if
// `handler` is not one of a raw method with one message from its client. `handler` is copied. The
// caller owns the result, and registers its method as one of streams.
grpc::internal::MethodHandler* MakeLateRead(const grpc::internal::MethodHandler* handler,
                                            JudgeHeader judge);

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_LATE_READS_H_
