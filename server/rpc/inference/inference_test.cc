// Tests the six calls of the Open Inference Protocol, through gRPC.
#include <grpcpp/impl/codegen/client_unary_call.h>

#include <chrono>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/testing/testing.h"
#include "server/testing/waiters_testing.h"

namespace athanor {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(InferenceTest, LiveReadyAndMetadata) {
  TestServer test;
  {
    grpc::ClientContext context;
    inference::ServerLiveResponse reply;
    ASSERT_TRUE(test.inference_stub->ServerLive(&context, {}, &reply).ok());
    EXPECT_TRUE(reply.live());
  }
  {
    grpc::ClientContext context;
    inference::ServerReadyResponse reply;
    ASSERT_TRUE(test.inference_stub->ServerReady(&context, {}, &reply).ok());
    EXPECT_TRUE(reply.ready());
  }
  grpc::ClientContext context;
  inference::ServerMetadataResponse reply;
  ASSERT_TRUE(test.inference_stub->ServerMetadata(&context, {}, &reply).ok());
  EXPECT_EQ(reply.name(), "athanor");
  EXPECT_FALSE(reply.version().empty());
}

TEST(InferenceTest, ModelReadyOnlyOnceAPlanServes) {
  TestServer test;
  auto ready = [&](const std::string& name) {
    grpc::ClientContext context;
    inference::ModelReadyRequest request;
    request.set_name(name);
    inference::ModelReadyResponse reply;
    const grpc::Status status = test.inference_stub->ModelReady(&context, request, &reply);
    return status.ok() ? (reply.ready() ? "ready" : "not ready") : status.error_message();
  };
  EXPECT_EQ(ready("m"), "not ready") << "as Triton says of what does not exist";
  test.control->HoldCompiles();
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test.Send(UploadMessages("m", ReluModel()), &uploaded).ok());
  EXPECT_EQ(ready("m"), "not ready");
  test.control->ReleaseCompiles();
  test.WaitForJob(uploaded.compile_job_id());
  EXPECT_EQ(ready("m"), "ready");
}

TEST(InferenceTest, ModelMetadataShowsInputsAndOutputs) {
  TestServer test;
  test.Upload("m", ReluModel());
  grpc::ClientContext context;
  inference::ModelMetadataRequest request;
  request.set_name("m");
  inference::ModelMetadataResponse reply;
  ASSERT_TRUE(test.inference_stub->ModelMetadata(&context, request, &reply).ok());
  EXPECT_THAT(reply.versions(), ElementsAre("1"));
  ASSERT_EQ(reply.inputs_size(), 1);
  EXPECT_EQ(reply.inputs(0).name(), "x");
  EXPECT_EQ(reply.inputs(0).datatype(), "FP32");
  EXPECT_THAT(reply.inputs(0).shape(), ElementsAre(-1, 4));
  ASSERT_EQ(reply.outputs_size(), 1);
  EXPECT_EQ(reply.outputs(0).name(), "y");
}

TEST(InferenceTest, InferReturnsValuesAndWhatServed) {
  TestServer test;
  test.Upload("m", ScaleModel({1, -2, 3}));
  inference::ModelInferRequest request = FloatRequest("m", {10, 10, 10});
  request.set_id("call-7");
  inference::ModelInferResponse reply;
  ASSERT_TRUE(test.Infer(request, &reply).ok());
  EXPECT_THAT(test.Infer("m", {10, 10, 10}), ElementsAre(10, -20, 30));
  EXPECT_EQ(reply.id(), "call-7");
  EXPECT_EQ(reply.model_name(), "m");
  EXPECT_EQ(reply.model_version(), "1");
  EXPECT_THAT(reply.parameters().at("plan_id").string_param(), HasSubstr("p-"));
  EXPECT_EQ(reply.parameters().at("compile_state").string_param(), "baseline");
  EXPECT_GE(reply.parameters().at("queue_us").int64_param(), 0);
  EXPECT_GE(reply.parameters().at("exec_us").int64_param(), 0);
}

TEST(InferenceTest, ReplyNamesTheBucketAndTheOutputsShape) {
  TestServer test;
  test.Upload("m", ReluModel());
  inference::ModelInferRequest request = FloatRequest("m", std::vector<float>(12, -1));
  request.mutable_inputs(0)->clear_shape();
  request.mutable_inputs(0)->add_shape(3);
  request.mutable_inputs(0)->add_shape(4);
  inference::ModelInferResponse reply;
  ASSERT_TRUE(test.Infer(request, &reply).ok());
  EXPECT_EQ(reply.parameters().at("bucket").string_param(), "b=1..64");
  EXPECT_THAT(reply.outputs(0).shape(), ElementsAre(3, 4));
  EXPECT_EQ(reply.raw_output_contents(0), std::string(48, '\0'));
}

TEST(InferenceTest, TypedContentsWorkToo) {
  TestServer test;
  test.Upload("m", ScaleModel({2, 2}));
  inference::ModelInferRequest request = FloatRequest("m", {1, 4});
  request.clear_raw_input_contents();
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(4);
  inference::ModelInferResponse reply;
  ASSERT_TRUE(test.Infer(request, &reply).ok());
  const float expected[] = {2, 8};
  EXPECT_EQ(reply.raw_output_contents(0), std::string(reinterpret_cast<const char*>(expected), 8));
}

