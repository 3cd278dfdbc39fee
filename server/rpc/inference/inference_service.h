// The Open Inference Protocol v2 service. Each call has a file beside this one.
#ifndef ATHANOR_SERVER_RPC_INFERENCE_INFERENCE_SERVICE_H_
#define ATHANOR_SERVER_RPC_INFERENCE_INFERENCE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/inference/open_inference_grpc.grpc.pb.h"
#include "server/core/core.h"
#include "server/rpc/raw_methods.h"

namespace athanor {

class InferenceService final
    : public RawMethods<inference::GRPCInferenceService::Service,
                        inference::GRPCInferenceService::WithRawCallbackMethod_ServerLive,
                        inference::GRPCInferenceService::WithRawCallbackMethod_ServerReady,
                        inference::GRPCInferenceService::WithRawCallbackMethod_ModelReady,
                        inference::GRPCInferenceService::WithRawCallbackMethod_ServerMetadata,
                        inference::GRPCInferenceService::WithRawCallbackMethod_ModelMetadata,
                        inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer> {
 public:
  explicit InferenceService(ServerCore* core) : core_(*core) {}

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* ServerLive(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ServerReady(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ModelReady(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ServerMetadata(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ModelMetadata(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ModelInfer(Context* context, const Bytes* request, Bytes* reply) override;

 private:
  ServerCore& core_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFERENCE_INFERENCE_SERVICE_H_
