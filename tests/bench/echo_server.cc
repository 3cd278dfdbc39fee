// A gRPC server that only returns what it gets. It bounds from below the time of any call through
// athanord, which uses the same API (--api=callback). The other APIs are here so that the choice
// among them stays a measurement.
//
//   echo_server --listen=127.0.0.1:50070 --api=callback|sync|async --reflection
//
// Prints the address once it listens and serves until killed.
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tests/bench/echo.grpc.pb.h"

namespace athanor::bench {
namespace {

class CallbackEcho final : public EchoService::CallbackService {
  grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context, const EchoMessage* request,
                                 EchoMessage* reply) override {
    reply->set_body(request->body());
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class SyncEcho final : public EchoService::Service {
  grpc::Status Echo(grpc::ServerContext*, const EchoMessage* request, EchoMessage* reply) override {
    reply->set_body(request->body());
    return grpc::Status::OK;
  }
};

// Serves one call at a time; a finished call is replaced by the next.
struct AsyncCall {
  grpc::ServerContext context;
  EchoMessage request;
  grpc::ServerAsyncResponseWriter<EchoMessage> writer{&context};
  bool answered = false;
};

void ServeAsync(EchoService::AsyncService* service, grpc::ServerCompletionQueue* queue) {
  auto arm = [&] {
    auto* call = new AsyncCall;
    service->RequestEcho(&call->context, &call->request, &call->writer, queue, queue, call);
  };
  for (int i = 0; i < 16; ++i) arm();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
    auto* call = static_cast<AsyncCall*>(tag);
    if (!ok || call->answered) {
      delete call;
      continue;
    }
    arm();
    call->answered = true;
    EchoMessage reply;
    reply.set_body(call->request.body());
    call->writer.Finish(reply, grpc::Status::OK, call);
  }
}

int Serve(const std::string& listen, const std::string& api, bool reflection) {
  if (reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  CallbackEcho callback;
  SyncEcho sync;
  EchoService::AsyncService async;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  if (api == "callback") {
    builder.RegisterService(&callback);
  } else if (api == "sync") {
    builder.RegisterService(&sync);
  } else if (api == "async") {
    builder.RegisterService(&async);
    for (int i = 0; i < 2; ++i) queues.push_back(builder.AddCompletionQueue());
  } else {
    std::fprintf(stderr, "--api=%s: one of callback, sync, async is needed\n", api.c_str());
    return 2;
  }
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "--listen=%s: cannot listen there\n", listen.c_str());
    return 1;
  }
  std::vector<std::thread> threads;
  for (auto& queue : queues) threads.emplace_back([&] { ServeAsync(&async, queue.get()); });
  std::printf("listening on port %d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

}  // namespace
}  // namespace athanor::bench

int main(int argc, char** argv) {
  std::string listen = "127.0.0.1:50070", api = "callback";
  bool reflection = false;
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    if (absl::ConsumePrefix(&arg, "--listen=")) {
      listen = std::string(arg);
    } else if (absl::ConsumePrefix(&arg, "--api=")) {
      api = std::string(arg);
    } else if (arg == "--reflection") {
      reflection = true;
    } else {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      return 2;
    }
  }
  return athanor::bench::Serve(listen, api, reflection);
}
