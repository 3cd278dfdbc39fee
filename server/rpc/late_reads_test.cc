// Calls whose callers may not make them are refused before their messages are read.
#include "server/rpc/late_reads.h"

#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/sync_stream.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/access.h"
#include "server/access/identities.h"
#include "server/rpc/raw_methods.h"
#include "server/rpc/status.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using Bytes = grpc::ByteBuffer;
using Code = grpc::StatusCode;

constexpr char kModelInfer[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr char kGenerate[] = "/athanor.v1.GenerateService/Generate";

// Begins a call and sends nothing yet.
std::unique_ptr<grpc::ClientReaderWriter<Bytes, Bytes>> OpenCall(
    const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
  const grpc::internal::RpcMethod rpc(kModelInfer, grpc::internal::RpcMethod::BIDI_STREAMING);
  return std::unique_ptr<grpc::ClientReaderWriter<Bytes, Bytes>>(
      grpc::internal::ClientReaderWriterFactory<Bytes, Bytes>::Create(channel.get(), rpc, context));
}

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
    EXPECT_EQ(OpenCall(test_.channel, &context)->Finish().error_code(), Code::UNAUTHENTICATED);
  }
  {
    grpc::ClientContext context;
    Show("infer-token", &context);
    const auto call = OpenCall(test_.channel, &context);
    call->WritesDone();
    const grpc::Status status = call->Finish();
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("the call has no message"));
  }
}

// A method that tells who calls, as the judge of its header has found it.
class WhoService final
    : public RawMethods<inference::GRPCInferenceService::Service,
                        inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer> {
 public:
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context, const Bytes*,
                                       Bytes*) override {
    ++begun;
    const std::optional<Caller> caller = TakeJudgedCaller();
    const bool again = TakeJudgedCaller().has_value();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status(Code::ABORTED, again                ? "found again"
                                                : caller.has_value() ? caller->name()
                                                                     : "not found"));
    return reactor;
  }
  std::atomic<int> begun = 0;
};

class JudgedCallsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string file = FreshDirectory() + "/auth.conf";
    std::ofstream(file) << "[infer]\nroles = infer\nmodels = *\ntoken = "
                        << TokenDigestText("infer-token") << "\n";
    access_ = Access::Open(Access::Source::kIdentities, file).value();
    service_.JudgeHeaders(
        inference::GRPCInferenceService::service_full_name(),
        [this](const std::string&) -> JudgeHeader {
          return [this](grpc::CallbackServerContext&, Caller* caller) {
            ++judged_;
            return ToGrpc(access_->Find({Role::kInfer}, "it", "infer-token", nullptr, caller));
          };
        });
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    channel_ =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  }

  std::unique_ptr<Access> access_;
  std::atomic<int> judged_ = 0;
  WhoService service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(JudgedCallsTest, FindTheirCallerOnce) {
  for (int i = 1; i <= 3; ++i) {
    grpc::ClientContext context;
    inference::ModelInferResponse reply;
    const grpc::Status told = inference::GRPCInferenceService::NewStub(channel_)->ModelInfer(
        &context, FloatRequest("m", {1}), &reply);
    EXPECT_EQ(told.error_code(), Code::ABORTED);
    EXPECT_EQ(told.error_message(), "infer");
    EXPECT_EQ(judged_, i);
  }
}

// Time itself is what this is about.
TEST_F(JudgedCallsTest, ALateMessageHasItsCallerFoundAnew) {
  grpc::ClientContext context;
  const auto call = OpenCall(channel_, &context);
  while (judged_ < 1) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const grpc::Slice slice("x");
  call->WriteLast(Bytes(&slice, 1), grpc::WriteOptions());
  const grpc::Status told = call->Finish();
  EXPECT_EQ(told.error_code(), Code::ABORTED);
  EXPECT_EQ(told.error_message(), "not found");
}

// Ends the server without cancelling anything, which waits for every call that it still has.
TEST_F(JudgedCallsTest, WhoLeavesBeforeItsMessageIsForgotten) {
  constexpr int kCalls = 20;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<Bytes, Bytes>>> calls;
  for (int i = 0; i < kCalls; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    calls.push_back(OpenCall(channel_, contexts.back().get()));
  }
  while (judged_ < kCalls) std::this_thread::yield();
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& call : calls) EXPECT_EQ(call->Finish().error_code(), Code::CANCELLED);
  server_->Shutdown();
  server_->Wait();
  EXPECT_EQ(judged_, kCalls);
  EXPECT_EQ(service_.begun, 0);
}

}  // namespace
}  // namespace athanor
