// Tests how Generate reads requests: what reaches the engine, and each way to be refused.
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/generate/reply.h"
#include "server/rpc/generate/generate_testing.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Request = v1::GenerateRequest;

class GenerateRefusalsTest : public GenerateTest {
 protected:
  void SetUp() override { Begin(); }

  void ExpectRefused(const Request& request, grpc::StatusCode code, const std::string& text) {
    const size_t before = engine_->started();
    const Answer answer = Generate(request);
    EXPECT_EQ(answer.status.error_code(), code) << text << ": " << answer.status.error_message();
    EXPECT_THAT(answer.status.error_message(), HasSubstr(text));
    EXPECT_THAT(answer.messages, IsEmpty());
    EXPECT_EQ(engine_->started(), before);
  }
  void ExpectInvalid(const Request& request, const std::string& text) {
    ExpectRefused(request, grpc::StatusCode::INVALID_ARGUMENT, text);
  }
  // Changes a right request; expects that the field is named.
  void ExpectWrong(const std::function<void(Request*)>& change, const std::string& text) {
    Request request = TextRequest("ab");
    change(&request);
    ExpectInvalid(request, text);
  }
};

TEST_F(GenerateRefusalsTest, TextBeginsAsTheTokenizerSays) {
  GenerateInput input = InputOf(TextRequest("a<|end|>"));
  std::vector<int32_t> ids = IdsOf("a<|end|>");
  ids.insert(ids.begin(), 0);
  EXPECT_THAT(input.sequence.prompt, ElementsAreArray(ids)) << "special tokens are text";
  EXPECT_TRUE(input.continues);
  Request request = TextRequest("a<|end|>");
  request.set_add_special(true);
  EXPECT_THAT(InputOf(request).sequence.prompt, ElementsAre(0, IdOf('a'), 1));
}

TEST_F(GenerateRefusalsTest, TokensGoAsTheyAre) {
  Request request;
  request.set_model("m");
  for (int32_t id : {99, 0, 5}) request.mutable_tokens()->add_ids(id);
  const GenerateInput input = InputOf(request);
  EXPECT_THAT(input.sequence.prompt, ElementsAre(99, 0, 5));
  EXPECT_TRUE(input.continues);
}

TEST_F(GenerateRefusalsTest, AChatsMarksAreSpecialAndItsUsersAreNot) {
  const GenerateInput input = InputOf(ChatRequest("a<|end|>"));
  std::vector<int32_t> ids = {2};
  for (int32_t id : IdsOf("a<|end|>")) ids.push_back(id);
  ids.insert(ids.end(), {1, 3});
  EXPECT_THAT(input.sequence.prompt, ElementsAreArray(ids));
  EXPECT_FALSE(input.continues);

  Request request = ChatRequest("a");
  v1::ChatMessage* begun = request.mutable_chat()->add_messages();
  begun->set_role("assistant");
  begun->set_content("so");
  request.mutable_chat()->set_continue_last(true);
  const GenerateInput continued = InputOf(request);
  EXPECT_THAT(continued.sequence.prompt, ElementsAre(2, IdOf('a'), 1, 3, IdOf('s'), IdOf('o')));
  EXPECT_TRUE(continued.continues);
}

TEST_F(GenerateRefusalsTest, DefaultsAreTheModels) {
  const GenerateInput input = InputOf(TextRequest("a"));
  EXPECT_EQ(input.sampling.temperature, 0.5f);
  EXPECT_EQ(input.sampling.top_k, 40);
  EXPECT_FALSE(input.sampling.logprobs.has_value());
  EXPECT_EQ(input.sequence.max_tokens, 512);
  EXPECT_EQ(input.sequence.min_tokens, 0);
  EXPECT_THAT(input.sequence.stop_tokens, ElementsAre(1));
  EXPECT_EQ(input.sequence.deadline, SequenceTime::max());
  EXPECT_EQ(input.sequence.priority, 100);
  EXPECT_THAT(input.sequence.client, HasSubstr("127.0.0.1:")) << "a connection is a client";
  EXPECT_FALSE(input.special_in_text);
  EXPECT_THAT(input.stop, IsEmpty());
}

