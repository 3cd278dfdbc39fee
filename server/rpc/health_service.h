// grpc.health.v1.Health for the server (the empty name) and for each model. gRPC's own service
// would keep a row for every name ever used; this one answers from the registry.
#ifndef ATHANOR_SERVER_RPC_HEALTH_SERVICE_H_
#define ATHANOR_SERVER_RPC_HEALTH_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "deploy/bazel/libs/mutex.h"
#include "proto/health/health.grpc.pb.h"
#include "server/core/core.h"
#include "server/rpc/raw_methods.h"
#include "server/rpc/watch_stream.h"

namespace athanor {

class HealthService final
    : public RawMethods<grpc::health::v1::Health::Service,
                        grpc::health::v1::Health::WithRawCallbackMethod_Check,
                        grpc::health::v1::Health::WithRawCallbackMethod_Watch> {
 public:
  explicit HealthService(ServerCore* core) : core_(*core) {}

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  // Takes no call slot: a server with too many calls is not down.
  grpc::ServerUnaryReactor* Check(Context* context, const Bytes* request, Bytes* reply) override;
  grpc::ServerWriteReactor<Bytes>* Watch(Context* context, const Bytes* request) override;

  // Makes the watchers of the model check its state again. Short; any thread may call it.
  void Tell(const std::string& name);
  // The same for all watchers: draining has begun, or a device is lost.
  void TellAll();

 private:
  friend class HealthWatch;
  void Add(const std::string& name, const std::shared_ptr<WatchStream::Link>& link);
  void Remove(const std::string& name, const std::shared_ptr<WatchStream::Link>& link);

  ServerCore& core_;
  Mutex mu_;
  absl::flat_hash_map<std::string, absl::flat_hash_set<std::shared_ptr<WatchStream::Link>>>
      watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_HEALTH_SERVICE_H_
