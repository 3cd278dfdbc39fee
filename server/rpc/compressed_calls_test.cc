// Tests calls with compressed messages: the answers are the same, and every method refuses those
// that would take more memory than the server may use.
#include <grpcpp/generic/generic_stub.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/health/health.pb.h"
#include "server/memory/memory_return.h"
#include "server/rpc/compressed_testing.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
// Allowance for the clients' messages, which are in this process too, and for bytes received by
// gRPC. A server that did not limit inflating would use 2 GiB.
constexpr int64_t kClients = 128 * kMiB;
constexpr grpc_compression_algorithm kAlgorithms[] = {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE};

// Returns "/inference.GRPCInferenceService/ModelInfer" and all other methods.
std::vector<std::string> Methods() {
  std::vector<std::string> methods;
  for (const char* name :
       {"inference.GRPCInferenceService", "athanor.v1.ModelService", "athanor.v1.CompileService",
        "athanor.v1.CacheService", "athanor.v1.GenerateService", "grpc.health.v1.Health"}) {
    const auto* service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    EXPECT_NE(service, nullptr) << name;
    for (int i = 0; service != nullptr && i < service->method_count(); ++i) {
      methods.push_back(absl::StrCat("/", name, "/", service->method(i)->name()));
    }
  }
  return methods;
}

// Returns the peak memory of this process since the last call.
int64_t TakePeakBytes() {
  int64_t peak = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) peak = std::stoll(line.substr(6)) << 10;
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return peak;
}

class CompressedCallsTest : public testing::Test {
 protected:
  CompressedCallsTest() : test_(Options()), stub_(test_.channel) {}
  ~CompressedCallsTest() override {
    while (test_.server->core().active_calls() > 0) std::this_thread::yield();
    EXPECT_EQ(test_.server->core().ledger().used(HeldKind::kRequests), 0);
  }

  static ServerOptions Options() {
    ServerOptions options;
    options.memory_limit = 32 * kMiB;
    options.cache = FreshDirectory() + "/cache.db";
    return options;
  }

  // Sends one message, already compressed, to any method; returns the status of the call.
  grpc::Status Send(const std::string& method, const std::string& bytes,
                    grpc_compression_algorithm how) {
    grpc::ClientContext context;
    context.set_compression_algorithm(how);
    // Ends ModelStreamInfer with the first error, instead of an answer that says it.
    context.AddMetadata("triton_grpc_error", "true");
    grpc::CompletionQueue queue;
    void* tag = nullptr;
    bool ok = false;
    auto call = stub_.PrepareCall(&context, method, &queue);
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    call->WriteLast(CompressedBuffer(bytes, how), grpc::WriteOptions(), nullptr);
    queue.Next(&tag, &ok);
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    queue.Shutdown();
    return status;
  }

  TestServer test_;
  grpc::GenericStub stub_;
};

TEST_F(CompressedCallsTest, ABombIsRefusedByEveryMethodWithinTheLimit) {
  const std::string gzip = GzipBomb();
  const std::string deflate = Deflated(std::string(kMiB, '\0'), 2048, false);
  (void)Send(Methods()[0], gzip, GRPC_COMPRESS_GZIP);
  TakePeakBytes();
  const int64_t before = ResidentBytes();
  for (const std::string& method : Methods()) {
    for (const bool zlib : {false, true}) {
      const grpc::Status status =
          Send(method, zlib ? deflate : gzip, zlib ? GRPC_COMPRESS_DEFLATE : GRPC_COMPRESS_GZIP);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
          << method << ": " << status.error_message();
      EXPECT_THAT(status.error_message(),
                  AnyOf(HasSubstr("--memory_limit"), HasSubstr("inflates to more than")))
          << method;
      const int64_t peak = TakePeakBytes() - before;
      EXPECT_LT(peak, test_.options.memory_limit + kClients) << method;
    }
  }
  while (test_.server->core().active_calls() > 0) std::this_thread::yield();
  EXPECT_LT(ResidentBytes() - before, kClients);  // inflated memory is returned at once
}

