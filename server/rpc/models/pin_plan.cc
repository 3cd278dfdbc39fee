#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::PinPlan(Context* context, const Bytes* request,
                                                Bytes* reply) {
  return AnswerUnary<v1::PinPlanRequest, v1::Model>(
      core_, {.name = "PinPlan", .uses_disk = true}, context, request, reply,
      [this](const v1::PinPlanRequest& asked, v1::Model* answer) {
        auto version = core_.workers().pins().Pin(asked.name(), asked.version(), asked.plan_id());
        if (!version.ok()) return version.status();
        *answer = core_.registry().Describe(**version);
        return absl::OkStatus();
      });
}

}  // namespace athanor
