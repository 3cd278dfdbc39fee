// One ModelInfer call from arrival to reply. It never holds a thread while it waits for a plan (the
// baseline, or one that returns the values it taps) or for its turn to run.
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
#include "server/core/core.h"
#include "server/rpc/inference/call_owner.h"

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

  // A tensor of the reply: an output of the plan and the name it goes by.
  struct Wanted {
    int output;
    std::string_view name;     // lives in the version
    std::string_view element;  // likewise; empty: the dtype says what the values mean
  };

  void Start(bool on_rpc_thread);
  absl::Status Accept();
  // Finds what the reply is to hold, and the plan that computes it.
  absl::Status ChoosePlan();
  absl::Status AddTap(NodeId node, int output);
  // Chooses the plan that runs the call alone. False: there is none yet.
  bool TakePlan();
  void SetDeadline();
  int64_t Priority() const;

  // Gives up ownership until `limit`. False: the call ended at once. After true, `this` may be
  // gone.
  bool StartWaiting(Clock::time_point limit);
  void Expire();

  void AwaitPlan();
  void GotPlan(const absl::Status& status);
  void Execute(bool on_rpc_thread);
  Ticket MakeTicket() const;
  // Shapes of the reply's tensors, and memory for it and the request, not taken yet.
  absl::Status DescribeReply();
  void AwaitTurn(std::shared_ptr<Turn> turn);
  // For the runner: takes the reply's memory. DEADLINE_EXCEEDED: too late.
  absl::Status BeginRun();
  void EndRun(const ServedPlan& plan, const absl::Status& status, const RunTimes& times);
  // `queued`: until the run, without waiting for company.
  void Count(const RunTimes& times, Clock::duration queued);
  // The queue has no place for it: ends the call, now or when its client's pace of refusals says.
  void Refuse(const absl::Status& status);
  // What a call that only waits for its end need not hold.
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
  Clock::time_point stalled_{};  // since when it waits for a plan, if it does
  absl::Status refusal_;         // not OK: it waits to be told

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
