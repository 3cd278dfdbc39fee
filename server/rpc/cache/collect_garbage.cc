#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/rpc/cache/cache_service.h"
#include "server/rpc/call.h"

namespace athanor {

grpc::ServerUnaryReactor* CacheService::CollectGarbage(Context* context, const Bytes* request,
                                                       Bytes* reply) {
  return AnswerUnary<v1::CollectGarbageRequest, v1::CollectGarbageReply>(
      core_, {.name = "CollectGarbage", .uses_cache = true}, context, request, reply,
      [this](const v1::CollectGarbageRequest& asked, v1::CollectGarbageReply* answer) {
        ASSIGN_OR_RETURN(v1::CollectGarbageReply done, core_.cache().CollectGarbage(asked));
        *answer = std::move(done);
        LogInfo("cache's garbage collected", {{"rows", answer->rows()},
                                              {"bytes", answer->bytes()},
                                              {"bytes_left", answer->bytes_left()},
                                              {"dry_run", asked.dry_run()}});
        return absl::OkStatus();
      });
}

}  // namespace athanor
