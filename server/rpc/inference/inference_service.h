// The Open Inference Protocol v2 service, with Triton's extensions. The calls of the protocol have
// a file each beside this one; the extensions' are in stream_call.cc, describe_models.cc,
// model_repository.cc, system_shared_memory.cc and refused_calls.cc.
#ifndef ATHANOR_SERVER_RPC_INFERENCE_INFERENCE_SERVICE_H_
#define ATHANOR_SERVER_RPC_INFERENCE_INFERENCE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/inference/open_inference_grpc.grpc.pb.h"
#include "server/core/core.h"
#include "server/rpc/raw_methods.h"

namespace athanor {

using Protocol = inference::GRPCInferenceService;

class InferenceService final
    : public RawMethods<
          Protocol::Service, Protocol::WithRawCallbackMethod_ServerLive,
          Protocol::WithRawCallbackMethod_ServerReady, Protocol::WithRawCallbackMethod_ModelReady,
          Protocol::WithRawCallbackMethod_ServerMetadata,
          Protocol::WithRawCallbackMethod_ModelMetadata, Protocol::WithRawCallbackMethod_ModelInfer,
          Protocol::WithRawCallbackMethod_ModelStreamInfer,
          Protocol::WithRawCallbackMethod_ModelConfig,
          Protocol::WithRawCallbackMethod_ModelStatistics,
          Protocol::WithRawCallbackMethod_RepositoryIndex,
          Protocol::WithRawCallbackMethod_RepositoryModelLoad,
          Protocol::WithRawCallbackMethod_RepositoryModelUnload,
          Protocol::WithRawCallbackMethod_SystemSharedMemoryStatus,
          Protocol::WithRawCallbackMethod_SystemSharedMemoryRegister,
          Protocol::WithRawCallbackMethod_SystemSharedMemoryUnregister,
          Protocol::WithRawCallbackMethod_CudaSharedMemoryStatus,
          Protocol::WithRawCallbackMethod_CudaSharedMemoryRegister,
          Protocol::WithRawCallbackMethod_CudaSharedMemoryUnregister,
          Protocol::WithRawCallbackMethod_TraceSetting,
          Protocol::WithRawCallbackMethod_LogSettings> {
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

  grpc::ServerBidiReactor<Bytes, Bytes>* ModelStreamInfer(Context* context) override;
  Reactor* ModelConfig(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ModelStatistics(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* RepositoryIndex(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* RepositoryModelLoad(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* RepositoryModelUnload(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* SystemSharedMemoryStatus(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* SystemSharedMemoryRegister(Context* context, const Bytes* request,
                                      Bytes* reply) override;
  Reactor* SystemSharedMemoryUnregister(Context* context, const Bytes* request,
                                        Bytes* reply) override;
  Reactor* CudaSharedMemoryStatus(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* CudaSharedMemoryRegister(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* CudaSharedMemoryUnregister(Context* context, const Bytes* request,
                                      Bytes* reply) override;
  Reactor* TraceSetting(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* LogSettings(Context* context, const Bytes* request, Bytes* reply) override;

 private:
  ServerCore& core_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_INFERENCE_INFERENCE_SERVICE_H_
