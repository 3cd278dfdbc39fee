// athanor.v1.CompileService: compile jobs. Each call has a file beside this one.
#ifndef ATHANOR_SERVER_RPC_COMPILE_COMPILE_SERVICE_H_
#define ATHANOR_SERVER_RPC_COMPILE_COMPILE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/athanor/v1/compile.grpc.pb.h"
#include "server/core/core.h"
#include "server/rpc/raw_methods.h"

namespace athanor {

class CompileService final
    : public RawMethods<v1::CompileService::Service,
                        v1::CompileService::WithRawCallbackMethod_StartCompile,
                        v1::CompileService::WithRawCallbackMethod_GetCompileJob,
                        v1::CompileService::WithRawCallbackMethod_ListCompileJobs,
                        v1::CompileService::WithRawCallbackMethod_CancelCompileJob,
                        v1::CompileService::WithRawCallbackMethod_WatchCompileJob> {
 public:
  explicit CompileService(ServerCore* core) : core_(*core) {}

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* StartCompile(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* GetCompileJob(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* ListCompileJobs(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* CancelCompileJob(Context* context, const Bytes* request, Bytes* reply) override;
  grpc::ServerWriteReactor<Bytes>* WatchCompileJob(Context* context, const Bytes* request) override;

 private:
  ServerCore& core_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_COMPILE_COMPILE_SERVICE_H_
