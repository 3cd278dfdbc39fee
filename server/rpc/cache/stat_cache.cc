#include "server/rpc/cache/cache_service.h"
#include "server/rpc/call.h"

namespace athanor {

grpc::ServerUnaryReactor* CacheService::Stat(Context* context, const Bytes* request, Bytes* reply) {
  return AnswerUnary<v1::CacheStatRequest, v1::CacheStat>(
      core_, {.name = "Stat", .uses_cache = true}, context, request, reply,
      [this](const v1::CacheStatRequest&, v1::CacheStat* answer) {
        *answer = core_.cache().Stat();
        return absl::OkStatus();
      });
}

}  // namespace athanor
