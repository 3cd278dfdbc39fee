// A request for the outputs of a model, from its message to the reply: finds the version, checks,
// waits for a plan (the baseline, or one that returns tapped values), and runs at once or in its
// turn of the queue. Whoever speaks to the client has it as a part, and is told by its sink.
//
//   Inference inference(core, {.client = peer}, sink);
//   *inference.request() = ...;
//   inference.Begin(std::move(memory), ...);   // sink->Answer(reply), then sink->Done(status)
//   inference.Cancel();                        // the client has left
//
// Holds no thread while it waits. Then whoever is first to take it (its plan, a runner, its
// deadline, a cancellation) acts on it (call_owner.h), and may call the sink before Begin returns.
#ifndef ATHANOR_SERVER_CALLS_INFERENCE_H_
#define ATHANOR_SERVER_CALLS_INFERENCE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "compiler/frontend/infer_request.h"
#include "proto/inference/open_inference_grpc.pb.h"
#include "server/calls/call_owner.h"
#include "server/calls/inference_reply.h"
#include "server/calls/shared_tensors.h"
#include "server/core/core.h"

namespace athanor {

class Trace;

// Takes the end of an inference, on any thread, which may be one that runs calls: it must not wait.
class InferenceSink {
 public:
  virtual ~InferenceSink() = default;
  // Called ahead of the run, with the names, types and shapes of the reply's tensors. An error ends
  // the request with it.
  virtual absl::Status Accept(const inference::ModelInferResponse& reply) {
    return absl::OkStatus();
  }
  // Makes the answer of `reply`, which it may take apart. An error ends the request with it.
  virtual absl::Status Answer(inference::ModelInferResponse* reply) = 0;
  // Frees what a request does not need that only waits for its end; Done is all that follows.
  virtual void Release() = 0;
  // Called once, last: the inference is not used any more, and may be destroyed in it.
  virtual void Done(const absl::Status& status) = 0;
};

struct InferenceCaller {
  using Clock = std::chrono::steady_clock;
  std::string client;  // the unit of fair sharing
  SharedUser shared;   // whose regions of shared memory it may name
  Clock::time_point arrived = Clock::now();
  Clock::time_point deadline = Clock::time_point::max();
  std::shared_ptr<Trace> trace = nullptr;  // null: it is not recorded
};

struct InferenceStart {
  // Held for the parsed request until it ends.
  ServerLedger::Reservation memory = {};
  // Bytes to reserve while it runs, beside a copy of the reply's.
  int64_t bytes = 0;
  // This thread may run the request itself if that is expected to take at most --inline_us.
  bool runs_here = false;
};

// Thread-safe from Begin on.
class Inference final {
 public:
  // `sink` outlives it, as does `core`.
  Inference(ServerCore& core, InferenceCaller caller, InferenceSink* sink);
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  // To be filled before Begin; later it may have nothing but its id and its model's name.
  inference::ModelInferRequest* request() { return &request_; }
  InferenceCaller::Clock::time_point arrived() const { return caller_.arrived; }

  // Begin or Refuse is called once.
  void Begin(InferenceStart start);
  // Ends the request with `status` instead.
  void Refuse(const absl::Status& status);
  // Reports that the client has left, or has no time left. May be called at any time, also behind
  // Done if it is not destroyed yet.
  void Cancel();

 private:
  using Clock = InferenceCaller::Clock;

  // The request as the queue has it.
  class Turn;

  void Start();
  absl::Status Accept();
  // Chooses the plans that compute the tensors of the reply.
  absl::Status ChoosePlans();
  // Chooses the plan that runs the request alone. False: there is none yet.
  bool TakePlan();
  void SetDeadline();

  // Gives up ownership until `limit`. Returns false if the request ended at once. If it returns
  // true, `this` may be gone.
  bool StartWaiting(Clock::time_point limit);
  void Expire();

  void AwaitPlan();
  void GotPlan(const absl::Status& status);
  void Execute(bool runs_here);
  Ticket MakeTicket() const;
  // Determines the reply's tensors, and reserves memory for them and the request without allocating
  // it.
  absl::Status DescribeReply();
  void AwaitTurn(std::shared_ptr<Turn> turn);
  // Called by the runner: allocates the reply's memory. Returns DEADLINE_EXCEEDED if it is too
  // late.
  absl::Status BeginRun();
  void EndRun(const ServedPlan& plan, const absl::Status& status, const RunTimes& times);
  void FillReply(const ServedPlan& plan, const RunTimes& times, Clock::duration queued);
  // `queued`: time until the run, without the time spent waiting for others to join.
  void Count(const RunTimes& times, Clock::duration queued);
  // Ends the request because the queue refused it, now or when its client's refusal pace allows.
  void RefuseInQueue(const absl::Status& status);
  void FreeRequest();
  void EndStall();
  void End(absl::Status status);

  ServerCore& core_;
  const InferenceCaller caller_;
  InferenceSink* const sink_;
  InferenceStart start_;
  Clock::time_point deadline_;
  Clock::time_point stalled_{};  // since when it waits for a plan; unset if it does not
  Clock::time_point ready_;      // since when it waits for its turn alone
  absl::Status refusal_;         // not OK: refused, and the answer is still held back

  inference::ModelInferRequest request_;
  inference::ModelInferResponse reply_;
  std::shared_ptr<ModelVersion> version_;
  BoundRequest bound_;
  std::shared_ptr<TapPlan> tapped_;                     // null: the version's plans compute all
  std::shared_ptr<Plans> plans_;                        // the version's, or those of `tapped_`
  std::shared_ptr<const ServedPlan> plan_, full_plan_;  // for its sizes, for the full range
  InferenceReply tensors_;
  SharedTensors shared_;
  ServerLedger::Reservation memory_;

  const std::shared_ptr<CallOwner> owner_;
  std::shared_ptr<Turn> turn_;  // null until there is a plan
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_CALLS_INFERENCE_H_
