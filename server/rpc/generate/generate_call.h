// A Generate call from arrival to the end of its stream: parses the request, and sends what a
// Generation has to say.
//
//   return (new GenerateCall(core, writer, context, request))->Begin();
//
// Deletes itself when gRPC is done with it.
#ifndef ATHANOR_SERVER_RPC_GENERATE_GENERATE_CALL_H_
#define ATHANOR_SERVER_RPC_GENERATE_GENERATE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/athanor/v1/generate.pb.h"
#include "server/calls/generation.h"
#include "server/core/core.h"
#include "server/rpc/rpc_admission.h"

namespace athanor {

class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public TokenSink {
 public:
  GenerateCall(ServerCore& core, const std::shared_ptr<StreamWriter>& writer,
               grpc::CallbackServerContext* context, const grpc::ByteBuffer* request);

  GenerateCall* Begin();
  void OnWriteDone(bool ok) override { generation_->Written(0, ok); }
  void OnCancel() override { generation_->Cancel(ClientLeft(core_)); }
  void OnDone() override;

 private:
  using Clock = std::chrono::steady_clock;

  // Parses the request and begins, or ends the call; `this` may be gone then.
  void Read();
  // Sends what is generated.
  bool Write(std::vector<GenerateEvent> events) override;
  bool WriteLast(std::vector<GenerateEvent> events, const absl::Status& status) override;
  void End(const absl::Status& status) override;
  void Break(const absl::Status& why) override;
  void SetBytes(std::vector<GenerateEvent> events);
  // Counts and logs the end of the call.
  grpc::Status Ended(const absl::Status& status);

  RpcAdmission admission_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  const grpc::ByteBuffer* const request_bytes_;
  const Clock::time_point arrived_ = Clock::now();
  const Clock::time_point deadline_;  // gRPC's
  const std::shared_ptr<Generation> generation_;
  std::string model_;       // for the log
  grpc::ByteBuffer bytes_;  // being written
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_GENERATE_GENERATE_CALL_H_