TEST_F(CompressedCallsTest, BombsBesideEachOtherShareTheLimit) {
  const std::string bomb = GzipBomb();
  (void)Send(Methods()[0], bomb, GRPC_COMPRESS_GZIP);
  TakePeakBytes();
  const int64_t before = ResidentBytes();
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      const char* method = i % 2 == 0 ? "/athanor.v1.ModelService/UploadModel"
                                      : "/inference.GRPCInferenceService/ModelInfer";
      EXPECT_EQ(Send(method, bomb, GRPC_COMPRESS_GZIP).error_code(),
                grpc::StatusCode::RESOURCE_EXHAUSTED);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_LT(TakePeakBytes() - before, test_.options.memory_limit + kClients);
}

TEST_F(CompressedCallsTest, WhatDoesNotInflateIsInvalid) {
  for (const std::string& method : Methods()) {
    const grpc::Status status = Send(method, "no stream at all", GRPC_COMPRESS_GZIP);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << method << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("cannot be inflated")) << method;
  }
}

TEST_F(CompressedCallsTest, AnUploadAndARequestAreServed) {
  for (const grpc_compression_algorithm how : kAlgorithms) {
    const std::string name = absl::StrCat("m", static_cast<int>(how));
    grpc::ClientContext context;
    context.set_compression_algorithm(how);
    v1::UploadModelResponse uploaded;
    auto writer = test_.models->UploadModel(&context, &uploaded);
    const std::vector<float> weights(10'000, 3);
    for (const auto& message : UploadMessages(name, ScaleModel(weights), 8 << 10)) {
      writer->Write(message);
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
    test_.WaitForJob(uploaded.compile_job_id());

    grpc::ClientContext asking, plain;
    asking.set_compression_algorithm(how);
    const inference::ModelInferRequest request = FloatRequest(name, std::vector<float>(10'000, 2));
    inference::ModelInferResponse reply, expected;
    ASSERT_TRUE(test_.inference_stub->ModelInfer(&asking, request, &reply).ok());
    ASSERT_TRUE(test_.inference_stub->ModelInfer(&plain, request, &expected).ok());
    EXPECT_EQ(reply.raw_output_contents(0), expected.raw_output_contents(0));
  }
}

// A message too large to be inflated on a thread of gRPC.
TEST_F(CompressedCallsTest, ALongOneIsServed) {
  test_.Upload("m", ScaleModel({3}));
  inference::ModelInferRequest request = FloatRequest("m", {2});
  std::string id;
  for (int i = 0; i < 200'000; ++i) absl::StrAppend(&id, i * 7919 % 1'000'003);
  request.set_id(id);
  ASSERT_GT(id.size(), size_t{1} << 20);
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  inference::ModelInferResponse reply;
  const grpc::Status status = test_.inference_stub->ModelInfer(&context, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.id(), id);
}

// Names a model that does not exist, in a message large enough to be compressed.
TEST_F(CompressedCallsTest, AnAnswerIsTheSame) {
  const std::string name(500, 'm');
  for (const grpc_compression_algorithm how : kAlgorithms) {
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(name);
    const grpc::Status health =
        Send("/grpc.health.v1.Health/Check",
             Deflated(request.SerializeAsString(), 1, how == GRPC_COMPRESS_GZIP), how);
    EXPECT_EQ(health.error_code(), grpc::StatusCode::NOT_FOUND) << health.error_message();
    v1::GetModelRequest get;
    get.set_name(name);
    const grpc::Status model =
        Send("/athanor.v1.ModelService/GetModel",
             Deflated(get.SerializeAsString(), 1, how == GRPC_COMPRESS_GZIP), how);
    EXPECT_EQ(model.error_code(), grpc::StatusCode::NOT_FOUND) << model.error_message();
    EXPECT_THAT(model.error_message(), HasSubstr("mmmmmmmm"));
  }
}

}  // namespace
}  // namespace athanor
