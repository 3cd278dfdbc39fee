#include <string>
#include <utility>

#include "server/repository/repository.h"
#include "server/rpc/call.h"
#include "server/rpc/inference/inference_service.h"

namespace athanor {
namespace {

// Loads and unloads end when the model's versions serve, or are gone: not on this thread.
template <typename Request, typename Reply>
grpc::ServerUnaryReactor* Answer(ServerCore& core, const char* name, RepositoryCall::Kind kind,
                                 grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  return AnswerLater<Request, Reply>(core, {.name = name}, context, request, reply,
                                     [&core, kind](const Request& asked, UnaryCall::Done done) {
                                       RepositoryCall call{kind, asked.model_name(), {}};
                                       for (const auto& [parameter, value] : asked.parameters()) {
                                         call.parameters.push_back(parameter);
                                       }
                                       AnswerRepositoryCall(core.repository(), call,
                                                            std::move(done));
                                     });
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::RepositoryModelLoad(Context* context,
                                                                const Bytes* request,
                                                                Bytes* reply) {
  return Answer<inference::RepositoryModelLoadRequest, inference::RepositoryModelLoadResponse>(
      core_, "RepositoryModelLoad", RepositoryCall::Kind::kLoad, context, request, reply);
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelUnload(Context* context,
                                                                  const Bytes* request,
                                                                  Bytes* reply) {
  return Answer<inference::RepositoryModelUnloadRequest, inference::RepositoryModelUnloadResponse>(
      core_, "RepositoryModelUnload", RepositoryCall::Kind::kUnload, context, request, reply);
}

}  // namespace athanor
