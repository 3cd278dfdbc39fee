// A ModelInfer call: its bytes to a request, which goes the one way of server/calls/inference.h,
// and the reply to bytes.
//
//   return (new InferCall(core, context, request, reply))->Begin();
//
// Deletes itself when gRPC is done with it.
#ifndef ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_
#define ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "server/calls/inference.h"
#include "server/core/core.h"
#include "server/rpc/rpc_admission.h"

namespace athanor {

class InferCall final : public grpc::ServerUnaryReactor, private InferenceSink {
 public:
  InferCall(ServerCore& core, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
            grpc::ByteBuffer* reply);

  InferCall* Begin();
  void OnCancel() override { inference_.Cancel(); }
  void OnDone() override { delete this; }

 private:
  absl::Status Answer(inference::ModelInferResponse* reply) override;
  void Release() override;
  void Done(const absl::Status& status) override;

  RpcAdmission admission_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  const grpc::ByteBuffer* const request_bytes_;
  grpc::ByteBuffer* const reply_bytes_;
  Inference inference_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFERENCE_INFER_CALL_H_
