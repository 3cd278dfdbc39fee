#include "server/rpc/call.h"
#include "server/rpc/compile/compile_service.h"

namespace athanor {

grpc::ServerUnaryReactor* CompileService::ListCompileJobs(Context* context, const Bytes* request,
                                                          Bytes* reply) {
  return AnswerUnary<v1::ListCompileJobsRequest, v1::ListCompileJobsResponse>(
      core_, {.name = "ListCompileJobs"}, context, request, reply,
      [this](const v1::ListCompileJobsRequest& asked, v1::ListCompileJobsResponse* answer,
             const Caller& caller) {
        for (const auto& job : core_.workers().jobs().List(asked.model())) {
          if (!caller.Sees(job->model())) continue;
          v1::CompileJob state = job->state();
          if (asked.only_unfinished() && IsFinal(state.phase())) continue;
          *answer->add_jobs() = std::move(state);
        }
        return absl::OkStatus();
      });
}

}  // namespace athanor
