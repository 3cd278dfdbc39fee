#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::Rollback(Context* context, const Bytes* request,
                                                 Bytes* reply) {
  return AnswerUnary<v1::RollbackRequest, v1::Model>(
      core_, {.name = "Rollback", .uses_disk = true}, context, request, reply,
      [this](const v1::RollbackRequest& asked, v1::Model* answer) {
        auto version = core_.registry().Rollback(asked.name(), asked.version());
        if (!version.ok()) return version.status();
        *answer = core_.registry().Describe(**version);
        return absl::OkStatus();
      });
}

}  // namespace athanor
