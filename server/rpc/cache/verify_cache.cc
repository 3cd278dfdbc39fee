#include "deploy/bazel/libs/status_macros.h"
#include "server/base/log.h"
#include "server/rpc/cache/cache_service.h"
#include "server/rpc/call.h"

namespace athanor {

grpc::ServerUnaryReactor* CacheService::Verify(Context* context, const Bytes* request,
                                               Bytes* reply) {
  return AnswerUnary<v1::VerifyCacheRequest, v1::CacheVerification>(
      core_, {.name = "Verify", .uses_cache = true}, context, request, reply,
      [this](const v1::VerifyCacheRequest& asked, v1::CacheVerification* answer) {
        ASSIGN_OR_RETURN(v1::CacheVerification found, core_.cache().Verify(asked.quarantine()));
        *answer = std::move(found);
        LogInfo("cache verified", {{"rows", answer->rows()},
                                   {"bad", answer->bad_size()},
                                   {"quarantined", asked.quarantine()},
                                   {"database", answer->database()}});
        return absl::OkStatus();
      });
}

}  // namespace athanor
