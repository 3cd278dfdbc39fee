// Tests calls of every kind that are cancelled at any moment: each ends once and leaks nothing.
#include <functional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/health/health.grpc.pb.h"
#include "server/testing/testing.h"

namespace athanor {
namespace {

class CancelledCallsTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.cache = FreshDirectory() + "/cache.db";
    test_ = std::make_unique<TestServer>(options);
    test_->Upload("m", ScaleModel({3}));
  }
  // Once all cancelled calls have ended, the server must still work.
  void TearDown() override {
    while (test_->server->core().active_calls() > 0) std::this_thread::yield();
    EXPECT_EQ(test_->server->core().uploads(), 0);
    EXPECT_THAT(test_->Infer("m", {2}), testing::ElementsAre(6));
    EXPECT_EQ(test_->server->core().ledger().used(HeldKind::kUploads), 0);
  }

  // Runs each call concurrently with its cancellation.
  void Repeat(const std::function<void(grpc::ClientContext*)>& call) {
    for (int i = 0; i < 300; ++i) {
      grpc::ClientContext context;
      std::thread cancel([&] { context.TryCancel(); });
      call(&context);
      cancel.join();
    }
  }
  void RepeatInfer(const std::string& model) {
    Repeat([&](grpc::ClientContext* context) {
      inference::ModelInferResponse reply;
      test_->inference_stub->ModelInfer(context, FloatRequest(model, {2}), &reply);
    });
  }

  std::unique_ptr<TestServer> test_;
};

TEST_F(CancelledCallsTest, Infer) {
  RepeatInfer("m");
  RepeatInfer("none");
}

TEST_F(CancelledCallsTest, InferBeforeThePlan) {
  test_->control->HoldCompiles();
  ASSERT_TRUE(test_->Send(UploadMessages("held", ScaleModel({1, 2}))).ok());
  RepeatInfer("held");
  test_->control->ReleaseCompiles();
}

TEST_F(CancelledCallsTest, Watch) {
  test_->control->HoldCompiles();
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test_->Send(UploadMessages("held", ScaleModel({1, 2})), &uploaded).ok());
  for (const std::string& id : {uploaded.compile_job_id(), std::string("job-none")}) {
    Repeat([&](grpc::ClientContext* context) {
      v1::WatchCompileJobRequest request;
      request.set_id(id);
      auto reader = test_->compile->WatchCompileJob(context, request);
      for (v1::CompileJob job; reader->Read(&job);) continue;
      reader->Finish();
    });
  }
  test_->control->ReleaseCompiles();
}

TEST_F(CancelledCallsTest, WatchHealth) {
  const auto stub = grpc::health::v1::Health::NewStub(test_->channel);
  for (const std::string& name : {std::string("m"), std::string(10'000, 'n')}) {
    Repeat([&](grpc::ClientContext* context) {
      grpc::health::v1::HealthCheckRequest request;
      request.set_service(name);
      auto reader = stub->Watch(context, request);
      for (grpc::health::v1::HealthCheckResponse reply; reader->Read(&reply);) continue;
      reader->Finish();
    });
  }
}

TEST_F(CancelledCallsTest, Upload) {
  std::vector<v1::UploadModelRequest> messages = UploadMessages("n", ScaleModel({4, 5}));
  for (const bool wrong : {false, true}) {
    if (wrong) messages[0].mutable_header()->set_search_budget("soon");
    Repeat([&](grpc::ClientContext* context) {
      v1::UploadModelResponse reply;
      auto writer = test_->models->UploadModel(context, &reply);
      for (const auto& message : messages) {
        if (!writer->Write(message)) break;
      }
      writer->WritesDone();
      writer->Finish();
    });
  }
}

TEST_F(CancelledCallsTest, ExportAndImport) {
  Repeat([&](grpc::ClientContext* context) {
    auto reader = test_->cache_stub->Export(context, {});
    for (v1::CacheBundleChunk chunk; reader->Read(&chunk);) continue;
    reader->Finish();
  });
  Repeat([&](grpc::ClientContext* context) {
    v1::ImportCacheReply reply;
    auto writer = test_->cache_stub->Import(context, &reply);
    writer->Write({});
    writer->WritesDone();
    writer->Finish();
  });
}

TEST_F(CancelledCallsTest, CancelOfAJob) {
  test_->control->HoldCompiles();
  v1::UploadModelResponse uploaded;
  ASSERT_TRUE(test_->Send(UploadMessages("held", ScaleModel({1, 2})), &uploaded).ok());
  for (const std::string& id : {std::string("job-none"), uploaded.compile_job_id()}) {
    Repeat([&](grpc::ClientContext* context) {
      v1::CancelCompileJobRequest request;
      request.set_id(id);
      v1::CompileJob job;
      test_->compile->CancelCompileJob(context, request, &job);
    });
  }
  test_->control->ReleaseCompiles();
}

}  // namespace
}  // namespace athanor
