// Tests clients of one model that ask for more than it can do, and other clients, through gRPC.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// A server whose runs are held, so that requests wait. A run is predicted to take 1 ms.
class FairCallsTest : public testing::Test {
 protected:
  // A client with its own connection.
  struct Client {
    std::unique_ptr<inference::GRPCInferenceService::Stub> stub;
    std::atomic<int> answered{0}, refused{0};
  };

  void Begin(ServerOptions options) {
    options.threads = options.contexts = 1;
    test_ = std::make_unique<TestServer>(options);
    test_->Upload("m", ScaleModel({3}));
    while (test_->server->core().active_calls() > 0) std::this_thread::yield();
    test_->control->HoldRuns();
    for (Client* client : {&greedy_, &modest_}) {
      grpc::ChannelArguments own;
      own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      client->stub = inference::GRPCInferenceService::NewStub(
          grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", test_->server->port()),
                                    grpc::InsecureChannelCredentials(), own));
    }
  }
  // Makes one more call; returns once it waits, runs or has ended.
  void Call(Client& client) {
    calls_.emplace_back([&client] {
      grpc::ClientContext context;
      inference::ModelInferResponse reply;
      const grpc::Status status = client.stub->ModelInfer(&context, FloatRequest("m", {1}), &reply);
      if (status.ok()) {
        ++client.answered;
      } else {
        EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
        EXPECT_THAT(status.error_message(), HasSubstr("--max_queue"));
        ++client.refused;
      }
    });
    while (Held() + Ended() < static_cast<int64_t>(calls_.size())) std::this_thread::yield();
  }
  void Release() {
    test_->control->ReleaseRuns();
    for (std::thread& call : calls_) call.join();
  }
  int64_t Held() const {
    int64_t held = test_->control->runs_waiting();
    for (const auto& queue : test_->server->core().requests().waiting()) held += queue.requests;
    return held;
  }
  int64_t Ended() const {
    return greedy_.answered + greedy_.refused + modest_.answered + modest_.refused;
  }

  std::unique_ptr<TestServer> test_;
  Client greedy_, modest_;
  std::vector<std::thread> calls_;
};

TEST_F(FairCallsTest, ALongQueueIsItsClientsOwn) {
  Begin({.max_queue_delay_ms = 10});
  while (greedy_.refused == 0) Call(greedy_);
  for (int i = 0; i < 4; ++i) Call(modest_);
  Release();
  EXPECT_EQ(modest_.refused, 0);
  EXPECT_EQ(modest_.answered, 4);
  EXPECT_EQ(greedy_.answered, 12) << "one ran, and ten go before the last that waits";
}

TEST_F(FairCallsTest, AFullQueueMakesRoomForWhoHasFewer) {
  Begin({.max_queue = 4, .max_queue_delay_ms = 0});
  for (int i = 0; i < 5; ++i) Call(greedy_);
  EXPECT_EQ(greedy_.refused, 0);
  Call(modest_);
  Release();
  EXPECT_EQ(modest_.refused, 0);
  EXPECT_EQ(modest_.answered, 1);
  EXPECT_EQ(greedy_.refused, 1);
  EXPECT_EQ(greedy_.answered, 4);
  const MetricCells& metrics = test_->server->core().metrics().server();
  EXPECT_EQ(metrics.value(Metric::kRefusals, static_cast<int>(Refusal::kQueue)), 1);
}

TEST_F(FairCallsTest, WhoIsRefusedOftenIsToldLater) {
  Begin({.max_queue = 1, .max_queue_delay_ms = 0, .refusals_per_second = 1});
  for (int i = 0; i < 3; ++i) Call(greedy_);
  EXPECT_EQ(greedy_.refused, 1) << "the first at once";
  RefusalPace& refusals = test_->server->core().refusals();
  // Cancelled while its refusal is held; repeated if this thread was too late for that.
  grpc::StatusCode code = grpc::StatusCode::OK;
  while (code != grpc::StatusCode::CANCELLED) {
    grpc::ClientContext context;
    std::atomic<bool> ended{false};
    std::thread call([&] {
      inference::ModelInferResponse reply;
      code = greedy_.stub->ModelInfer(&context, FloatRequest("m", {1}), &reply).error_code();
      ended = true;
    });
    while (refusals.held() == 0 && !ended) std::this_thread::yield();
    context.TryCancel();
    call.join();
    EXPECT_THAT(code, AnyOf(grpc::StatusCode::CANCELLED, grpc::StatusCode::RESOURCE_EXHAUSTED));
  }
  while (refusals.held() > 0) std::this_thread::yield();
  // All of them get their refusals in the end.
  for (int i = 0; i < 3; ++i) Call(greedy_);
  Release();
  EXPECT_EQ(greedy_.refused, 4);
  EXPECT_EQ(greedy_.answered, 2);
  EXPECT_EQ(refusals.held(), 0);
}

}  // namespace
}  // namespace athanor