TEST_F(GenerateRefusalsTest, WhatARequestSetsCounts) {
  Request request = TextRequest("a");
  request.set_max_tokens(7);
  request.set_min_tokens(7);
  request.set_ignore_eos(true);
  request.add_stop("x");
  request.add_stop_tokens(98);
  request.set_special_in_text(true);
  request.set_timeout_us(5'000'000);
  request.set_priority(7);
  request.set_cache_salt(std::string(1024, 's'));
  v1::Sampling* sampling = request.mutable_sampling();
  sampling->set_temperature(0);
  sampling->set_top_k(0);
  sampling->set_top_p(0.25);
  sampling->set_min_p(0.125);
  sampling->set_repetition_penalty(1.5);
  sampling->set_presence_penalty(-2);
  sampling->set_frequency_penalty(2);
  sampling->set_seed(0);
  (*sampling->mutable_bias())[9] = -100;
  (*sampling->mutable_bias())[3] = 1;
  sampling->set_logprobs(0);
  const auto before = std::chrono::steady_clock::now();
  const GenerateInput input = InputOf(request);
  EXPECT_EQ(input.sequence.max_tokens, 7);
  EXPECT_EQ(input.sequence.min_tokens, 7);
  EXPECT_EQ(input.sequence.priority, 7);
  EXPECT_EQ(input.cache_salt, std::string(1024, 's'));
  EXPECT_THAT(input.sequence.stop_tokens, ElementsAre(98));
  EXPECT_THAT(input.stop, ElementsAre("x"));
  EXPECT_TRUE(input.special_in_text);
  EXPECT_GE(input.sequence.deadline, before + std::chrono::seconds(5));
  EXPECT_LE(input.sequence.deadline, std::chrono::steady_clock::now() + std::chrono::seconds(5));
  EXPECT_EQ(input.sampling.temperature, 0);
  EXPECT_EQ(input.sampling.top_k, 0);
  EXPECT_EQ(input.sampling.top_p, 0.25f);
  EXPECT_EQ(input.sampling.min_p, 0.125f);
  EXPECT_EQ(input.sampling.repetition, 1.5f);
  EXPECT_EQ(input.sampling.presence, -2);
  EXPECT_EQ(input.sampling.frequency, 2);
  EXPECT_EQ(input.sampling.seed, 0u);
  EXPECT_EQ(input.sampling.logprobs, 0);
  EXPECT_THAT(input.sampling.bias, ElementsAre(std::pair(3, 1.0f), std::pair(9, -100.0f)));
}

TEST_F(GenerateRefusalsTest, ASilentSeedIsAnother) {
  std::set<uint64_t> seeds;
  for (int i = 0; i < 8; ++i) seeds.insert(InputOf(TextRequest("a")).sampling.seed);
  EXPECT_EQ(seeds.size(), 8u);
}

TEST_F(GenerateRefusalsTest, ModelsThatGenerateNothing) {
  Request request = TextRequest("a");
  request.set_model("absent");
  ExpectRefused(request, grpc::StatusCode::NOT_FOUND, "absent");
  request = TextRequest("a");
  request.set_version("9");
  ExpectRefused(request, grpc::StatusCode::NOT_FOUND, "9");
  test_->Upload("scale", ScaleModel({1}));
  request = TextRequest("a");
  request.set_model("scale");
  ExpectRefused(request, grpc::StatusCode::FAILED_PRECONDITION, "Call ModelInfer");
}

TEST_F(GenerateRefusalsTest, Prompts) {
  Request request;
  request.set_model("m");
  ExpectInvalid(request, "the request has no prompt; set text, tokens or chat");
  ExpectInvalid(TextRequest(""), "text is empty");
  // The tokenizer knows no such character, and leaves it out: <s> is left.
  EXPECT_THAT(InputOf(TextRequest("\xC3\xA4")).sequence.prompt, ElementsAre(0));
  request.mutable_tokens();
  ExpectInvalid(request, "tokens.ids is empty");
  request.mutable_tokens()->add_ids(5);
  request.mutable_tokens()->add_ids(100);
  ExpectInvalid(request, "tokens.ids[1] is 100; the model's tokens are 0 to 99");
  request.mutable_tokens()->set_ids(1, -1);
  ExpectInvalid(request, "tokens.ids[1] is -1");
  request.mutable_tokens()->set_ids(1, 5);
  request.set_add_special(true);
  ExpectInvalid(request, "add_special");
}

TEST_F(GenerateRefusalsTest, HugePromptsCostLittle) {
  // At most 2,048 tokens of 32 bytes.
  const auto begin = std::chrono::steady_clock::now();
  ExpectInvalid(TextRequest(std::string(10'000'000, 'a')), "text has 10000000 bytes");
  ExpectInvalid(ChatRequest(std::string(10'000'000, 'a')), "chat has 10000004 bytes");
  ExpectInvalid(TextRequest(std::string(65'537, 'a')), "at most 2048 tokens");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ExpectInvalid(TextRequest(std::string(65'536, 'a')),
                "the prompt has 65537 tokens, and the model takes at most 2047");
  Request request;
  request.set_model("m");
  for (int i = 0; i < 2049; ++i) request.mutable_chat()->add_messages()->set_role("user");
  ExpectInvalid(request, "chat has 2049 messages");
}

