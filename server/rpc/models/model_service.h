// athanor.v1.ModelService: uploads, inspects and deletes models, and chooses which plan serves.
// Each call has a file beside this one.
#ifndef ATHANOR_SERVER_RPC_MODELS_MODEL_SERVICE_H_
#define ATHANOR_SERVER_RPC_MODELS_MODEL_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/athanor/v1/model.grpc.pb.h"
#include "server/core/core.h"
#include "server/rpc/raw_methods.h"

namespace athanor {

class ModelService final : public RawMethods<v1::ModelService::Service,
                                             v1::ModelService::WithRawCallbackMethod_MissingTensors,
                                             v1::ModelService::WithRawCallbackMethod_UploadModel,
                                             v1::ModelService::WithRawCallbackMethod_GetModel,
                                             v1::ModelService::WithRawCallbackMethod_ListModels,
                                             v1::ModelService::WithRawCallbackMethod_DeleteModel,
                                             v1::ModelService::WithRawCallbackMethod_PinPlan,
                                             v1::ModelService::WithRawCallbackMethod_Rollback,
                                             v1::ModelService::WithRawCallbackMethod_GetPlan,
                                             v1::ModelService::WithRawCallbackMethod_GetEGraph,
                                             v1::ModelService::WithRawCallbackMethod_ListDevices> {
 public:
  explicit ModelService(ServerCore* core) : core_(*core) {}

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* MissingTensors(Context* context, const Bytes* request, Bytes* reply) override;
  grpc::ServerReadReactor<Bytes>* UploadModel(Context* context, Bytes* reply) override;
  Reactor* GetModel(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* GetPlan(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* GetEGraph(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ListModels(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* DeleteModel(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* PinPlan(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* Rollback(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ListDevices(Context* context, const Bytes* request, Bytes* reply) override;

 private:
  ServerCore& core_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_MODELS_MODEL_SERVICE_H_
