// A ModelInfer call from arrival to reply. It holds no thread while it waits for a plan (the
// baseline, or one that returns tapped values) or in the queue for its run.
//
//   return (new InferCall(core, context, request, reply))->Begin();
//
// While it waits, whoever is first to take it (its plan, a runner, its deadline, a cancellation)
// acts on it (call_owner.h). Deletes itself when gRPC is done with it.
#ifndef ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_
#define ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compiler/frontend/infer_request.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/calls/call_owner.h"
#include "server/core/core.h"

namespace athanor {

class InferCall final : public grpc::ServerUnaryReactor {
 public:
  InferCall(ServerCore& core, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
            grpc::ByteBuffer* reply);

  InferCall* Begin();
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  using Clock = std::chrono::steady_clock;

  // The call as the request queue has it.
  class Turn;

  // A tensor of the reply: an output of the plan and its name in the reply.
  struct Wanted {
    int output;
    std::string_view name;     // points into the version
    std::string_view element;  // points into the version; empty: the dtype is enough
  };

  void Start(bool on_rpc_thread);
  absl::Status Accept();
  // Determines the tensors of the reply and the plan that computes them.
  absl::Status ChoosePlan();
  absl::Status AddTap(NodeId node, int output);
  // Chooses the plan that runs the call alone. False: there is none yet.
  bool TakePlan();
  void SetDeadline();
  int64_t Priority() const;

  // Gives up ownership until `limit`. Returns false if the call ended at once. If it returns true,
  // `this` may be gone.
  bool StartWaiting(Clock::time_point limit);
  void Expire();

  void AwaitPlan();
  void GotPlan(const absl::Status& status);
  void Execute(bool on_rpc_thread);
  Ticket MakeTicket() const;
  // Determines the shapes of the reply's tensors, and reserves memory for the reply and the request
  // without allocating it.
  absl::Status DescribeReply();
  void AwaitTurn(std::shared_ptr<Turn> turn);
  // Called by the runner: allocates the reply's memory. Returns DEADLINE_EXCEEDED if it is too
  // late.
  absl::Status BeginRun();
  void EndRun(const ServedPlan& plan, const absl::Status& status, const RunTimes& times);
  // `queued`: time until the run, without the time spent waiting for others to join.
  void Count(const RunTimes& times, Clock::duration queued);
  // Ends the call because the queue refused it, now or when its client's refusal pace allows.
  void Refuse(const absl::Status& status);
  // Frees memory that a call does not need while it only waits for its end.
  void FreeRequest();
  void EndStall();
  void End(const absl::Status& status);

  CallSlot slot_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  const grpc::ByteBuffer* const request_bytes_;
  grpc::ByteBuffer* const reply_bytes_;
  const Clock::time_point arrived_ = Clock::now();
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point stalled_{};  // since when it waits for a plan; unset if it does not
  absl::Status refusal_;         // not OK: refused, and the answer is still held back

  inference::ModelInferRequest request_;
  inference::ModelInferResponse reply_;
  std::shared_ptr<ModelVersion> version_;
  BoundRequest bound_;
  std::shared_ptr<TapPlan> tapped_;  // null: the version's plans compute all
  std::shared_ptr<Plans> plans_;     // the version's, or those of `tapped_`
  std::vector<Wanted> wanted_;
  std::shared_ptr<const ServedPlan> plan_, full_plan_;  // for its sizes, for the full range
  std::vector<int64_t> output_bytes_;                   // of the reply's tensors
  std::vector<RunOutput> outputs_;                      // each output once
  std::vector<std::pair<int, int>> repeated_;           // positions in the reply: from, to
  ServerLedger::Reservation memory_, parsed_memory_;

  const std::shared_ptr<CallOwner> owner_;
  std::shared_ptr<Turn> turn_;  // null until there is a plan
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_