// Without a plan, so that none is waited for.
TEST_F(GenerateRefusalsTest, PromptsLeaveATokenForTheAnswer) {
  test_->control->HoldCompiles();
  // A model of its own: another version of "m" would wait behind the one that serves.
  Add("short", {.scheduler = {.max_model_len = 4}, .vocabulary = kVocabulary}, nullptr, false);
  const auto of_short = [](Request request) {
    request.set_model("short");
    return request;
  };
  Request request = of_short({});
  for (int i = 0; i < 4; ++i) request.mutable_tokens()->add_ids(5);
  ExpectInvalid(request,
                "tokens.ids has 4 tokens, and the model takes at most 3: "
                "--max_model_len is 4");
  ExpectInvalid(of_short(TextRequest("abc")), "the prompt has 4 tokens");
  ExpectInvalid(of_short(ChatRequest("a")), "the prompt has 4 tokens");
  test_->control->ReleaseCompiles();
  request.mutable_tokens()->mutable_ids()->RemoveLast();
  EXPECT_EQ(InputOf(request).sequence.prompt.size(), 3u);
  EXPECT_EQ(InputOf(of_short(TextRequest("ab"))).sequence.prompt.size(), 3u);
}

TEST_F(GenerateRefusalsTest, Numbers) {
  ExpectWrong([](Request* r) { r->set_max_tokens(0); }, "max_tokens is 0; it has to be at least 1");
  ExpectWrong([](Request* r) { r->set_max_tokens(-5); }, "max_tokens is -5");
  ExpectWrong([](Request* r) { r->set_min_tokens(-1); }, "min_tokens is -1");
  ExpectWrong([](Request* r) { r->set_min_tokens(513); },
              "min_tokens is 513, more than max_tokens");
  ExpectWrong([](Request* r) { r->set_timeout_us(-1); }, "timeout_us is -1");
  ExpectWrong([](Request* r) { r->set_priority(-1); }, "priority is -1; it has to be at least 1");
  ExpectWrong([](Request* r) { r->set_cache_salt(std::string(1025, 's')); },
              "cache_salt has 1025 bytes; it may have 1024");
  ExpectWrong([](Request* r) { r->add_stop_tokens(100); }, "stop_tokens[0] is 100");
  ExpectWrong(
      [](Request* r) {
        for (int i = 0; i < 1025; ++i) r->add_stop_tokens(5);
      },
      "stop_tokens has 1025 tokens");
  Request most = TextRequest("ab");
  for (int i = 0; i < 1024; ++i) most.add_stop_tokens(5);
  const GenerateInput input = InputOf(most);
  EXPECT_EQ(input.sequence.stop_tokens.size(), 1025u) << "the model's end token is beside them";
  EXPECT_TRUE(CheckInput(input, kVocabulary, MakeTokenizer().get()).ok());
}

TEST_F(GenerateRefusalsTest, Stops) {
  ExpectWrong([](Request* r) { r->add_stop(""); }, "stop: a stop string is empty");
  ExpectWrong([](Request* r) { r->add_stop(std::string(1025, 'a')); }, "stop: a stop string has");
  ExpectWrong(
      [](Request* r) {
        for (int i = 0; i < 17; ++i) r->add_stop("a");
      },
      "stop: there are 17 stop strings");
}

TEST_F(GenerateRefusalsTest, Samplings) {
  const float nan = std::nanf("");
  const auto wrong = [this](const std::function<void(v1::Sampling*)>& change,
                            const std::string& text) {
    ExpectWrong([&](Request* r) { change(r->mutable_sampling()); }, text);
  };
  wrong([&](auto* s) { s->set_temperature(nan); }, "sampling.temperature is nan");
  wrong([&](auto* s) { s->set_temperature(-1); }, "sampling.temperature is -1");
  wrong([&](auto* s) { s->set_top_k(-1); }, "sampling.top_k is -1");
  wrong([&](auto* s) { s->set_top_p(0); }, "sampling.top_p is 0");
  wrong([&](auto* s) { s->set_min_p(2); }, "sampling.min_p is 2");
  wrong([&](auto* s) { s->set_repetition_penalty(0); }, "sampling.repetition_penalty is 0");
  wrong([&](auto* s) { s->set_presence_penalty(nan); }, "sampling.presence_penalty is nan");
  wrong([&](auto* s) { s->set_frequency_penalty(3); }, "sampling.frequency_penalty is 3");
  wrong([&](auto* s) { s->set_logprobs(21); }, "sampling.logprobs is 21");
  wrong([&](auto* s) { s->set_logprobs(-1); }, "sampling.logprobs is -1");
  wrong([&](auto* s) { (*s->mutable_bias())[100] = 1; }, "sampling.bias names token 100");
  wrong([&](auto* s) { (*s->mutable_bias())[7] = std::numeric_limits<float>::infinity(); },
        "sampling.bias of token 7 is inf");
}

