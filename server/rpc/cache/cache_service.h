// athanor.v1.CacheService: statistics of the cache, reasons for misses, and bundles. Each call has
// a file beside this one.
#ifndef ATHANOR_SERVER_RPC_CACHE_CACHE_SERVICE_H_
#define ATHANOR_SERVER_RPC_CACHE_CACHE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/athanor/v1/cache.grpc.pb.h"
#include "server/core/core.h"
#include "server/rpc/raw_methods.h"

namespace athanor {

// Returns why the key of a version's plans is not known: its device is not there, or no plan was
// looked up on it since the server started. FAILED_PRECONDITION, or UNAVAILABLE where the device is
// lost.
absl::Status CheckMachineKnown(ServerCore& core, const ModelVersion& version);

class CacheService final
    : public RawMethods<v1::CacheService::Service, v1::CacheService::WithRawCallbackMethod_Stat,
                        v1::CacheService::WithRawCallbackMethod_Explain,
                        v1::CacheService::WithRawCallbackMethod_Verify,
                        v1::CacheService::WithRawCallbackMethod_CollectGarbage,
                        v1::CacheService::WithRawCallbackMethod_Export,
                        v1::CacheService::WithRawCallbackMethod_Import> {
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
