// Tests Tokenize, Detokenize, RenderChat and GetEngine, through gRPC.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/generate/generate_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TextCallsTest : public GenerateTest {
 protected:
  void SetUp() override { Begin(); }

  grpc::Status Tokenize(const v1::TokenizeRequest& request, v1::TokenizeResponse* reply) {
    grpc::ClientContext context;
    return stub_->Tokenize(&context, request, reply);
  }
  grpc::Status Detokenize(const v1::DetokenizeRequest& request, v1::DetokenizeResponse* reply) {
    grpc::ClientContext context;
    return stub_->Detokenize(&context, request, reply);
  }
  grpc::Status RenderChat(const v1::RenderChatRequest& request, v1::RenderChatResponse* reply) {
    grpc::ClientContext context;
    return stub_->RenderChat(&context, request, reply);
  }
  grpc::Status GetEngine(const std::string& model, v1::EngineStatus* reply) {
    grpc::ClientContext context;
    v1::GetEngineRequest request;
    request.set_model(model);
    return stub_->GetEngine(&context, request, reply);
  }
  static v1::TokenizeRequest TextOf(const std::string& text) {
    v1::TokenizeRequest request;
    request.set_model("m");
    request.set_text(text);
    return request;
  }
  static v1::DetokenizeRequest IdsRequest(const std::vector<int32_t>& ids) {
    v1::DetokenizeRequest request;
    request.set_model("m");
    request.mutable_ids()->Add(ids.begin(), ids.end());
    return request;
  }
  void AddWithoutText() {
    Add("m", {.vocabulary = kVocabulary}, [](LanguageModel* model) {
      model->text = {.no_chat = absl::NotFoundError("it came without files of text")};
    });
  }
};

TEST_F(TextCallsTest, Tokenize) {
  v1::TokenizeResponse reply;
  ASSERT_TRUE(Tokenize(TextOf("hi"), &reply).ok());
  EXPECT_THAT(reply.ids(), ElementsAreArray(IdsOf("hi")));
  EXPECT_THAT(reply.texts(), ElementsAre("h", "i"));
  v1::TokenizeRequest request = TextOf("h<|end|>");
  request.set_add_begin(true);
  request.set_add_special(true);
  ASSERT_TRUE(Tokenize(request, &reply).ok());
  EXPECT_THAT(reply.ids(), ElementsAre(0, IdOf('h'), 1));
  EXPECT_THAT(reply.texts(), ElementsAre("<s>", "h", "<|end|>"));
  ASSERT_TRUE(Tokenize(TextOf(""), &reply).ok());
  EXPECT_THAT(reply.ids(), IsEmpty());
  ASSERT_TRUE(Tokenize(TextOf(std::string(2048, 'a')), &reply).ok());
  EXPECT_EQ(reply.ids_size(), 2048);
}

