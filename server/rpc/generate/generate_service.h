// athanor.v1.GenerateService: text and tokens of language models. Each call has a file beside this
// one; Generate's is generate_call.h.
#ifndef ATHANOR_SERVER_RPC_GENERATE_GENERATE_SERVICE_H_
#define ATHANOR_SERVER_RPC_GENERATE_GENERATE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "proto/athanor/v1/generate.grpc.pb.h"
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
  // `writer` stops behind the last call.
  GenerateService(ServerCore* core, std::shared_ptr<StreamWriter> writer)
      : core_(*core), writer_(std::move(writer)) {}

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
  const std::shared_ptr<StreamWriter> writer_;
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_GENERATE_GENERATE_SERVICE_H_
