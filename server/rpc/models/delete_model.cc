#include "absl/strings/str_cat.h"
#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/rpc/call.h"
#include "server/rpc/models/model_service.h"

namespace athanor {

grpc::ServerUnaryReactor* ModelService::DeleteModel(Context* context, const Bytes* request,
                                                    Bytes* reply) {
  return AnswerUnary<v1::DeleteModelRequest, v1::DeleteModelResponse>(
      core_, {.name = "DeleteModel", .uses_disk = true}, context, request, reply,
      [this](const v1::DeleteModelRequest& asked, v1::DeleteModelResponse* answer) {
        RETURN_IF_ERROR(core_.registry().CheckUploaded(asked.name()));
        ASSIGN_OR_RETURN(auto deleted, core_.registry().Delete(asked.name(), asked.version()));
        for (const auto& version : deleted) {
          core_.workers().CancelFor(*version);
          core_.requests().Forget(version->Describe());
          answer->add_versions(absl::StrCat(version->version()));
          LogInfo("model deleted", {{"model", version->name()}, {"version", version->version()}});
        }
        return absl::OkStatus();
      });
}

}  // namespace athanor
