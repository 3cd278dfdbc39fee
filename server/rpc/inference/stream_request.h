// A request of a ModelStreamInfer call, from its bytes to those of its answer.
#ifndef ATHANOR_SERVER_RPC_INFERENCE_STREAM_REQUEST_H_
#define ATHANOR_SERVER_RPC_INFERENCE_STREAM_REQUEST_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "server/calls/inference.h"
#include "server/core/core.h"
#include "server/rpc/inference/stream_call.h"
#include "server/rpc/rpc_admission.h"

namespace athanor {

class StreamRequest final : private InferenceSink {
 public:
  // The name of the method in server/access/rpcs.h.
  static constexpr char kMethod[] = "ModelStreamInfer";

  StreamRequest(ServerCore& core, grpc::CallbackServerContext* context, StreamCall* call,
                grpc::ByteBuffer bytes);

  // Tells the call when it ends, maybe before this returns.
  void Begin();
  void Cancel() { inference_.Cancel(); }

  // Once it has ended: what to answer with, and whether that is an error.
  const grpc::ByteBuffer& answer() const { return answer_; }
  const absl::Status& status() const { return status_; }

  bool ended = false;  // the call's

 private:
  // Takes what concerns the stream off the request.
  absl::Status Read(inference::ModelInferRequest* request);

  absl::Status Answer(inference::ModelInferResponse* reply) override;
  void Release() override { bytes_.Clear(); }
  void Done(const absl::Status& status) override;
  // Makes the answer of a request that failed. Clients find what it answers by the id.
  void MakeError(const inference::ModelInferRequest& request);

  RpcAdmission admission_;
  ServerCore& core_;
  grpc::CallbackServerContext* const context_;
  StreamCall& call_;
  grpc::ByteBuffer bytes_, answer_;
  Inference inference_;
  bool marks_final_ = false;  // the client wants to be told that a response is the last one
  absl::Status status_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFERENCE_STREAM_REQUEST_H_