TEST_F(GenerateRefusalsTest, Chats) {
  Request request;
  request.set_model("m");
  request.mutable_chat();
  ExpectInvalid(request, "chat.messages is empty");
  request = ChatRequest("a");
  request.mutable_chat()->mutable_messages(0)->set_role("");
  ExpectInvalid(request, "chat.messages[0].role is empty");
  request = ChatRequest("a");
  request.mutable_chat()->set_continue_last(true);
  ExpectInvalid(request, "chat.messages[0].role is \"user\"");
  request.mutable_chat()->mutable_messages(0)->set_role("assistant");
  request.mutable_chat()->mutable_messages(0)->set_content(" \n");
  ExpectInvalid(request, "chat.messages[0].content is empty");
}

TEST_F(GenerateRefusalsTest, VariablesOfChats) {
  const auto wrong = [this](const std::string& variables, const std::string& text) {
    Request request = ChatRequest("a");
    request.mutable_chat()->set_variables_json(variables);
    ExpectInvalid(request, text);
  };
  for (const char* none : {"1", "null", "[]", "{", "{}{}", "{\"a\":}", "{\"a\":1e999}"}) {
    wrong(none, "chat.variables_json is no JSON object");
  }
  wrong(R"({"messages":[]})", "chat.variables_json names \"messages\"");
  wrong(R"({"continue_final_message":true})", "set chat.continue_last");
  wrong(R"({"forbidden":1})", "chat: ");
  wrong("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", "deeper than 64");
  wrong("{\"a\":" + std::string(60'000, '['), "deeper than 64");
  wrong("{\"a\":\"" + std::string(131'072, 'x') + "\"}", "chat.variables_json has 131080 bytes");
  Request request = ChatRequest("a");
  request.mutable_chat()->set_variables_json("{\"a\":" + std::string(63, '[') +
                                             std::string(63, ']') + "}");
  EXPECT_THAT(InputOf(request).sequence.prompt, ElementsAre(2, IdOf('a'), 1, 3));
}

TEST_F(GenerateRefusalsTest, WhatTheModelLacks) {
  Add("m", {.vocabulary = kVocabulary}, [](LanguageModel* model) {
    model->text.chat.reset();
    model->text.no_chat = absl::NotFoundError("chat_template.jinja is not there");
  });
  ExpectRefused(ChatRequest("a"), grpc::StatusCode::FAILED_PRECONDITION,
                "chat_template.jinja is not there");
  Add("m", {.vocabulary = kVocabulary},
      [](LanguageModel* model) { model->text.tokenizer.reset(); });
  ExpectRefused(TextRequest("a"), grpc::StatusCode::FAILED_PRECONDITION, "has no tokenizer");
  ExpectRefused(ChatRequest("a"), grpc::StatusCode::FAILED_PRECONDITION, "has no tokenizer");
  Request request;
  request.set_model("m");
  request.mutable_tokens()->add_ids(5);
  EXPECT_THAT(InputOf(request).sequence.prompt, ElementsAre(5));
  request.add_stop("x");
  ExpectRefused(request, grpc::StatusCode::FAILED_PRECONDITION, "use stop_tokens");
}

TEST_F(GenerateRefusalsTest, TokensThatTheModelHasNoRowsFor) {
  Add("m", {.vocabulary = IdOf('b')});
  EXPECT_THAT(InputOf(TextRequest("a")).sequence.prompt, ElementsAre(0, IdOf('a')));
  ExpectInvalid(TextRequest("ab"), "the prompt's tokens[2] is " + std::to_string(IdOf('b')));
}

TEST_F(GenerateRefusalsTest, WhatTheEngineRefuses) {
  engine_->Refuse(absl::ResourceExhaustedError("1024 sequences wait"));
  ExpectRefused(TextRequest("a"), grpc::StatusCode::RESOURCE_EXHAUSTED, "1024 sequences wait");
  engine_->Refuse(absl::UnavailableError("the engine is closed"));
  Request longer = TextRequest("");
  for (int i = 0; i < 400; ++i) *longer.mutable_text() += "<|end|>";
  longer.set_add_special(true);  // 401 tokens
  ExpectRefused(longer, grpc::StatusCode::UNAVAILABLE, "closed");
}

TEST_F(GenerateRefusalsTest, BytesThatAreNoMessage) {
  grpc::ClientContext context;
  Request request = TextRequest("a");
  request.set_text("\xFF");  // no UTF-8
  ExpectInvalid(request, "text");
}

TEST_F(GenerateRefusalsTest, FailedCallsCarryARequestId) {
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "mine");
  const auto reader = stub_->Generate(&context, TextRequest(""));
  const Answer answer = ReadAll(reader.get());
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto& trailing = context.GetServerTrailingMetadata();
  const auto id = trailing.find("x-request-id");
  ASSERT_NE(id, trailing.end());
  EXPECT_EQ(std::string(id->second.data(), id->second.size()), "mine");
}

}  // namespace
}  // namespace athanor
