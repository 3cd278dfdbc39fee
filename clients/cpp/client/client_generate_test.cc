// Tests the client's calls of GenerateService against a service implemented here.
#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "clients/cpp/client/client.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/generate.grpc.pb.h"

namespace athanor::client {
namespace {

// Answers by the request's model: "endless" until the client leaves, "broken" with an error after a
// piece, "unended" without `finish`, any other with two pieces and the end.
class Service final : public v1::GenerateService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    ++calls;
    v1::GenerateResponse message;
    message.set_text("one ");
    message.add_tokens(1);
    writer->Write(message);
    if (request->model() == "broken") return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
    if (request->model() == "unended") return grpc::Status::OK;
    while (request->model() == "endless" && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(2));
    }
    if (context->IsCancelled()) ++left;
    message.set_text(request->text());
    message.set_tokens(0, 2);
    writer->Write(message);
    message.Clear();
    message.set_finish(v1::FINISH_LENGTH);
    message.mutable_usage()->set_generated_tokens(2);
    writer->Write(message);
    return grpc::Status::OK;
  }
  grpc::Status Tokenize(grpc::ServerContext* context, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    if (++tokenized <= unavailable) return {grpc::StatusCode::UNAVAILABLE, "draining"};
    const auto sent = context->client_metadata().equal_range("authorization");
    for (auto it = sent.first; it != sent.second; ++it) {
      authorization += std::string(it->second.data(), it->second.size()) + ";";
    }
    for (char c : request->text()) response->add_ids(c);
    return grpc::Status::OK;
  }
  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    for (int32_t id : request->ids()) response->mutable_text()->push_back(static_cast<char>(id));
    return grpc::Status::OK;
  }
  grpc::Status RenderChat(grpc::ServerContext*, const v1::RenderChatRequest* request,
                          v1::RenderChatResponse* response) override {
    response->set_text("<" + request->chat().messages(0).content() + ">");
    return grpc::Status::OK;
  }
  grpc::Status GetEngine(grpc::ServerContext*, const v1::GetEngineRequest* request,
                         v1::EngineStatus* response) override {
    response->set_model(request->model());
    response->set_version(request->version());
    return grpc::Status::OK;
  }

  std::atomic<int> calls = 0, left = 0, tokenized = 0, unavailable = 0;
  std::string authorization;  // what Tokenize was called with, one call at a time
};

class ClientGenerateTest : public testing::Test {
 protected:
  ClientGenerateTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    client_ = std::make_unique<Client>(address_);
  }
  ~ClientGenerateTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  // Returns the text that came, then what Generate returned.
  absl::StatusOr<v1::GenerateResponse> Generate(const std::string& model,
                                                const CallOptions& options = {}) {
    v1::GenerateRequest request;
    request.set_model(model);
    request.set_text("two");
    text_.clear();
    return client_->Generate(
        request, [&](const v1::GenerateResponse& piece) { return text_ += piece.text(), true; },
        options);
  }

  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  std::string address_, text_;
};

TEST_F(ClientGenerateTest, PiecesComeAndTheEndIsReturned) {
  const auto last = Generate("m");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(text_, "one two");
  EXPECT_EQ(last->finish(), v1::FINISH_LENGTH);
  EXPECT_EQ(last->usage().generated_tokens(), 2);
}

TEST_F(ClientGenerateTest, ErrorsAreTheServersAndNothingIsTriedAgain) {
  const auto last = Generate("broken");
  EXPECT_EQ(last.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(last.status().message(), "full");
  EXPECT_EQ(text_, "one ");
  EXPECT_EQ(Generate("unended").status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(service_.calls, 2);
}

TEST_F(ClientGenerateTest, LeavingEndsTheCall) {
  v1::GenerateRequest request;
  request.set_model("endless");
  const auto last = client_->Generate(request, [](const v1::GenerateResponse&) { return false; });
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->text(), "one ");
  EXPECT_EQ(last->finish(), v1::FINISH_UNSPECIFIED);
  while (service_.left == 0) absl::SleepFor(absl::Milliseconds(1));
}

TEST_F(ClientGenerateTest, DeadlineAndCancellationHold) {
  CallOptions options;
  options.timeout = absl::Milliseconds(50);
  EXPECT_EQ(Generate("endless", options).status().code(), absl::StatusCode::kDeadlineExceeded);
  Cancellation cancellation;
  options = {absl::InfiniteDuration(), &cancellation};
  std::thread canceller([&] {
    while (service_.calls < 2) absl::SleepFor(absl::Milliseconds(1));
    cancellation.Cancel();
  });
  EXPECT_EQ(Generate("endless", options).status().code(), absl::StatusCode::kCancelled);
  canceller.join();
  while (service_.left < 2) absl::SleepFor(absl::Milliseconds(1));
}

TEST_F(ClientGenerateTest, OtherCallsAreTriedAgainWhileTheServerIsAway) {
  service_.unavailable = 2;
  v1::TokenizeRequest text;
  text.set_text("ab");
  const auto tokens = client_->Tokenize(text);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(service_.tokenized, 3);
  v1::DetokenizeRequest ids;
  *ids.mutable_ids() = tokens->ids();
  EXPECT_EQ(client_->Detokenize(ids)->text(), "ab");
  v1::RenderChatRequest chat;
  chat.mutable_chat()->add_messages()->set_content("Hi");
  EXPECT_EQ(client_->RenderChat(chat)->text(), "<Hi>");
  EXPECT_EQ(client_->GetEngine("m", "2")->version(), "2");
}

TEST_F(ClientGenerateTest, ATokenGoesWithEachCallOfItsClientOnly) {
  v1::TokenizeRequest text;
  ASSERT_TRUE(client_->Tokenize(text).ok());
  EXPECT_EQ(service_.authorization, "");
  ClientOptions options;
  options.token = "secret-12";
  Client with(address_, options);
  ASSERT_TRUE(with.Tokenize(text).ok());
  EXPECT_EQ(service_.authorization, "Bearer secret-12;");
  ASSERT_TRUE(with.Tokenize(text).ok());
  EXPECT_EQ(service_.authorization, "Bearer secret-12;Bearer secret-12;");
}

}  // namespace
}  // namespace athanor::client
