#include "deploy/bazel/libs/status_macros.h"
#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::GetModel(Context* context, const Bytes* request,
                                                 Bytes* reply) {
  return AnswerUnary<v1::GetModelRequest, v1::Model>(
      core_, {.name = "GetModel"}, context, request, reply,
      [this](const v1::GetModelRequest& asked, v1::Model* answer) {
        ASSIGN_OR_RETURN(auto version, core_.registry().Find(asked.name(), asked.version()));
        *answer = core_.registry().Describe(*version);
        return absl::OkStatus();
      });
}

}  // namespace athanor
