#include "server/rpc/inference/infer_call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {

grpc::ServerUnaryReactor* InferenceService::ModelInfer(Context* context, const Bytes* request,
                                                       Bytes* reply) {
  return (new InferCall(core_, context, request, reply))->Begin();
}

}  // namespace athanor
