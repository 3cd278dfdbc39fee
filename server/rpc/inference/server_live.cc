#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {

grpc::ServerUnaryReactor* InferenceService::ServerLive(Context* context, const Bytes* request,
                                                       Bytes* reply) {
  return AnswerUnary<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      core_, {.name = "ServerLive", .while_draining = true}, context, request, reply,
      [](const inference::ServerLiveRequest&, inference::ServerLiveResponse* answer) {
        answer->set_live(true);
        return absl::OkStatus();
      });
}

}  // namespace athanor
