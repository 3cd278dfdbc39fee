#include "server/describe/server_metadata.h"

#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {

grpc::ServerUnaryReactor* InferenceService::ServerMetadata(Context* context, const Bytes* request,
                                                           Bytes* reply) {
  return AnswerUnary<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      core_, {.name = "ServerMetadata"}, context, request, reply,
      [this](const inference::ServerMetadataRequest&, inference::ServerMetadataResponse* answer) {
        FillServerMetadata(core_, answer);
        return absl::OkStatus();
      });
}

}  // namespace athanor
