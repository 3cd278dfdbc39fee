// One ModelInfer call from arrival to reply. It never holds a thread while it waits for a baseline
// plan or for a context.
//
//   return (new InferCall(core, context, request, reply))->Begin();
//
// Whoever ends the waiting (the plan, a context, the deadline, a cancellation) first takes the
// call; the others find it taken and leave it alone. Deletes itself when gRPC is done with it.
#ifndef ATHANOR_SERVER_RPC_INFER_CALL_H_
#define ATHANOR_SERVER_RPC_INFER_CALL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/frontend/infer_request.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/core.h"

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

  // Who may act on the call next; outlives it in the queues it was put into. Taken means that one
  // thread owns the call; whoever takes it while it waits owns it from then on.
  struct Wait {
    std::atomic<bool> taken{true};
    std::atomic<bool> cancelled{false};
    std::atomic<Timer::Id> timer{0};
    std::atomic<uint64_t> waiter{0};  // of version_->WhenReady
    bool Take() { return !taken.exchange(true); }
  };

  absl::Status Accept();
  void SetDeadline();
  int64_t Priority() const;

  // Gives up ownership until `limit`. False: the call ended at once. After true, `this` may be
  // gone.
  bool StartWaiting(Clock::time_point limit);
  void StopTimer();
  void Expire();

  void AwaitPlan();
  void GotPlan(const absl::Status& status);
  void Execute(bool on_rpc_thread);
  absl::Status PrepareReply();
  void AwaitContext();
  void Run(ContextPool::Lease lease);
  void End(const absl::Status& status);

  CallSlot slot_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  const grpc::ByteBuffer* const request_bytes_;
  grpc::ByteBuffer* const reply_bytes_;
  const Clock::time_point arrived_ = Clock::now();
  Clock::time_point deadline_ = Clock::time_point::max();

  inference::ModelInferRequest request_;
  inference::ModelInferResponse reply_;
  std::shared_ptr<ModelVersion> version_;
  BoundRequest bound_;
  std::shared_ptr<const ServedPlan> plan_;
  std::vector<RunOutput> outputs_;
  ServerLedger::Reservation memory_;

  const std::shared_ptr<Wait> wait_ = std::make_shared<Wait>();
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFER_CALL_H_