TEST(InferenceTest, ACallBeforeTheBaselineWaitsForIt) {
  TestServer test;
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3}))).ok());
  int64_t waited_us = 0;
  std::thread release([&] {
    AwaitWaiters(test.server->core().registry().versions().Find("m", "").value()->serving(), 1);
    const auto waits = steady_clock::now();
    std::this_thread::sleep_for(milliseconds(5));
    waited_us = std::chrono::duration_cast<microseconds>(steady_clock::now() - waits).count();
    test.control->ReleaseCompiles();
  });
  inference::ModelInferResponse reply;
  const grpc::Status status = test.Infer(FloatRequest("m", {2}), &reply);
  release.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_GE(reply.parameters().at("queue_us").int64_param(), waited_us);
}

TEST(InferenceTest, WaitNoneRefusesBeforeTheBaseline) {
  TestServer test;
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3}))).ok());
  inference::ModelInferRequest request = FloatRequest("m", {2});
  (*request.mutable_parameters())["wait"].set_string_param("none");
  const grpc::Status status = test.Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("model \"m\", version 1 has no plan yet"));
}

TEST(InferenceTest, TimeoutParameterExpiresWhileWaitingForTheBaseline) {
  TestServer test;
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3}))).ok());
  inference::ModelInferRequest request = FloatRequest("m", {2});
  (*request.mutable_parameters())["timeout_us"].set_int64_param(30'000);
  const grpc::Status status = test.Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("model \"m\", version 1: its baseline plan"));
}

TEST(InferenceTest, ServerBoundsTheWaitWithoutADeadline) {
  ServerOptions options;
  options.max_wait_ms = 30;
  TestServer test(options);
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3}))).ok());
  EXPECT_EQ(test.Infer(FloatRequest("m", {2})).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST(InferenceTest, ExpiredDeadlineEndsTheCallAndFreesIt) {
  TestServer test;
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3}))).ok());
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + milliseconds(30));
  inference::ModelInferResponse reply;
  const grpc::Status status =
      test.inference_stub->ModelInfer(&context, FloatRequest("m", {2}), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  // If this never ends, the test fails by its time limit.
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
}

TEST(InferenceTest, DeadlineCountsInTheQueueToo) {
  ServerOptions options;
  options.contexts = 1;
  TestServer test(options);
  test.Upload("m", ScaleModel({3}));
  test.control->HoldRuns();
  std::thread first([&] { EXPECT_TRUE(test.Infer(FloatRequest("m", {1})).ok()); });
  while (test.control->runs_waiting() == 0) std::this_thread::yield();
  inference::ModelInferRequest request = FloatRequest("m", {2});
  (*request.mutable_parameters())["timeout_us"].set_int64_param(30'000);
  const grpc::Status status = test.Infer(request);
  test.control->ReleaseRuns();
  first.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("in the queue"));
  EXPECT_THAT(test.Infer("m", {5}), ElementsAre(15));
}

TEST(InferenceTest, CancelledCallIsCancelledAndFreed) {
  TestServer test;
  test.control->HoldCompiles();
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3}))).ok());
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  grpc::ClientContext context;
  std::thread cancel([&] {
    while (test.server->core().active_calls() == 0) std::this_thread::yield();
    context.TryCancel();
  });
  inference::ModelInferResponse reply;
  const grpc::Status status =
      test.inference_stub->ModelInfer(&context, FloatRequest("m", {2}), &reply);
  cancel.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  // If this never ends, the test fails by its time limit.
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
}

TEST(InferenceTest, TooManyCallsAtOnceAreRefused) {
  ServerOptions options;
  options.max_pending = 2;
  options.contexts = 2;
  options.threads = 2;
  TestServer test(options);
  test.Upload("m", ScaleModel({3}));
  while (test.server->core().active_calls() > 0) std::this_thread::yield();
  test.control->HoldRuns();
  std::vector<std::thread> running;
  for (int i = 0; i < 2; ++i) {
    running.emplace_back([&] { EXPECT_TRUE(test.Infer(FloatRequest("m", {1})).ok()); });
  }
  while (test.control->runs_waiting() < 2) std::this_thread::yield();
  const grpc::Status status = test.Infer(FloatRequest("m", {1}));
  test.control->ReleaseRuns();
  for (std::thread& call : running) call.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--max_pending"));
}

TEST(InferenceTest, AFullQueueRefusesAtOnceAndTheOthersAreAnswered) {
  ServerOptions options;
  options.contexts = 1;
  options.threads = 1;
  options.max_queue = 2;
  TestServer test(options);
  test.Upload("m", ScaleModel({3}));
  test.Upload("n", ScaleModel({5}));
  test.control->HoldRuns();
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back([&] { EXPECT_TRUE(test.Infer(FloatRequest("m", {1})).ok()); });
    const auto held = [&] {
      const auto queues = test.server->core().requests().waiting();
      return test.control->runs_waiting() + (queues.empty() ? 0 : queues[0].requests);
    };
    // The first stays counted as queued until it runs.
    while (test.control->runs_waiting() < 1 || held() < i + 1) std::this_thread::yield();
  }
  const grpc::Status full = test.Infer(FloatRequest("m", {1}));
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(full.error_message(), HasSubstr("2 requests wait already"));
  std::thread other([&] { EXPECT_TRUE(test.Infer(FloatRequest("n", {1})).ok()); });
  test.control->ReleaseRuns();
  for (std::thread& call : waiting) call.join();
  other.join();
}

