#include <string>

#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::GetEGraph(Context* context, const Bytes* request,
                                                  Bytes* reply) {
  return AnswerUnary<v1::GetEGraphRequest, v1::EGraph>(
      core_, {.name = "GetEGraph"}, context, request, reply,
      [this](const v1::GetEGraphRequest& asked, v1::EGraph* answer) {
        auto version = core_.registry().Find(asked.name(), asked.version());
        if (!version.ok()) return version.status();
        absl::StatusOr<std::string> picture = (*version)->Picture(asked.region());
        if (!picture.ok()) return picture.status();
        answer->set_dot(*std::move(picture));
        return absl::OkStatus();
      });
}

}  // namespace athanor
