// Tests answers from the request to the last byte, on a scripted engine.
#include "server/openai/answer.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/openai_testing.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AnswerTest : public OpenAiTest {};

constexpr char kChunk[] =
    R"(data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"m",)"
    R"("system_fingerprint":"F","choices":[)";
constexpr char kOpening[] =
    R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
    R"("finish_reason":null}])";
constexpr char kDone[] = "data: [DONE]\n\n";

TEST_F(AnswerTest, AWholeCompletion) {
  Begin();
  engine_->AtStart([](const Sequence& sequence) {
    Put(sequence, "x");
    End(sequence, "yz", Finish::kStop, 3);
  });
  const auto answer = Complete(R"("prompt":"ab","seed":5)")->AwaitEnd();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.type, "application/json");
  EXPECT_EQ(Plain(answer.body()),
            R"({"id":"ID","object":"text_completion","created":0,"model":"m",)"
            R"("system_fingerprint":"F","choices":[{"index":0,"text":"xyz","logprobs":null,)"
            R"("finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":3,)"
            R"("total_tokens":6,"prompt_tokens_details":{"cached_tokens":0}}})");
  EXPECT_THAT(HeaderOf(answer, "x-request-id"), ::testing::StartsWith("r-"));
  const GenerateInput input = engine_->Await(0).input;
  EXPECT_THAT(input.sequence.prompt, ElementsAre(0, IdOf('a'), IdOf('b')));
  EXPECT_EQ(input.sampling.seed, 5u);
  EXPECT_EQ(input.sampling.temperature, 0.5f) << "silent ones are the model's";
  EXPECT_EQ(input.sequence.max_tokens, 16);
  EXPECT_EQ(input.sequence.client, "tester");
  AwaitNothingHeld();
  EXPECT_EQ(version_->metrics().cells.value(Metric::kRequests, 0), 1);
}

TEST_F(AnswerTest, ChoicesOfAChat) {
  Begin();
  auto client = Chat(R"("n":3,"seed":7,"logprobs":true)");
  const Sequence first = engine_->Await(0), second = engine_->Await(1), third = engine_->Await(2);
  EXPECT_EQ(first.input.sampling.seed, 7u);
  EXPECT_EQ(second.input.sampling.seed, 8u);
  EXPECT_EQ(third.input.sampling.seed, 9u);
  EXPECT_THAT(third.input.sequence.prompt, ElementsAre(2, IdOf('a'), 1, 3));
  EXPECT_FALSE(third.input.continues);
  End(third, "c", Finish::kLength, 1);
  Put(first, "a");
  End(second, "b", Finish::kStop, 1);
  End(first, "A", Finish::kLength, 2);
  const Json answer = Json::parse(client->AwaitEnd().body());
  ASSERT_EQ(answer["choices"].size(), 3u);
  const std::vector<std::string> texts = {"aA", "b", "c"}, reasons = {"length", "stop", "length"};
  for (size_t i = 0; i < 3; ++i) {
    const Json& choice = answer["choices"][i];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(choice["message"]["content"], texts[i]);
    EXPECT_EQ(choice["finish_reason"], reasons[i]);
    EXPECT_EQ(choice["logprobs"]["content"].size(), texts[i].size());
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3) << "of three choices once";
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
}

TEST_F(AnswerTest, AStreamsExactBytes) {
  Begin();
  auto client = Chat(R"("stream":true,"stream_options":{"include_usage":true})");
  const Sequence sequence = engine_->Await(0);
  Put(sequence, "x");
  client->AwaitPieces(1);
  GenerateEvent last = LastEvent(Finish::kStop, 2);
  last.summary->cached_tokens = 2;
  ASSERT_TRUE(sequence.outbox->Put(std::move(last)));
  const auto answer = client->AwaitEnd();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.type, "text/event-stream; charset=utf-8");
  EXPECT_FALSE(answer.whole);
  const std::string chunk = kChunk, null = R"(,"usage":null})"
                                           "\n\n";
  EXPECT_THAT(
      std::vector<std::string>({Plain(answer.pieces.at(0)), Plain(answer.pieces.at(1))}),
      ElementsAre(chunk + kOpening + null + chunk +
                      R"({"index":0,"delta":{"content":"x"},"logprobs":null,)"
                      R"("finish_reason":null}])" +
                      null,
                  chunk + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}])" +
                      null + chunk +
                      R"(],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,)"
                      R"("prompt_tokens_details":{"cached_tokens":2}}})"
                      "\n\n" +
                      kDone));
}

