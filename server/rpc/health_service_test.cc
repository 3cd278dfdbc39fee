#include "server/rpc/health_service.h"

#include <grpcpp/impl/codegen/client_unary_call.h>

#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/storage/storage_testing.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

struct Watch {
  Watch(Health::Stub& stub, const std::string& name) {
    HealthCheckRequest request;
    request.set_service(name);
    reader = stub.Watch(&context, request);
  }
  // Returns UNKNOWN if the stream has ended.
  HealthCheckResponse::ServingStatus Next() {
    HealthCheckResponse reply;
    return reader->Read(&reply) ? reply.status() : HealthCheckResponse::UNKNOWN;
  }
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;
};

void Delete(TestServer& test, const std::string& name) {
  grpc::ClientContext context;
  v1::DeleteModelRequest request;
  request.set_name(name);
  v1::DeleteModelResponse reply;
  ASSERT_TRUE(test.models->DeleteModel(&context, request, &reply).ok());
}

grpc::Status Check(Health::Stub& stub, const std::string& name,
                   HealthCheckResponse::ServingStatus* state = nullptr) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service(name);
  HealthCheckResponse reply;
  const grpc::Status status = stub.Check(&context, request, &reply);
  if (state != nullptr) *state = reply.status();
  return status;
}

TEST(HealthServiceTest, CheckKnowsTheServerItsModelsAndNoOthers) {
  TestServer test;
  const auto stub = Health::NewStub(test.channel);
  HealthCheckResponse::ServingStatus state;
  ASSERT_TRUE(Check(*stub, "", &state).ok());
  EXPECT_EQ(state, HealthCheckResponse::SERVING);
  const grpc::Status none = Check(*stub, "m");
  EXPECT_EQ(none.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(none.error_message(), testing::HasSubstr("\"m\""));
  test.control->HoldCompiles();
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test.Send(UploadMessages("m", ReluModel()), &uploaded).ok());
  ASSERT_TRUE(Check(*stub, "m", &state).ok());
  EXPECT_EQ(state, HealthCheckResponse::NOT_SERVING);
  test.control->ReleaseCompiles();
  test.WaitForJob(uploaded.compile_job_id());
  ASSERT_TRUE(Check(*stub, "m", &state).ok());
  EXPECT_EQ(state, HealthCheckResponse::SERVING);
  Delete(test, "m");
  EXPECT_EQ(Check(*stub, "m").error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(HealthServiceTest, AWatcherIsToldOfDamagedWeights) {
  TestServer test;
  const TestModel model = ScaleModel({2});
  const std::string& hash = model.tensors.begin()->first;
  test.Upload("m", model);
  const auto stub = Health::NewStub(test.channel);
  Watch watch(*stub, "m");
  EXPECT_EQ(watch.Next(), HealthCheckResponse::SERVING);
  DamageFile(TensorPath(test.options.state_dir, hash));
  EXPECT_FALSE(test.server->core().registry().tensors().Pin({hash}).ok());
  EXPECT_EQ(watch.Next(), HealthCheckResponse::NOT_SERVING);
  test.Upload("m", model);
  EXPECT_EQ(watch.Next(), HealthCheckResponse::SERVING);
  watch.context.TryCancel();
}

TEST(HealthServiceTest, AWatcherIsToldOfALostDevice) {
  TestServer test;
  test.Upload("m", ReluModel());
  const auto stub = Health::NewStub(test.channel);
  Watch model(*stub, "m"), server(*stub, "");
  EXPECT_EQ(model.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(server.Next(), HealthCheckResponse::SERVING);
  test.control->Lose("an ECC error");
  EXPECT_EQ(model.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(server.Next(), HealthCheckResponse::NOT_SERVING);
  grpc::ClientContext of_server, of_model;
  inference::ServerReadyResponse server_ready;
  inference::ModelReadyRequest named;
  named.set_name("m");
  inference::ModelReadyResponse model_ready;
  ASSERT_TRUE(test.inference_stub->ServerReady(&of_server, {}, &server_ready).ok());
  ASSERT_TRUE(test.inference_stub->ModelReady(&of_model, named, &model_ready).ok());
  EXPECT_FALSE(server_ready.ready());
  EXPECT_FALSE(model_ready.ready());
}

TEST(HealthServiceTest, OtherDevicesServeOn) {
  TestServer test;
  test.control->devices = {"cuda:0", "cpu"};
  test.Restart();
  for (const char* device : {"cuda:0", "cpu"}) {
    auto messages = UploadMessages(device, ReluModel());
    messages[0].mutable_header()->set_device(device);
    v1::UploadModelResponse uploaded;
    ASSERT_TRUE(test.Send(messages, &uploaded).ok());
    test.WaitForJob(uploaded.compile_job_id());
  }
  v1::Device gpu;
  gpu.set_name("cuda:0");
  test.control->SetDevice(gpu);
  test.control->Lose("an ECC error");
  const auto stub = Health::NewStub(test.channel);
  const auto state_of = [&](const std::string& name) {
    HealthCheckResponse::ServingStatus state;
    EXPECT_TRUE(Check(*stub, name, &state).ok());
    return state;
  };
  EXPECT_EQ(state_of(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(state_of("cpu"), HealthCheckResponse::SERVING);
  EXPECT_EQ(state_of("cuda:0"), HealthCheckResponse::NOT_SERVING);
}

TEST(HealthServiceTest, AWatcherIsToldOfEachChange) {
  TestServer test;
  const auto stub = Health::NewStub(test.channel);
  Watch model(*stub, "m"), server(*stub, "");
  EXPECT_EQ(model.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  EXPECT_EQ(server.Next(), HealthCheckResponse::SERVING);
  test.Upload("other", ReluModel());
  test.Upload("m", ReluModel());
  // The state without a plan may have passed before the watch looks.
  HealthCheckResponse::ServingStatus next = model.Next();
  if (next == HealthCheckResponse::NOT_SERVING) next = model.Next();
  EXPECT_EQ(next, HealthCheckResponse::SERVING);
  Delete(test, "m");
  EXPECT_EQ(model.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  test.Upload("m", ReluModel());
  next = model.Next();
  if (next == HealthCheckResponse::NOT_SERVING) next = model.Next();
  EXPECT_EQ(next, HealthCheckResponse::SERVING);
}

TEST(HealthServiceTest, AWatcherIsToldThatAModelIsThereBeforeItServes) {
  TestServer test;
  const auto stub = Health::NewStub(test.channel);
  Watch model(*stub, "m");
  EXPECT_EQ(model.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  test.control->HoldCompiles();
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test.Send(UploadMessages("m", ReluModel()), &uploaded).ok());
  EXPECT_EQ(model.Next(), HealthCheckResponse::NOT_SERVING);
  test.control->ReleaseCompiles();
  EXPECT_EQ(model.Next(), HealthCheckResponse::SERVING);
}

TEST(HealthServiceTest, WatchersLearnOfTheDrainAndDoNotHoldItUp) {
  TestServer test({.drain_ms = 60'000});
  const auto stub = Health::NewStub(test.channel);
  test.Upload("m", ReluModel());
  Watch model(*stub, "m"), server(*stub, ""), none(*stub, "none"), left(*stub, "m");
  EXPECT_EQ(model.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(server.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(none.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  left.context.TryCancel();
  EXPECT_EQ(left.reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  bool finished = false;
  std::thread draining([&] { finished = test.server->Drain(); });
  EXPECT_EQ(model.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(server.Next(), HealthCheckResponse::NOT_SERVING);
  for (Watch* each : {&model, &server, &none}) {
    EXPECT_EQ(each->Next(), HealthCheckResponse::UNKNOWN);
    EXPECT_EQ(each->reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
  draining.join();
  EXPECT_TRUE(finished);
}

// A refusal would make an overloaded server look as if it were down.
TEST(HealthServiceTest, CheckIsAnsweredAboveMaxPending) {
  TestServer test({.max_pending = 1});
  const auto stub = Health::NewStub(test.channel);
  test.Upload("m", ScaleModel({3}));
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  test.control->HoldRuns();
  std::thread running([&] { test.Infer("m", {2}); });
  while (test.control->runs_waiting() == 0) std::this_thread::yield();
  EXPECT_TRUE(Check(*stub, "").ok());
  EXPECT_TRUE(Check(*stub, "m").ok());
  test.control->ReleaseRuns();
  running.join();
}

TEST(HealthServiceTest, ANameThatNoModelHasIsNotWatched) {
  TestServer test({.max_name_bytes = 8});
  const auto stub = Health::NewStub(test.channel);
  Watch longer(*stub, "ninebytes"), fits(*stub, "eight_by");
  EXPECT_EQ(longer.Next(), HealthCheckResponse::UNKNOWN);
  EXPECT_EQ(longer.reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(fits.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  fits.context.TryCancel();
}

TEST(HealthServiceTest, BytesThatAreNoRequest) {
  TestServer test;
  grpc::Slice slice("\x0a\x05xy");
  grpc::ByteBuffer request(&slice, 1), reply;
  grpc::ClientContext context;
  grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                   grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      test.channel.get(), method, &context, request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace athanor
