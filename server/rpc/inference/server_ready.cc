#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {

grpc::ServerUnaryReactor* InferenceService::ServerReady(Context* context, const Bytes* request,
                                                        Bytes* reply) {
  return AnswerUnary<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      core_, {.name = "ServerReady", .while_draining = true}, context, request, reply,
      [this](const inference::ServerReadyRequest&, inference::ServerReadyResponse* answer) {
        answer->set_ready(core_.serves());
        return absl::OkStatus();
      });
}

}  // namespace athanor