TEST_F(AnswerTest, AStreamWithoutUsage) {
  Begin();
  engine_->AtStart([](const Sequence& sequence) { End(sequence, "x"); });
  const auto answer = Complete(R"("prompt":[5],"stream":true)")->AwaitEnd();
  EXPECT_EQ(Plain(answer.body()),
            R"(data: {"id":"ID","object":"text_completion","created":0,"model":"m",)"
            R"("system_fingerprint":"F","choices":[{"index":0,"text":"x","logprobs":null,)"
            R"("finish_reason":"length"}]})"
            "\n\n"
            "data: [DONE]\n\n");
  EXPECT_EQ(answer.pieces.size(), 1u) << "the last chunk, [DONE] and the end are one write";
}

TEST_F(AnswerTest, ChoicesGatherWhileAWriteIsPending) {
  Begin();
  auto client = Complete(R"("prompt":"a","n":2,"stream":true)");
  client->Hold();
  const Sequence first = engine_->Await(0), second = engine_->Await(1);
  Put(first, "a");
  client->AwaitPieces(1);
  Put(second, "b");
  Put(first, "c");
  std::this_thread::sleep_for(milliseconds(20));  // for the writer to look
  Put(second, "d");
  EXPECT_EQ(client->Now().pieces.size(), 1u) << "one write at a time";
  client->Hold(false);
  client->AwaitPieces(2);
  End(first);
  End(second);
  const auto answer = client->AwaitEnd();
  EXPECT_THAT(TextsOf(answer.body(), 2), ElementsAre("ac", "bd"));
  EXPECT_THAT(answer.pieces.back(), ::testing::EndsWith(kDone));
}

TEST_F(AnswerTest, PromptsAndEchoes) {
  Begin();
  auto client = Complete(R"("prompt":["ab",[0,37],"c"],"n":2,"echo":true,"seed":1)");
  std::vector<uint64_t> seeds;
  for (int i = 0; i < 6; ++i) {
    const Sequence sequence = engine_->Await(i);
    seeds.push_back(sequence.input.sampling.seed);
    End(sequence, std::to_string(i));
  }
  EXPECT_THAT(seeds, ElementsAre(1, 2, 1, 2, 1, 2)) << "a prompt's are its own";
  EXPECT_THAT(engine_->Await(3).input.sequence.prompt, ElementsAre(0, 37));
  const Json answer = Json::parse(client->AwaitEnd().body());
  std::vector<std::string> texts;
  for (const Json& choice : answer["choices"]) texts.push_back(choice["text"]);
  EXPECT_THAT(texts, ElementsAre("ab0", "ab1", "A2", "A3", "c4", "c5"));
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 9) << "of each prompt once";
  EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
  AwaitNothingHeld();
}

TEST_F(AnswerTest, AStreamEchoesOnce) {
  Begin();
  auto client = Complete(R"("prompt":"ab","echo":true,"stream":true)");
  const Sequence sequence = engine_->Await(0);
  Put(sequence, "x");
  client->AwaitPieces(1);
  End(sequence, "y");
  EXPECT_THAT(TextsOf(client->AwaitEnd().body(), 1), ElementsAre("abxy"));
}

TEST_F(AnswerTest, WhatIsWrongIsToldAheadOfAllElse) {
  Begin({.scheduler = {.max_model_len = 64}});
  const auto expect = [this](const std::string& fields, int status, const std::string& param,
                             const std::string& message) {
    const auto answer = Complete(fields)->AwaitEnd();
    EXPECT_EQ(answer.status, status) << fields;
    EXPECT_TRUE(answer.whole);
    const Json error = ErrorOf(answer);
    EXPECT_EQ(error["param"], param.empty() ? Json() : Json(param)) << fields;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(message));
  };
  for (const std::string stream : {"", ",\"stream\":true"}) {
    expect("\"prompt\":\"\"" + stream, 400, "prompt", "prompt is empty");
    expect("\"prompt\":[]" + stream, 400, "prompt", "prompt is empty");
    expect("\"prompt\":[100]" + stream, 400, "prompt[0]", "prompt[0] is 100");
    expect("\"prompt\":[\"a\",\"\"]" + stream, 400, "prompt", "prompt is empty");
    expect("\"prompt\":\"a\",\"max_tokens\":0" + stream, 400, "max_tokens", "max_tokens is 0");
    expect("\"prompt\":\"a\",\"top_p\":0" + stream, 400, "top_p", "top_p is 0");
    expect("\"prompt\":\"a\",\"logit_bias\":{\"100\":1}" + stream, 400, "logit_bias", "token 100");
    expect("\"prompt\":\"a\",\"stop\":\"\"" + stream, 400, "stop", "a stop string is empty");
    expect("\"prompt\":\"a\",\"priority\":-1" + stream, 400, "priority", "priority is -1");
    expect("\"prompt\":\"a\",\"x\":1" + stream, 400, "", "supplied: x");
    expect("\"prompt\":\"a\",\"n\":0" + stream, 400, "n", "n is 0");
    expect("\"prompt\":\"a\",\"prompt\":\"b\"" + stream, 400, "", "twice");
    expect("\"prompt\":\"" + std::string(64, 'a') + "\"" + stream, 400, "", "the prompt has 65");
  }
  EXPECT_EQ(ErrorOf(Complete("\"prompt\":\"" + std::string(64, 'a') + "\"")->AwaitEnd())["code"],
            "context_length_exceeded");
  EXPECT_EQ(engine_->started(), 0u);
  AwaitNothingHeld();
}

