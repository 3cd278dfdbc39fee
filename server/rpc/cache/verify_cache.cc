#include "server/base/log.h"
#include "server/rpc/cache/cache_service.h"
#include "server/rpc/call.h"

namespace athanor {

grpc::ServerUnaryReactor* CacheService::Verify(Context* context, const Bytes* request,
                                               Bytes* reply) {
  return AnswerUnary<v1::VerifyCacheRequest, v1::CacheVerification>(
      core_, {.name = "Verify", .uses_cache = true}, context, request, reply,
      [this](const v1::VerifyCacheRequest& asked, v1::CacheVerification* answer) {
        absl::StatusOr<v1::CacheVerification> found = core_.cache().Verify(asked.quarantine());
        if (!found.ok()) return found.status();
        *answer = *std::move(found);
        LogInfo("cache verified", {{"rows", answer->rows()},
                                   {"bad", answer->bad_size()},
                                   {"quarantined", asked.quarantine()},
                                   {"database", answer->database()}});
        return absl::OkStatus();
      });
}

}  // namespace athanor
