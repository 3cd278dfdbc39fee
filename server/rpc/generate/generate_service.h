// athanor.v1.GenerateService: text and tokens of language models. Each call has a file beside this
// one; Generate's is generate_call.h.
#ifndef ATHANOR_SERVER_RPC_GENERATE_GENERATE_SERVICE_H_
#define ATHANOR_SERVER_RPC_GENERATE_GENERATE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "proto/athanor/v1/generate.grpc.pb.h"
#include "server/base/work_queue.h"
#include "server/calls/stream_writer.h"
#include "server/core/core.h"
#include "server/rpc/raw_methods.h"

namespace athanor {

class GenerateService final
    : public RawMethods<v1::GenerateService::Service,
                        v1::GenerateService::WithRawCallbackMethod_Generate,
                        v1::GenerateService::WithRawCallbackMethod_Tokenize,
                        v1::GenerateService::WithRawCallbackMethod_Detokenize,
                        v1::GenerateService::WithRawCallbackMethod_RenderChat,
                        v1::GenerateService::WithRawCallbackMethod_GetEngine> {
 public:
  explicit GenerateService(ServerCore* core) : core_(*core) {}
  ~GenerateService() { writer_->Stop(); }

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  using Reactor = grpc::ServerUnaryReactor;
  grpc::ServerWriteReactor<Bytes>* Generate(Context* context, const Bytes* request) override;
  Reactor* Tokenize(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* Detokenize(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* RenderChat(Context* context, const Bytes* request, Bytes* reply) override;
  Reactor* GetEngine(Context* context, const Bytes* request, Bytes* reply) override;

 private:
  ServerCore& core_;
  const std::shared_ptr<StreamWriter> writer_ = std::make_shared<StreamWriter>();
  // Templates and tokens of long texts, which would hold up other calls on gRPC's threads.
  WorkQueue text_queue_{"text", 2};
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_GENERATE_GENERATE_SERVICE_H_
