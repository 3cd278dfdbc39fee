// Tests the client against services implemented here, so that the test chooses every answer.
#include "clients/cpp/client/client.h"

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "clients/cpp/client/bundle.h"
#include "deploy/bazel/libs/possession.h"
#include "deploy/bazel/libs/sha256.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/compile.grpc.pb.h"
#include "proto/athanor/v1/model.grpc.pb.h"
#include "proto/inference/open_inference_grpc.grpc.pb.h"

namespace athanor::client {
namespace {

class Models final : public v1::ModelService::Service {
 public:
  grpc::Status MissingTensors(grpc::ServerContext*, const v1::MissingTensorsRequest* request,
                              v1::MissingTensorsResponse* response) override {
    if (request->nonce().empty()) {
      *response->mutable_hashes() = request->hashes();
      response->set_nonce(nonce);
    }
    if (request->nonce() != nonce) return grpc::Status::OK;
    response->clear_hashes();
    for (const std::string& hash : request->hashes()) {
      if (hash != Sha256Of("held")) response->add_hashes(hash);
    }
    for (const v1::TensorProof& proof : request->proofs()) {
      if (proof.hash() != Sha256Of("held")) continue;
      EXPECT_EQ(proof.proof(), PossessionProof(nonce, proof.hash(), SealOf("held")));
    }
    EXPECT_EQ(request->proofs_size(), nonce.empty() ? 0 : request->hashes_size());
    return grpc::Status::OK;
  }
  grpc::Status UploadModel(grpc::ServerContext*, grpc::ServerReader<v1::UploadModelRequest>* reader,
                           v1::UploadModelResponse* response) override {
    v1::UploadModelRequest message;
    received.clear();
    ++uploads;
    while (reader->Read(&message)) {
      if (message.has_header()) header = message.header();
      if (message.has_chunk()) received += message.chunk().data();
      if (message.has_commit()) response->set_version("1");
    }
    if (uploads <= forgotten) return {grpc::StatusCode::FAILED_PRECONDITION, "neither"};
    return response->version().empty() ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "cut off")
                                       : grpc::Status::OK;
  }
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest* request,
                        v1::Model* response) override {
    if (++gets <= unavailable) return {grpc::StatusCode::UNAVAILABLE, "draining"};
    if (request->name() == "none") return {grpc::StatusCode::NOT_FOUND, "no model \"none\""};
    response->set_name(request->name());
    return grpc::Status::OK;
  }
  grpc::Status DeleteModel(grpc::ServerContext*, const v1::DeleteModelRequest*,
                           v1::DeleteModelResponse*) override {
    ++deletes;
    return {grpc::StatusCode::UNAVAILABLE, "draining"};
  }

  std::string nonce = std::string(32, 'n');  // empty: the server wants no proofs
  int forgotten = 0;                         // number of uploads to answer with "tensor missing"
  int uploads = 0;
  v1::UploadHeader header;
  std::string received;
  std::atomic<int> gets = 0, deletes = 0, unavailable = 0;
};

class Jobs final : public v1::CompileService::Service {
 public:
  grpc::Status WatchCompileJob(grpc::ServerContext* context, const v1::WatchCompileJobRequest*,
                               grpc::ServerWriter<v1::CompileJob>* writer) override {
    v1::CompileJob job;
    for (int done = 0; done < 3; ++done) {
      job.set_kernels_done(done);
      writer->Write(job);
    }
    while (endless && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(2));
    job.set_phase(v1::CompileJob::DONE);
    writer->Write(job);
    return grpc::Status::OK;
  }
  std::atomic<bool> endless = false;
};

class Inference final : public inference::GRPCInferenceService::Service {
 public:
  grpc::Status ModelInfer(grpc::ServerContext* context, const inference::ModelInferRequest* request,
                          inference::ModelInferResponse* response) override {
    ++calls;
    while (request->model_name() == "slow" && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(2));
    }
    for (int i = 0; i < request->inputs_size(); ++i) {
      auto* output = response->add_outputs();
      output->set_name(request->inputs(i).name());
      output->set_datatype(request->inputs(i).datatype());
      *output->mutable_shape() = request->inputs(i).shape();
      std::string bytes = request->raw_input_contents(i);
      if (request->model_name() == "short") bytes.pop_back();
      response->add_raw_output_contents(bytes);
    }
    (*response->mutable_parameters())["plan_id"].set_string_param("p-1");
    (*response->mutable_parameters())["exec_us"].set_int64_param(7);
    (*response->mutable_parameters())["batch_us"].set_int64_param(9);
    (*response->mutable_parameters())["batch_rows"].set_int64_param(16);
    if (request->model_name() == "down") return {grpc::StatusCode::UNAVAILABLE, "draining"};
    return grpc::Status::OK;
  }
  grpc::Status ModelMetadata(grpc::ServerContext* context,
                             const inference::ModelMetadataRequest* request,
                             inference::ModelMetadataResponse* response) override {
    response->set_name(request->name());
    response->add_versions(request->version());
    response->set_platform(context->peer());
    return grpc::Status::OK;
  }
  std::atomic<int> calls = 0;
};

