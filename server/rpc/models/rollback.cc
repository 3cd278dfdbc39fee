#include "deploy/bazel/libs/status_macros.h"
#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::Rollback(Context* context, const Bytes* request,
                                                 Bytes* reply) {
  return AnswerUnary<v1::RollbackRequest, v1::Model>(
      core_, {.name = "Rollback", .uses_disk = true}, context, request, reply,
      [this](const v1::RollbackRequest& asked, v1::Model* answer) {
        ASSIGN_OR_RETURN(auto version, core_.registry().Rollback(asked.name(), asked.version()));
        *answer = core_.registry().Describe(*version);
        return absl::OkStatus();
      });
}

}  // namespace athanor
