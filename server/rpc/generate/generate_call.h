// A Generate call from arrival to the end of its stream. It holds no thread while it waits for its
// version's first plan, nor while tokens are computed: the engine tells the stream, whose writer
// sends what is there (token_stream.h).
//
//   return (new GenerateCall(core, writer, &text_queue, context, request))->Begin();
//
// Deletes itself when gRPC is done with it.
#ifndef ATHANOR_SERVER_RPC_GENERATE_GENERATE_CALL_H_
#define ATHANOR_SERVER_RPC_GENERATE_GENERATE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "proto/athanor/v1/generate.pb.h"
#include "server/base/work_queue.h"
#include "server/calls/call_owner.h"
#include "server/calls/token_stream.h"
#include "server/core/core.h"

namespace athanor {

class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public TokenSink {
 public:
  GenerateCall(ServerCore& core, std::shared_ptr<StreamWriter> writer, WorkQueue* text_queue,
               grpc::CallbackServerContext* context, const grpc::ByteBuffer* request);

  GenerateCall* Begin();
  void OnWriteDone(bool ok) override { stream_->Written(ok); }
  void OnCancel() override;
  void OnDone() override;

 private:
  using Clock = std::chrono::steady_clock;

  // Each ends the call, or goes on with the next; `this` may be gone then.
  void Read();
  void Tokenize();
  void AwaitPlan();
  void GotPlan(const absl::Status& status);
  void Start();

  absl::Status Accept();
  absl::Status MakePrompt();
  // Ends a call whose plan did not come in time.
  void Expire();
  void EndStall();
  // Returns when the request's time is up, by gRPC's deadline or its own.
  Clock::time_point DeadlineOf() const;
  StreamFacts Facts() const;
  // Frees memory that a call does not need while its sequence runs.
  void FreeRequest();

  void Write(const v1::GenerateResponse& message) override;
  void WriteLast(const v1::GenerateResponse& message, const absl::Status& status) override;
  void End(const absl::Status& status) override;
  void Break(const absl::Status& why) override;
  // Counts and logs the end of the call.
  grpc::Status Ended(const absl::Status& status);

  CallSlot slot_;
  ServerCore& core_;
  WorkQueue& text_queue_;
  grpc::CallbackServerContext* const context_;
  const grpc::ByteBuffer* const request_bytes_;
  const Clock::time_point arrived_ = Clock::now();
  const std::shared_ptr<TokenStream> stream_;
  const std::shared_ptr<CallOwner> owner_;  // while it waits for its plan
  Clock::time_point stalled_{};             // since when it does; unset if it does not

  v1::GenerateRequest request_;
  ServerLedger::Reservation parsed_memory_;
  std::shared_ptr<ModelVersion> version_;
  GenerateInput input_;
  grpc::ByteBuffer bytes_;  // being written
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_GENERATE_GENERATE_CALL_H_
