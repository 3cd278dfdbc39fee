#include "server/describe/model_config.h"
#include "server/describe/model_statistics.h"
#include "server/describe/repository_index.h"
#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {

grpc::ServerUnaryReactor* InferenceService::ModelConfig(Context* context, const Bytes* request,
                                                        Bytes* reply) {
  return AnswerUnary<inference::ModelConfigRequest, inference::ModelConfigResponse>(
      core_, {.name = "ModelConfig"}, context, request, reply,
      [this](const inference::ModelConfigRequest& asked, inference::ModelConfigResponse* answer) {
        return FillModelConfig(core_, asked.name(), asked.version(), answer->mutable_config());
      });
}

grpc::ServerUnaryReactor* InferenceService::ModelStatistics(Context* context, const Bytes* request,
                                                            Bytes* reply) {
  return AnswerUnary<inference::ModelStatisticsRequest, inference::ModelStatisticsResponse>(
      core_, {.name = "ModelStatistics"}, context, request, reply,
      [this](const inference::ModelStatisticsRequest& asked,
             inference::ModelStatisticsResponse* answer, const Caller& caller) {
        return FillStatistics(core_, asked.name(), asked.version(), caller, answer);
      });
}

grpc::ServerUnaryReactor* InferenceService::RepositoryIndex(Context* context, const Bytes* request,
                                                            Bytes* reply) {
  return AnswerUnary<inference::RepositoryIndexRequest, inference::RepositoryIndexResponse>(
      core_, {.name = "RepositoryIndex", .uses_disk = true}, context, request, reply,
      [this](const inference::RepositoryIndexRequest& asked,
             inference::RepositoryIndexResponse* answer, const Caller& caller) {
        FillRepositoryIndex(core_, asked.ready(), caller, answer);
        return absl::OkStatus();
      });
}

}  // namespace athanor
