#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::ListModels(Context* context, const Bytes* request,
                                                   Bytes* reply) {
  return AnswerUnary<v1::ListModelsRequest, v1::ListModelsResponse>(
      core_, {.name = "ListModels"}, context, request, reply,
      [this](const v1::ListModelsRequest& asked, v1::ListModelsResponse* answer,
             const Caller& caller) {
        for (const auto& version : core_.registry().versions().List(asked.name())) {
          if (!caller.Sees(version->name())) continue;
          *answer->add_models() = core_.registry().versions().Describe(*version);
        }
        return absl::OkStatus();
      });
}

}  // namespace athanor
