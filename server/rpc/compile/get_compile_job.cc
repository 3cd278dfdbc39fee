#include "deploy/bazel/libs/status_macros.h"
#include "server/rpc/call.h"
#include "server/rpc/compile/compile_service.h"

namespace athanor {

grpc::ServerUnaryReactor* CompileService::GetCompileJob(Context* context, const Bytes* request,
                                                        Bytes* reply) {
  return AnswerUnary<v1::GetCompileJobRequest, v1::CompileJob>(
      core_, {.name = "GetCompileJob"}, context, request, reply,
      [this](const v1::GetCompileJobRequest& asked, v1::CompileJob* answer, const Caller& caller) {
        ASSIGN_OR_RETURN(auto job, core_.workers().jobs().Find(asked.id()));
        RETURN_IF_ERROR(caller.MayUse(job->model()));
        *answer = job->state();
        return absl::OkStatus();
      });
}

}  // namespace athanor
