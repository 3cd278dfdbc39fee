// Tests what every call shares: its headers, and the wait before another attempt.
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "clients/cpp/client/client.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/model.grpc.pb.h"
#include "proto/google/rpc/retry_details.pb.h"

namespace athanor::client {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class Models final : public v1::ModelService::Service {
 public:
  grpc::Status GetModel(grpc::ServerContext* context, const v1::GetModelRequest* request,
                        v1::Model*) override {
    trace.clear();
    for (const auto& [key, value] : context->client_metadata()) {
      if (!key.starts_with("trace")) continue;
      trace[std::string(key.data(), key.size())] = std::string(value.data(), value.size());
    }
    ++gets;
    if (request->name() != "full") return grpc::Status::OK;
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(1'000'000);
    google::rpc::Status details;
    details.add_details()->PackFrom(retry);
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", details.SerializeAsString()};
  }

  std::map<std::string, std::string> trace;  // headers of the last call
  std::atomic<int> gets = 0;
};

class ClientCallTest : public testing::Test {
 protected:
  ClientCallTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&models_);
    server_ = builder.BuildAndStart();
    client_ = std::make_unique<Client>("127.0.0.1:" + std::to_string(port));
  }
  ~ClientCallTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  Models models_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
};

// A full server may ask for a long wait.
TEST_F(ClientCallTest, CancellationEndsTheWaitForAnotherAttempt) {
  for (int i = 0; i < 20; ++i) {  // some are cancelled while the call runs
    models_.gets = 0;
    Cancellation cancellation;
    CallOptions options;
    options.cancellation = &cancellation;
    std::thread canceller([&] {
      while (models_.gets == 0) absl::SleepFor(absl::Milliseconds(1));
      cancellation.Cancel();
    });
    EXPECT_EQ(client_->GetModel("full", "", options).status().code(), absl::StatusCode::kCancelled);
    canceller.join();
    cancellation.AwaitFor(absl::InfiniteDuration());  // it stays cancelled
  }
}

TEST_F(ClientCallTest, TheCallersSpanGoesAlong) {
  CallOptions options;
  ASSERT_TRUE(client_->GetModel("m", "", options).ok());
  EXPECT_THAT(models_.trace, IsEmpty());
  options.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  options.tracestate = "vendor=x, other=y";
  ASSERT_TRUE(client_->GetModel("m", "", options).ok());
  EXPECT_THAT(models_.trace, UnorderedElementsAre(Pair("traceparent", options.traceparent),
                                                  Pair("tracestate", options.tracestate)));
  options.traceparent += "\r\nauthorization: x";
  options.tracestate.clear();
  ASSERT_TRUE(client_->GetModel("m", "", options).ok());
  EXPECT_THAT(models_.trace, IsEmpty()) << "what is no header is not sent";
}

}  // namespace
}  // namespace athanor::client
