#include "deploy/bazel/libs/version.h"
#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {

grpc::ServerUnaryReactor* InferenceService::ServerMetadata(Context* context, const Bytes* request,
                                                           Bytes* reply) {
  return AnswerUnary<inference::ServerMetadataRequest, inference::ServerMetadataResponse>(
      core_, {.name = "ServerMetadata"}, context, request, reply,
      [](const inference::ServerMetadataRequest&, inference::ServerMetadataResponse* answer) {
        answer->set_name("athanor");
        answer->set_version(kVersion);
        return absl::OkStatus();
      });
}

}  // namespace athanor
