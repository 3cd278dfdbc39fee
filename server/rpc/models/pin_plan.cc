#include "deploy/bazel/libs/status_macros.h"
#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::PinPlan(Context* context, const Bytes* request,
                                                Bytes* reply) {
  return AnswerUnary<v1::PinPlanRequest, v1::Model>(
      core_, {.name = "PinPlan", .uses_disk = true}, context, request, reply,
      [this](const v1::PinPlanRequest& asked, v1::Model* answer) {
        ASSIGN_OR_RETURN(auto version, core_.workers().pins().Pin(asked.name(), asked.version(),
                                                                  asked.plan_id()));
        *answer = core_.registry().Describe(*version);
        return absl::OkStatus();
      });
}

}  // namespace athanor
