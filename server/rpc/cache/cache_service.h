// athanor.v1.CacheService: statistics of the cache, reasons for misses, and bundles. Each call has
// a file beside this one.
#ifndef ATHANOR_SERVER_RPC_CACHE_CACHE_SERVICE_H_
#define ATHANOR_SERVER_RPC_CACHE_CACHE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/athanor/v1/cache.grpc.pb.h"
#include "server/core/core.h"

namespace athanor {

namespace internal {
using RawCache = v1::CacheService;
using RawCacheService = RawCache::WithRawCallbackMethod_Stat<
    RawCache::WithRawCallbackMethod_Explain<RawCache::WithRawCallbackMethod_Verify<
        RawCache::WithRawCallbackMethod_CollectGarbage<RawCache::WithRawCallbackMethod_Export<
            RawCache::WithRawCallbackMethod_Import<RawCache::Service>>>>>>;
}  // namespace internal

class CacheService final : public internal::RawCacheService {
 public:
  explicit CacheService(ServerCore* core) : core_(*core) {}

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Stat(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* Explain(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* Verify(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* CollectGarbage(Context* context, const Bytes* request, Bytes* reply) override;
  grpc::ServerWriteReactor<Bytes>* Export(Context* context, const Bytes* request) override;
  grpc::ServerReadReactor<Bytes>* Import(Context* context, Bytes* reply) override;

 private:
  ServerCore& core_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_CACHE_CACHE_SERVICE_H_
