#include "server/describe/model_metadata.h"
#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {

grpc::ServerUnaryReactor* InferenceService::ModelReady(Context* context, const Bytes* request,
                                                       Bytes* reply) {
  return AnswerUnary<inference::ModelReadyRequest, inference::ModelReadyResponse>(
      core_, {.name = "ModelReady", .while_draining = true}, context, request, reply,
      [this](const inference::ModelReadyRequest& asked, inference::ModelReadyResponse* answer) {
        answer->set_ready(IsModelReady(core_, asked.name(), asked.version()));
        return absl::OkStatus();
      });
}

}  // namespace athanor
