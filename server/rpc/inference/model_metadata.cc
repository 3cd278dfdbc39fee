#include "server/describe/model_metadata.h"

#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {

grpc::ServerUnaryReactor* InferenceService::ModelMetadata(Context* context, const Bytes* request,
                                                          Bytes* reply) {
  return AnswerUnary<inference::ModelMetadataRequest, inference::ModelMetadataResponse>(
      core_, {.name = "ModelMetadata"}, context, request, reply,
      [this](const inference::ModelMetadataRequest& asked,
             inference::ModelMetadataResponse* answer) {
        return FillMetadata(core_, asked.name(), asked.version(), answer);
      });
}

}  // namespace athanor