TEST(InferenceTest, UnknownModelAndVersion) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  grpc::Status status = test.Infer(FloatRequest("n", {1}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("model \"n\" does not exist"));
  inference::ModelInferRequest request = FloatRequest("m", {1});
  request.set_model_version("7");
  status = test.Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("no version 7; the newest is 1"));
  request.set_model_version("latest");
  status = test.Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("\"latest\""));
}

TEST(InferenceTest, IndexOutOfRangeNamesTheInput) {
  TestServer test;
  test.Upload("m", GatherModel({1, 2, 3}));
  inference::ModelInferRequest request;
  request.set_model_name("m");
  auto* input = request.add_inputs();
  input->set_name("ids");
  input->set_datatype("INT32");
  input->add_shape(2);
  input->mutable_contents()->add_int_contents(2);
  input->mutable_contents()->add_int_contents(3);
  const grpc::Status status = test.Infer(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("ids"));
}

TEST(InferenceTest, WrongRequestsAreInvalidAndNameTheInput) {
  TestServer test;
  test.Upload("m", ScaleModel({3}));
  inference::ModelInferRequest request = FloatRequest("m", {1, 2});
  EXPECT_EQ(test.Infer(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(test.Infer(request).error_message(), HasSubstr("\"x\""));
  request = FloatRequest("m", {1});
  request.mutable_inputs(0)->set_datatype("FP64");
  EXPECT_THAT(test.Infer(request).error_message(), HasSubstr("\"x\""));
  request = FloatRequest("m", {1});
  request.mutable_raw_input_contents(0)->pop_back();
  EXPECT_THAT(test.Infer(request).error_message(), HasSubstr("\"x\""));
  (*request.mutable_parameters())["taps"].set_string_param("nothing");
  EXPECT_EQ(test.Infer(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Bytes that are not a message, or hold invalid text, must not get gRPC's empty UNIMPLEMENTED.
TEST(InferenceTest, BytesThatDoNotParseNameTheField) {
  TestServer test;
  grpc::internal::RpcMethod method("/inference.GRPCInferenceService/ModelInfer",
                                   grpc::internal::RpcMethod::NORMAL_RPC);
  auto call = [&](const std::string& bytes) {
    grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1), reply;
    grpc::ClientContext context;
    return grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
        test.channel.get(), method, &context, request, &reply);
  };
  grpc::Status status = call(std::string("\x0a\x02\xff\xfe", 4));  // model_name, invalid UTF-8
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("model_name"));
  status = call(std::string("\x0a\x20 cut off", 9));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(InferenceTest, MessagesAboveTheLimitAreRefused) {
  ServerOptions options;
  options.max_message_bytes = 64 << 10;
  options.max_chunk_bytes = 32 << 10;
  TestServer test(options);
  test.Upload("m", ScaleModel({3}));
  const grpc::Status status = test.Infer(FloatRequest("m", std::vector<float>(32 << 10)));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(test.Infer("m", {1}), ElementsAre(3));
}

TEST(InferenceTest, AFailedCompileIsTheAnswer) {
  TestServer test;
  test.control->FailCompiles(absl::ResourceExhaustedError("kernel mul: the compiler ran out"));
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test.Send(UploadMessages("m", ScaleModel({3})), &uploaded).ok());
  EXPECT_EQ(test.WaitForJob(uploaded.compile_job_id()).phase(), v1::CompileJob::FAILED);
  const grpc::Status status = test.Infer(FloatRequest("m", {1}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("kernel mul"));
}

TEST(InferenceTest, FailedCallsCarryTheirRequestId) {
  TestServer test;
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "mine-42");
  inference::ModelInferResponse reply;
  EXPECT_FALSE(test.inference_stub->ModelInfer(&context, FloatRequest("n", {1}), &reply).ok());
  auto it = context.GetServerTrailingMetadata().find("x-request-id");
  ASSERT_NE(it, context.GetServerTrailingMetadata().end());
  EXPECT_EQ(std::string(it->second.data(), it->second.size()), "mine-42");
}

TEST(InferenceTest, RequestMemoryAboveTheLimitIsRefusedWithTheNumbers) {
  ServerOptions options;
  options.memory_limit = 9 << 20;
  options.max_chunk_bytes = 1 << 20;
  TestServer test(options);
  test.Upload("m", ScaleModel(std::vector<float>(1 << 20, 2)));
  const grpc::Status status = test.Infer(FloatRequest("m", std::vector<float>(1 << 20)));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--memory_limit"));
  EXPECT_EQ(test.server->core().ledger().used(HeldKind::kRequests), 0);
}

}  // namespace
}  // namespace athanor
