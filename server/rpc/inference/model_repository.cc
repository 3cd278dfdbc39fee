#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {
namespace {

absl::Status NoRepository() {
  return absl::FailedPreconditionError(
      "the server has no --model_repository: models serve from their upload on, until they are "
      "deleted");
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::RepositoryModelLoad(Context* context,
                                                                const Bytes* request,
                                                                Bytes* reply) {
  return AnswerUnary<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
      core_, {.name = "RepositoryModelLoad", .uses_disk = true}, context, request, reply,
      [](const inference::RepositoryModelLoadRequest&, inference::RepositoryModelLoadResponse*) {
        return NoRepository();
      });
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelUnload(Context* context,
                                                                  const Bytes* request,
                                                                  Bytes* reply) {
  return AnswerUnary<inference::RepositoryModelUnloadRequest,
                     inference::RepositoryModelUnloadResponse>(
      core_, {.name = "RepositoryModelUnload", .uses_disk = true}, context, request, reply,
      [](const inference::RepositoryModelUnloadRequest&,
         inference::RepositoryModelUnloadResponse*) { return NoRepository(); });
}

}  // namespace athanor
