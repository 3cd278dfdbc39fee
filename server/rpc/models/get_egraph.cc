#include <string>

#include "deploy/bazel/libs/status_macros.h"
#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::GetEGraph(Context* context, const Bytes* request,
                                                  Bytes* reply) {
  return AnswerUnary<v1::GetEGraphRequest, v1::EGraph>(
      core_, {.name = "GetEGraph"}, context, request, reply,
      [this](const v1::GetEGraphRequest& asked, v1::EGraph* answer) {
        ASSIGN_OR_RETURN(auto version, core_.registry().Find(asked.name(), asked.version()));
        ASSIGN_OR_RETURN(std::string picture, version->Picture(asked.region()));
        answer->set_dot(std::move(picture));
        return absl::OkStatus();
      });
}

}  // namespace athanor
