// A ModelInfer call from arrival to reply. It holds no thread while it waits for a plan (the
// baseline, or one that returns tapped values) or in the queue for its run.
//
//   return (new InferCall(core, context, request, reply))->Begin();
//
// Of the events that can end the wait (the plan, a runner, the deadline, a cancellation), the first
// takes the call; later ones find it taken and do nothing. Deletes itself when gRPC is done with
// it.
#ifndef ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_
#define ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
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

  // Ownership of the call; outlives the call in the queues it was put into. While `taken`, one
  // thread owns the call; a thread that takes it while it waits owns it from then on.
  struct Wait {
    std::atomic<bool> taken{true};
    std::atomic<bool> cancelled{false};
    std::atomic<Timer::Id> timer{0};
    std::atomic<uint64_t> waiter{0};  // id from plan_slot().WhenReady
    bool Take() { return !taken.exchange(true); }
  };

  // The call as seen by the request queue.
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
  // Returns the plan that can now run the call alone, null if there is none yet.
  std::shared_ptr<const ServedPlan> PlanNow();
  // The slot in which the plan is awaited.
  PlanSlot& plan_slot() const { return tapped_ != nullptr ? tapped_->slot : version_->serving(); }
  void SetDeadline();
  int64_t Priority() const;

  // Gives up ownership until `limit`. Returns false if the call ended at once. If it returns true,
  // `this` may be gone.
  bool StartWaiting(Clock::time_point limit);
  void StopTimer();
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
  std::shared_ptr<TapPlan> tapped_;  // null: the plan that serves the version computes all outputs
  std::vector<Wanted> wanted_;
  // The plan of its sizes; the plan of the full range.
  std::shared_ptr<const ServedPlan> plan_, full_plan_;
  std::vector<int64_t> output_bytes_;          // sizes of the reply's tensors
  std::vector<RunOutput> outputs_;             // each output of the plan once
  std::vector<std::pair<int, int>> repeated_;  // positions in the reply: copy from, to
  ServerLedger::Reservation memory_, parsed_memory_;

  const std::shared_ptr<Wait> wait_ = std::make_shared<Wait>();
  std::shared_ptr<Turn> turn_;  // null until there is a plan
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_