TEST_F(AnswerTest, HugeBodiesCostLittle) {
  Begin();
  const auto expect = [this](const std::string& body, int status, const std::string& message) {
    const auto answer = Ask("POST", "/v1/completions", body)->AwaitEnd();
    EXPECT_EQ(answer.status, status);
    EXPECT_THAT(answer.body(), HasSubstr(message));
  };
  expect(R"({"model":"m","prompt":")" + std::string(10'000'000, 'a') + "\"}", 400,
         "prompt has 10000000 bytes");
  expect(std::string(1'000'000, '['), 400, "deeper than 64");
  expect("", 400, "no valid JSON");
  expect(std::string(1'000'000, 'x'), 400, "no valid JSON");
  expect("{\"model\":\"m\",\"prompt\":\"\xff\"}", 400, "no valid JSON");
  std::string many = R"({"model":"m","prompt":[0)";
  for (int i = 0; i < 1'000'000; ++i) many += ",0";
  expect(many + "]}", 400, "prompt has 1000001 tokens");
  AwaitNothingHeld();
}

TEST_F(AnswerTest, ModelsThatAreNotThere) {
  Begin();
  const auto answer =
      Ask("POST", "/v1/completions", R"({"model":"absent","prompt":"a"})")->AwaitEnd();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(ErrorOf(answer)["code"], "model_not_found");
  EXPECT_THAT(answer.body(), HasSubstr("absent"));
  ASSERT_TRUE(core_->workers().Start(Store("scale", ScaleModel({1}))).ok());
  EXPECT_EQ(Ask("POST", "/v1/completions", R"({"model":"scale","prompt":"a"})")->AwaitEnd().status,
            400)
      << "it is no language model";
}

TEST_F(AnswerTest, AFullEngineStartsAllOrNone) {
  Begin();
  std::atomic<int> started = 0;
  engine_->AtStart([&](const Sequence&) {
    if (++started == 2) engine_->Refuse(absl::ResourceExhaustedError("2 sequences wait"));
  });
  const auto answer = Complete(R"("prompt":"a","n":3)")->AwaitEnd();
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(HeaderOf(answer, "Retry-After"), "1");
  EXPECT_THAT(answer.body(), HasSubstr("2 sequences wait"));
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->AwaitCancel(1)));
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->AwaitCancel(2)));
  AwaitNothingHeld();
}

TEST_F(AnswerTest, AnErrorOfAWholeAnswer) {
  Begin();
  auto client = Chat("\"n\":2");
  Put(engine_->Await(0), "x");
  engine_->Await(1).outbox->Close(absl::DataLossError("the logit of token 5 is nan"));
  const auto answer = client->AwaitEnd();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(HeaderOf(answer, "x-should-retry"), "false");
  EXPECT_THAT(answer.body(), HasSubstr("token 5 is nan"));
  EXPECT_FALSE(engine_->AwaitCancel(1).ok()) << "the other choice ends too";
  AwaitNothingHeld();
}

TEST_F(AnswerTest, AnErrorInMidStream) {
  Begin();
  auto client = Chat(R"("n":2,"stream":true)");
  const Sequence first = engine_->Await(0);
  Put(first, "x");
  client->AwaitPieces(1);
  first.outbox->Close(absl::DeadlineExceededError("its time was up"));
  const auto answer = client->AwaitEnd();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.pieces.back(),
            R"(data: {"error":{"message":"its time was up","type":"server_error","param":null,)"
            R"("code":"timeout"}})"
            "\n\n")
      << "and no [DONE]";
  EXPECT_FALSE(engine_->AwaitCancel(2).ok());
}

TEST_F(AnswerTest, AModelIsDeletedInMidStream) {
  Begin();
  auto client = Chat(R"("stream":true)");
  Put(engine_->Await(0), "x");
  client->AwaitPieces(1);
  version_.reset();
  ASSERT_TRUE(core_->registry().Delete("m", "").ok());
  EXPECT_THAT(client->AwaitEnd().pieces.back(), HasSubstr("model_not_found"));
  EXPECT_EQ(Chat()->AwaitEnd().status, 404);
}

}  // namespace
}  // namespace athanor
