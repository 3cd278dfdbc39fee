// Calls whose callers may not make them are refused before their messages are read.
#include "server/rpc/late_reads.h"

#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/sync_stream.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/identities.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Bytes = grpc::ByteBuffer;
using Code = grpc::StatusCode;

constexpr char kModelInfer[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr char kGenerate[] = "/athanor.v1.GenerateService/Generate";

class LateReadsTest : public testing::Test {
 protected:
  void SetUp() override {
    test_.Upload("m", ScaleModel({3}));
    test_.options.max_message_bytes = 1 << 20;
    test_.options.max_chunk_bytes = 1 << 20;
    test_.options.auth = FreshDirectory() + "/auth.conf";
    std::ofstream(test_.options.auth)
        << "[infer]\nroles = infer\nmodels = *\ntoken = " << TokenDigestText("infer-token")
        << "\n[watch]\nroles = monitor\ntoken = " << TokenDigestText("watch-token") << "\n";
    test_.Restart();
  }
  static void Show(const std::string& token, grpc::ClientContext* context) {
    if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  }
  grpc::Status Send(const char* method, size_t bytes, const std::string& token) {
    grpc::ClientContext context;
    Show(token, &context);
    grpc::Slice slice(std::string(bytes, '\xff'));
    Bytes request(&slice, 1), reply;
    grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC);
    return grpc::internal::BlockingUnaryCall<Bytes, Bytes>(test_.channel.get(), rpc, &context,
                                                           request, &reply);
  }
  // Begins a call and sends nothing yet.
  std::unique_ptr<grpc::ClientReaderWriter<Bytes, Bytes>> Open(grpc::ClientContext* context) {
    const grpc::internal::RpcMethod rpc(kModelInfer, grpc::internal::RpcMethod::BIDI_STREAMING);
    return std::unique_ptr<grpc::ClientReaderWriter<Bytes, Bytes>>(
        grpc::internal::ClientReaderWriterFactory<Bytes, Bytes>::Create(test_.channel.get(), rpc,
                                                                        context));
  }

  TestServer test_;
};

// Whoever may call hears that the message is too long, which only its reader knows.
TEST_F(LateReadsTest, RefusesBeforeItReads) {
  for (const char* method : {kModelInfer, kGenerate}) {
    for (const size_t bytes : {size_t{1}, size_t{8} << 20}) {
      EXPECT_EQ(Send(method, bytes, "").error_code(), Code::UNAUTHENTICATED);
      EXPECT_EQ(Send(method, bytes, "wrong").error_code(), Code::UNAUTHENTICATED);
      const grpc::Status denied = Send(method, bytes, "watch-token");
      EXPECT_EQ(denied.error_code(), Code::PERMISSION_DENIED);
      EXPECT_THAT(denied.error_message(), HasSubstr("watch has the roles monitor"));
    }
    EXPECT_EQ(Send(method, 1, "infer-token").error_code(), Code::INVALID_ARGUMENT);
    EXPECT_EQ(Send(method, size_t{8} << 20, "infer-token").error_code(), Code::RESOURCE_EXHAUSTED);
  }
}

TEST_F(LateReadsTest, AnswersAsEver) {
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        grpc::ClientContext context;
        Show("infer-token", &context);
        inference::ModelInferResponse reply;
        const grpc::Status status =
            test_.inference_stub->ModelInfer(&context, FloatRequest("m", {2}), &reply);
        EXPECT_TRUE(status.ok()) << status.error_message();
        ASSERT_EQ(reply.raw_output_contents_size(), 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// A stranger is refused though it sends nothing; who may call and sends nothing is told.
TEST_F(LateReadsTest, CallsWithoutAMessage) {
  {
    grpc::ClientContext context;
    Show("wrong", &context);
    EXPECT_EQ(Open(&context)->Finish().error_code(), Code::UNAUTHENTICATED);
  }
  {
    grpc::ClientContext context;
    Show("infer-token", &context);
    const auto call = Open(&context);
    call->WritesDone();
    const grpc::Status status = call->Finish();
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("the call has no message"));
  }
}

// Leaves calls that wait for their message; the server ends as soon as ever.
TEST_F(LateReadsTest, WhoLeavesBeforeItsMessageIsForgotten) {
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    Show("infer-token", &context);
    const auto call = Open(&context);
    context.TryCancel();
    EXPECT_EQ(call->Finish().error_code(), Code::CANCELLED);
  }
  grpc::ClientContext waits;
  Show("infer-token", &waits);
  const auto call = Open(&waits);
  test_.server->Drain();
  EXPECT_FALSE(call->Finish().ok());
}

}  // namespace
}  // namespace athanor