class ClientTest : public testing::Test {
 protected:
  ClientTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&models_);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&inference_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    client_ = std::make_unique<Client>(address_);
  }
  ~ClientTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  Models models_;
  Jobs jobs_;
  Inference inference_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<Client> client_;
};

InferRequest Request(const std::string& model) {
  InferRequest request{model, ""};
  request.inputs["x"] = Tensor{"f32", {2}, std::string("\0\0\x80\x3f\0\0\0\x40", 8)};
  return request;
}

TEST_F(ClientTest, ReadsAreTriedAgainWhileTheServerIsAway) {
  models_.unavailable = 2;
  EXPECT_TRUE(client_->GetModel("m").ok());
  EXPECT_EQ(models_.gets, 3);
  models_.gets = 0;
  models_.unavailable = 100;
  EXPECT_EQ(client_->GetModel("m").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(models_.gets, 3);
}

TEST_F(ClientTest, WhatChangesOrExecutesIsTriedOnce) {
  EXPECT_EQ(client_->DeleteModel("m").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(models_.deletes, 1);
  EXPECT_EQ(client_->Infer(Request("down")).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(inference_.calls, 1);
}

TEST_F(ClientTest, ErrorsAreTheServers) {
  const absl::Status status = client_->GetModel("none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "no model \"none\"");
  EXPECT_EQ(models_.gets, 1);
}

// A request with two tensors, of which the server already holds "held".
UploadRequest RequestWith(absl::string_view other) {
  UploadRequest request{"m", "athanor", "graph", {}, "0", {}};
  request.batch_dim = "rows";
  request.device = "cuda:1";
  for (absl::string_view bytes : {absl::string_view("held"), other}) {
    request.tensors.push_back({Sha256Of(bytes), bytes});
  }
  return request;
}

TEST_F(ClientTest, UploadSendsOnlyWhatIsMissingInChunks) {
  const std::string large(3 * (1 << 20) + 5, 'x');
  const UploadRequest request = RequestWith(large);
  int64_t last = 0, calls = 0;
  auto stored = client_->Upload(request, {}, [&](int64_t bytes, int64_t total) {
    EXPECT_GT(bytes, last);
    EXPECT_EQ(total, static_cast<int64_t>(large.size()));
    last = bytes;
    ++calls;
  });
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(models_.received, large);
  EXPECT_EQ(calls, 13) << "of 256 KiB";
  EXPECT_EQ(models_.header.graph_sha256(), Sha256Of("graph"));
  EXPECT_EQ(models_.header.batch_dim(), "rows");
  EXPECT_EQ(models_.header.device(), "cuda:1");
  ASSERT_EQ(models_.header.tensors_size(), 1);
  EXPECT_EQ(models_.header.tensors(0).bytes(), static_cast<int64_t>(large.size()));
  EXPECT_EQ(models_.header.nonce(), models_.nonce);
  ASSERT_EQ(models_.header.proofs_size(), 1);
  EXPECT_EQ(models_.header.proofs(0).hash(), Sha256Of("held"));
  EXPECT_EQ(models_.header.proofs(0).proof(),
            PossessionProof(models_.nonce, Sha256Of("held"), SealOf("held")));
}

TEST_F(ClientTest, WhatTheServerHasForgottenIsSent) {
  models_.forgotten = 1;
  ASSERT_TRUE(client_->Upload(RequestWith("other")).ok());
  EXPECT_EQ(models_.uploads, 2);
  EXPECT_EQ(models_.received, "heldother");
  EXPECT_EQ(models_.header.proofs_size(), 0);
  models_.uploads = 0;
  models_.forgotten = 2;
  const absl::Status status = client_->Upload(RequestWith("other")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(models_.uploads, 2);
}

TEST_F(ClientTest, AServerThatWantsNoProofsGetsNone) {
  models_.nonce = "";
  UploadRequest request = RequestWith("other");
  request.tensors.push_back(request.tensors.back());
  ASSERT_TRUE(client_->Upload(request).ok());
  EXPECT_EQ(models_.received, "other");
  EXPECT_EQ(models_.header.proofs_size(), 0);
  EXPECT_EQ(models_.header.tensors_size(), 1);
}

TEST_F(ClientTest, InferCarriesTensorsAndTheRepliesParameters) {
  auto reply = client_->Infer(Request("m"));
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->outputs.size(), 1u);
  EXPECT_EQ(reply->outputs[0].second.bytes, Request("m").inputs["x"].bytes);
  EXPECT_EQ(reply->plan_id, "p-1");
  EXPECT_EQ(reply->exec_us, 7);
  EXPECT_EQ(reply->batch_us, 9);
  EXPECT_EQ(reply->batch_rows, 16);
}

TEST_F(ClientTest, BytesThatDoNotFitAreRefusedOnBothSides) {
  InferRequest request = Request("m");
  request.inputs["x"].bytes.pop_back();
  EXPECT_EQ(client_->Infer(request).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(inference_.calls, 0);
  EXPECT_EQ(client_->Infer(Request("short")).status().code(), absl::StatusCode::kInternal);
}

TEST_F(ClientTest, TheDeadlineHolds) {
  CallOptions options;
  options.timeout = absl::Milliseconds(50);
  EXPECT_EQ(client_->Infer(Request("slow"), options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, CancellationReachesRunningAndLaterCalls) {
  Cancellation cancellation;
  CallOptions options;
  options.cancellation = &cancellation;
  std::thread canceller([&] {
    while (inference_.calls == 0) absl::SleepFor(absl::Milliseconds(1));
    cancellation.Cancel();
  });
  EXPECT_EQ(client_->Infer(Request("slow"), options).status().code(), absl::StatusCode::kCancelled);
  canceller.join();
  EXPECT_EQ(client_->GetModel("m", "", options).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(client_->GetModel("m").ok());
}

// Each callback begins the next call; the test ends when all calls have.
TEST_F(ClientTest, AsyncCallsCallBackOnceAndMayBeginAnother) {
  const auto message = MakeInferRequest(Request("m"));
  ASSERT_TRUE(message.ok()) << message.status();
  inference::ModelInferResponse response;
  absl::Notification ended;
  int left = 5;
  std::function<void(absl::Status)> next = [&](absl::Status status) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(response.parameters().at("plan_id").string_param(), "p-1");
    response.Clear();
    if (--left == 0) return ended.Notify();
    client_->InferAsync(*message, &response, {}, next);
  };
  client_->InferAsync(*message, &response, {}, next);
  ended.WaitForNotification();
  EXPECT_EQ(inference_.calls, 5);
}

// The client may be destroyed once its last call has called back, even while gRPC's thread is still
// inside it.
TEST_F(ClientTest, AClientMayGoOnceItsCallsHaveCalledBack) {
  const auto message = MakeInferRequest(Request("m"));
  ClientOptions own;
  own.own_connection = true;
  for (int i = 0; i < 100; ++i) {
    auto client = std::make_unique<Client>(address_, own);
    inference::ModelInferResponse response;
    absl::Notification ended;
    client->InferAsync(*message, &response, {}, [&](absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      ended.Notify();
    });
    ended.WaitForNotification();
    client.reset();
  }
  EXPECT_EQ(inference_.calls, 100);
}

TEST_F(ClientTest, AsyncCallsHaveDeadlinesAndCancellation) {
  const auto message = MakeInferRequest(Request("slow"));
  Cancellation cancellation;
  for (CallOptions options : {CallOptions{absl::Milliseconds(50)},
                              CallOptions{absl::InfiniteDuration(), &cancellation}}) {
    inference::ModelInferResponse response;
    absl::Notification ended;
    absl::Status seen;
    inference_.calls = 0;
    client_->InferAsync(*message, &response, options, [&](absl::Status status) {
      seen = status;
      ended.Notify();
    });
    if (options.cancellation != nullptr) cancellation.Cancel();
    ended.WaitForNotification();
    EXPECT_EQ(seen.code(), options.cancellation == nullptr ? absl::StatusCode::kDeadlineExceeded
                                                           : absl::StatusCode::kCancelled);
  }
}

TEST_F(ClientTest, ClientsShareAConnectionUnlessTheyAskForTheirOwn) {
  ClientOptions own;
  own.own_connection = true;
  Client shared(address_), first(address_, own), second(address_, own);
  std::vector<std::string> peers;
  for (Client* client : {client_.get(), &shared, &first, &second}) {
    const auto metadata = client->ModelMetadata("m", "2");
    ASSERT_TRUE(metadata.ok()) << metadata.status();
    EXPECT_EQ(metadata->name(), "m");
    EXPECT_EQ(metadata->versions(0), "2");
    peers.push_back(metadata->platform());
  }
  EXPECT_EQ(peers[0], peers[1]);
  EXPECT_NE(peers[0], peers[2]);
  EXPECT_NE(peers[2], peers[3]);
}

TEST_F(ClientTest, WatchEndsWithTheJobOrWhenToldTo) {
  int seen = 0;
  auto last = client_->WatchCompileJob("j", [&](const v1::CompileJob&) { return ++seen, true; });
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(seen, 4);
  EXPECT_TRUE(IsFinished(*last));
  jobs_.endless = true;
  last = client_->WatchCompileJob("j",
                                  [](const v1::CompileJob& job) { return job.kernels_done() < 1; });
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->kernels_done(), 1);
}

}  // namespace
}  // namespace athanor::client
