// Admits a call, here and nowhere else: who makes it and whether they may (server/access), then its
// place among the calls (CallSlot). Held as long as the call runs, with its id and its trace.
//
//   RpcAdmission admission(core, *context, "GetModel");
//   RETURN_IF_ERROR(admission.status());
//   RETURN_IF_ERROR(admission.caller().MayUse(model));
#ifndef ATHANOR_SERVER_RPC_RPC_ADMISSION_H_
#define ATHANOR_SERVER_RPC_RPC_ADMISSION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "server/access/access.h"
#include "server/access/rpcs.h"
#include "server/core/core.h"

namespace athanor {

class Trace;

// Returns the caller's x-request-id if it is fit, else a new one: call it once.
std::string RequestIdOf(const grpc::CallbackServerContext& context);

// Finds the caller of `method`, a name of server/access/rpcs.h, and whether it may make the call,
// but for quotas: counts nothing. For calls that are not admitted, or not yet (late_reads.h).
absl::Status FindCaller(ServerCore& core, const grpc::CallbackServerContext& context,
                        absl::string_view method, Caller* caller);

class RpcAdmission {
 public:
  RpcAdmission(ServerCore& core, const grpc::CallbackServerContext& context,
               absl::string_view method, CallKind kind = CallKind::kCall);

  // Returns why the call is refused: UNAUTHENTICATED, PERMISSION_DENIED, a quota, or what CallSlot
  // says, unless `while_draining`. Counts refusals: call it once.
  absl::Status status(bool while_draining = false) const;
  // Ends the caller's call ahead of the client's hearing of it. Call it where the call ends; again
  // does nothing.
  void End() { caller_.End(); }
  // Gives the call's place among the calls up ahead of its end: what is left of it is an answer
  // that waits for its client. status() may not be asked any more.
  void LeaveSlot() { slot_.reset(); }
  const Caller& caller() const { return caller_; }
  const RpcRow& row() const { return row_; }
  // Names whom fair sharing counts the call for: the identity, else the peer.
  const std::string& client() const { return client_; }
  // In the reply's trailing metadata, in each line of the log and in the span.
  const std::string& request_id() const { return request_id_; }
  // Null: the call is not recorded, as are those of callers that may not make them.
  const std::shared_ptr<Trace>& trace() const { return trace_; }
  // Returns the trace's number for the log; "" if it is not recorded.
  absl::string_view trace_id() const;

  // Returns the model that the request names by its row; "" if it names none.
  std::string ModelOf(const google::protobuf::Message& request) const;
  // Checks that the caller may use it.
  absl::Status CheckModel(const google::protobuf::Message& request) const;

 private:
  absl::Status Admit(ServerCore& core, const grpc::CallbackServerContext& context);

  const RpcRow& row_;
  const std::string request_id_;
  Caller caller_;  // also of a call that is refused, if it is known
  const absl::Status access_;
  const std::shared_ptr<Trace> trace_;
  std::optional<CallSlot> slot_;
  const std::string client_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_RPC_ADMISSION_H_