TEST_F(TextCallsTest, TokenizeRefuses) {
  v1::TokenizeResponse reply;
  grpc::Status status = Tokenize(TextOf(std::string(65'537, 'a')), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("text has 65537 bytes"));
  status = Tokenize(TextOf(std::string(2049, 'a')), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("text has 2049 tokens"));
  v1::TokenizeRequest request = TextOf("a");
  request.set_model("absent");
  EXPECT_EQ(Tokenize(request, &reply).error_code(), grpc::StatusCode::NOT_FOUND);
  AddWithoutText();
  status = Tokenize(TextOf("a"), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("has no tokenizer"));
}

TEST_F(TextCallsTest, Detokenize) {
  v1::DetokenizeResponse reply;
  v1::DetokenizeRequest request = IdsRequest({0, IdOf('h'), IdOf('i'), 1});
  ASSERT_TRUE(Detokenize(request, &reply).ok());
  EXPECT_EQ(reply.text(), "hi");
  request.set_special_in_text(true);
  ASSERT_TRUE(Detokenize(request, &reply).ok());
  EXPECT_EQ(reply.text(), "<s>hi<|end|>");
  ASSERT_TRUE(Detokenize(IdsRequest({}), &reply).ok());
  EXPECT_EQ(reply.text(), "");
}

TEST_F(TextCallsTest, DetokenizeRefuses) {
  v1::DetokenizeResponse reply;
  grpc::Status status = Detokenize(IdsRequest({5, 100}), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("ids[1] is 100"));
  status = Detokenize(IdsRequest(std::vector<int32_t>(2049, 5)), &reply);
  EXPECT_THAT(status.error_message(), HasSubstr("ids has 2049 tokens"));
  AddWithoutText();
  EXPECT_EQ(Detokenize(IdsRequest({5}), &reply).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(TextCallsTest, RenderChat) {
  v1::RenderChatRequest request;
  request.set_model("m");
  *request.mutable_chat() = ChatRequest("a<|end|>").chat();
  v1::RenderChatResponse reply;
  ASSERT_TRUE(RenderChat(request, &reply).ok());
  EXPECT_EQ(reply.text(), "<|user|>a<|end|><|end|><|assistant|>");
  ASSERT_EQ(reply.ids_size(), 11);
  EXPECT_EQ(reply.ids(0), 2);
  EXPECT_EQ(reply.ids(2), IdOf('<')) << "a user's text is text";
  EXPECT_EQ(reply.ids(9), 1);
}

TEST_F(TextCallsTest, RenderChatRefuses) {
  v1::RenderChatRequest request;
  request.set_model("m");
  v1::RenderChatResponse reply;
  grpc::Status status = RenderChat(request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("chat.messages is empty"));
  *request.mutable_chat() = ChatRequest("a").chat();
  request.mutable_chat()->set_variables_json("{\"forbidden\":1}");
  status = RenderChat(request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("not so"));
  AddWithoutText();
  status = RenderChat(request, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("it came without files of text"));
}

TEST_F(TextCallsTest, GetEngine) {
  engine_->SetView({.running = 1,
                    .waiting = 2,
                    .paused = 3,
                    .blocks = 4,
                    .free_blocks = 5,
                    .committed_bytes = 6,
                    .steps = 7,
                    .prompt_tokens = 8,
                    .generated_tokens = 9,
                    .plan_id = "p-1"});
  v1::EngineStatus reply;
  ASSERT_TRUE(GetEngine("m", &reply).ok());
  EXPECT_EQ(reply.model(), "m");
  EXPECT_EQ(reply.version(), "1");
  EXPECT_EQ(reply.family(), "llama");
  EXPECT_EQ(reply.vocabulary(), 100);
  EXPECT_EQ(reply.max_model_len(), 2048);
  EXPECT_EQ(reply.max_batched_tokens(), 512);
  EXPECT_EQ(reply.max_sequences(), 64);
  EXPECT_THAT(reply.end_tokens(), ElementsAre(1));
  EXPECT_EQ(reply.sampling().temperature(), 0.5f);
  EXPECT_EQ(reply.sampling().top_k(), 40);
  EXPECT_EQ(reply.sampling().top_p(), 1);
  EXPECT_FALSE(reply.sampling().has_seed());
  EXPECT_TRUE(reply.has_tokenizer());
  EXPECT_TRUE(reply.has_chat());
  EXPECT_EQ(reply.no_chat_reason(), "");
  EXPECT_EQ(reply.running(), 1);
  EXPECT_EQ(reply.waiting(), 2);
  EXPECT_EQ(reply.paused(), 3);
  EXPECT_EQ(reply.blocks(), 4);
  EXPECT_EQ(reply.free_blocks(), 5);
  EXPECT_EQ(reply.block_tokens(), 16);
  EXPECT_EQ(reply.kv_bytes(), 6);
  EXPECT_EQ(reply.token_kv_bytes(), 64);
  EXPECT_EQ(reply.steps(), 7);
  EXPECT_EQ(reply.prompt_tokens(), 8);
  EXPECT_EQ(reply.generated_tokens(), 9);
  EXPECT_EQ(reply.plan_id(), "p-1");
  AddWithoutText();
  ASSERT_TRUE(GetEngine("m", &reply).ok());
  EXPECT_EQ(reply.version(), "2");
  EXPECT_FALSE(reply.has_tokenizer());
  EXPECT_FALSE(reply.has_chat());
  EXPECT_EQ(reply.no_chat_reason(), "it came without files of text");
}

TEST_F(TextCallsTest, MetricsTellOfEngines) {
  engine_->SetView({.running = 3, .waiting = 7, .paused = 2, .blocks = 8, .free_blocks = 6});
  const std::string text = test_->server->core().metrics().Text();
  const std::string labels = "{model=\"m\",version=\"1\"} ";
  EXPECT_THAT(text, HasSubstr("athanor_num_requests_running" + labels + "5\n"));
  EXPECT_THAT(text, HasSubstr("athanor_num_requests_waiting" + labels + "7\n"));
  EXPECT_THAT(text, HasSubstr("athanor_kv_cache_usage_perc" + labels + "0.25\n"));
}

TEST_F(TextCallsTest, GetEngineRefuses) {
  v1::EngineStatus reply;
  EXPECT_EQ(GetEngine("absent", &reply).error_code(), grpc::StatusCode::NOT_FOUND);
  test_->Upload("scale", ScaleModel({1}));
  const grpc::Status status = GetEngine("scale", &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("Call ModelInfer"));
}

}  // namespace
}  // namespace athanor
