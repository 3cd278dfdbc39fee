// Test fixture: a server with a language model "m" whose engine is scripted
// (server/calls/scripted_model_testing.h).
#ifndef ATHANOR_SERVER_RPC_GENERATE_GENERATE_TESTING_H_
#define ATHANOR_SERVER_RPC_GENERATE_GENERATE_TESTING_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/athanor/v1/generate.grpc.pb.h"
#include "server/calls/scripted_model_testing.h"
#include "server/testing/testing.h"

namespace athanor {

class GenerateTest : public ::testing::Test {
 protected:
  static constexpr int32_t kVocabulary = kTestVocabulary;

  // Starts the server, with the model in it.
  void Begin(ServerOptions options = {}, EngineOptions engine = {}) {
    test_ = std::make_unique<TestServer>(std::move(options));
    stub_ = v1::GenerateService::NewStub(test_->channel);
    engine.vocabulary = kVocabulary;
    Add("m", std::move(engine));
  }

  // Adds a model; `change` may take its text away. Waits until it has a plan, unless told not to.
  void Add(const std::string& name, EngineOptions options,
           const std::function<void(LanguageModel*)>& change = nullptr, bool wait = true) {
    v1::UploadModelResponse reply;
    ASSERT_TRUE(test_->Send(UploadMessages(name, ScaleModel({1})), &reply).ok());
    if (wait) {
      EXPECT_EQ(test_->WaitForJob(reply.compile_job_id()).phase(), v1::CompileJob::DONE);
    }
    const std::shared_ptr<LanguageModel> model = ScriptedModel(std::move(options), &engine_);
    if (change) change(model.get());
    const auto version =
        test_->server->core().registry().versions().Find(name, reply.version()).value();
    version->SetLanguageModel(model);
  }

  static v1::GenerateRequest TextRequest(const std::string& text) {
    v1::GenerateRequest request;
    request.set_model("m");
    request.set_text(text);
    return request;
  }
  static v1::GenerateRequest ChatRequest(const std::string& content) {
    v1::GenerateRequest request;
    request.set_model("m");
    v1::ChatMessage* message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content(content);
    return request;
  }

  struct Answer {
    std::vector<v1::GenerateResponse> messages;
    grpc::Status status;
    std::string text() const {
      std::string text;
      for (const v1::GenerateResponse& message : messages) text += message.text();
      return text;
    }
  };
  // Reads a stream to its end.
  static Answer ReadAll(grpc::ClientReader<v1::GenerateResponse>* reader) {
    Answer answer;
    for (v1::GenerateResponse message; reader->Read(&message);) answer.messages.push_back(message);
    answer.status = reader->Finish();
    return answer;
  }
  Answer Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    return ReadAll(stub_->Generate(&context, request).get());
  }
  // Returns what a sequence of the request begins with; the sequence ends at once.
  GenerateInput InputOf(const v1::GenerateRequest& request) {
    engine_->AtStart([](const ScriptedEngine::Sequence& sequence) {
      EXPECT_TRUE(sequence.outbox->Put(LastEvent(Finish::kLength, 0)));
      sequence.outbox->Close(absl::OkStatus());
    });
    const size_t index = engine_->started();
    const Answer answer = Generate(request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    return answer.status.ok() ? engine_->Await(index).input : GenerateInput();
  }

  std::unique_ptr<TestServer> test_;
  std::unique_ptr<v1::GenerateService::Stub> stub_;
  ScriptedEngine* engine_ = nullptr;  // of the model that was added last
};

}  // namespace athanor

#endif  // ATHANOR_SERVER_RPC_GENERATE_GENERATE_TESTING_H_
