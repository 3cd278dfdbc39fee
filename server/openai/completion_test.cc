#include "server/openai/completion.h"

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/generate/scripted_engine_testing.h"

namespace athanor {
namespace {

// Tokens: 0 "<s>" (special), 1 "a", 2 " b", 3 and 4 the halves of "é", 5 "a" again, 6 " \xc3".
std::shared_ptr<const Tokenizer> MakeTokenizer() {
  TokenizerData data;
  data.pieces = {"<s>",
                 "a",
                 "\xC4\xA0"
                 "b",
                 "\xC3\x83",
                 "\xC2\xA9",
                 "a",
                 "\xC4\xA0\xC3\x83"};
  data.byte_level = true;
  data.added.push_back({.content = "<s>", .id = 0, .special = true});
  return Tokenizer::Create(std::move(data)).value();
}

std::vector<GenerateEvent> One(GenerateEvent event) {
  std::vector<GenerateEvent> events;
  events.push_back(std::move(event));
  return events;
}

AnswerWriter Writer(Endpoint endpoint, bool logprobs = false) {
  return AnswerWriter({.endpoint = endpoint,
                       .id = "x-1",
                       .created = 7,
                       .model = "m\"",
                       .fingerprint = "f",
                       .logprobs = logprobs});
}
constexpr char kCompletionHead[] =
    R"({"id":"x-1","object":"text_completion","created":7,"model":"m\"","system_fingerprint":"f",)";
constexpr char kChunkHead[] =
    R"({"id":"x-1","object":"chat.completion.chunk","created":7,"model":"m\"",)"
    R"("system_fingerprint":"f",)";

std::string Data(const std::string& json) { return "data: " + json + "\n\n"; }

TEST(CompletionTest, EventsAreOnePart) {
  ChoiceReader reader(Endpoint::kCompletions, false, nullptr);
  std::vector<GenerateEvent> events = One({.text = "a", .tokens = {{.token = 1}}});
  events.push_back({.text = "b", .tokens = {{.token = 2}}});
  ChoicePart part;
  reader.Add(std::move(events), &part);
  EXPECT_EQ(part.text, "ab");
  EXPECT_EQ(part.finish_reason, nullptr);
  EXPECT_EQ(part.tokens, "") << "nobody asked for logprobs";
  EXPECT_EQ(part.bytes(), 2);
  reader.Add(One(LastEvent(Finish::kStop, 2)), &part);
  EXPECT_STREQ(part.finish_reason, "stop");
  reader.Add(One(LastEvent(Finish::kLength, 2)), &part);
  EXPECT_STREQ(part.finish_reason, "length");
}

TEST(CompletionTest, ChunksOfCompletions) {
  const AnswerWriter writer = Writer(Endpoint::kCompletions);
  EXPECT_EQ(writer.Chunk(2, {.text = "a\n\"\x01"}, false),
            Data(kCompletionHead + std::string(R"("choices":[{"index":2,"text":"a\n\"\u0001",)"
                                               R"("logprobs":null,"finish_reason":null}]})")));
  EXPECT_EQ(writer.Chunk(0, {.text = "", .finish_reason = "stop"}, true),
            Data(kCompletionHead + std::string(R"("choices":[{"index":0,"text":"",)"
                                               R"("logprobs":null,"finish_reason":"stop"}],)"
                                               R"("usage":null})")));
  EXPECT_EQ(writer.UsageChunk({.prompt = 5, .cached = 2, .generated = 3}),
            Data(kCompletionHead +
                 std::string(R"("choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,)"
                             R"("total_tokens":8,"prompt_tokens_details":{"cached_tokens":2}}})")));
}

TEST(CompletionTest, ChunksOfChats) {
  const AnswerWriter writer = Writer(Endpoint::kChats);
  EXPECT_EQ(writer.Opening(1, false),
            Data(kChunkHead +
                 std::string(R"("choices":[{"index":1,"delta":{"role":"assistant","content":""},)"
                             R"("logprobs":null,"finish_reason":null}]})")));
  EXPECT_EQ(writer.Chunk(1, {.text = "\xC3\xA9"}, true),
            Data(kChunkHead + std::string("\"choices\":[{\"index\":1,\"delta\":{\"content\":\""
                                          "\xC3\xA9\"},\"logprobs\":null,\"finish_reason\":null}],"
                                          "\"usage\":null}")));
  EXPECT_EQ(writer.Chunk(1, {.finish_reason = "length"}, false),
            Data(kChunkHead + std::string(R"("choices":[{"index":1,"delta":{},"logprobs":null,)"
                                          R"("finish_reason":"length"}]})")));
}

TEST(CompletionTest, WholeAnswers) {
  std::vector<ChoicePart> parts(2);
  parts[0] = {.text = "a", .finish_reason = "stop"};
  parts[1] = {.text = "b", .finish_reason = "length"};
  EXPECT_EQ(Writer(Endpoint::kCompletions).Whole(parts, {.prompt = 1, .generated = 4}),
            kCompletionHead +
                std::string(R"("choices":[{"index":0,"text":"a","logprobs":null,)"
                            R"("finish_reason":"stop"},{"index":1,"text":"b","logprobs":null,)"
                            R"("finish_reason":"length"}],"usage":{"prompt_tokens":1,)"
                            R"("completion_tokens":4,"total_tokens":5,)"
                            R"("prompt_tokens_details":{"cached_tokens":0}}})"));
  parts.pop_back();
  const Json chat = Json::parse(Writer(Endpoint::kChats).Whole(parts, {}));
  EXPECT_EQ(chat["object"], "chat.completion");
  EXPECT_EQ(chat["choices"],
            Json::parse(R"([{"index":0,"message":{"role":"assistant","content":"a",)"
                        R"("refusal":null},"logprobs":null,"finish_reason":"stop"}])"));
}

TEST(CompletionTest, LogprobsOfCompletions) {
  ChoiceReader reader(Endpoint::kCompletions, true, MakeTokenizer());
  ChoicePart part;
  reader.Add(One({.tokens = {{.token = 0, .logprob = 0},
                             {.token = 1, .logprob = -0.1f, .likeliest = {{5, -0.05f}, {2, -3}}},
                             {.token = 3, .logprob = -1.5f, .likeliest = {{6, -1}}}}}),
             &part);
  // In another event the character's second half.
  reader.Add(One({.tokens = {{.token = 4, .logprob = -std::numeric_limits<float>::infinity()},
                             {.token = 2, .logprob = -2}}}),
             &part);
  const Json whole = Json::parse(Writer(Endpoint::kCompletions, true).Whole({part}, {}));
  const Json logprobs = whole["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"<s>", "a", "bytes:\\xc3", "bytes:\\xa9", " b"}));
  EXPECT_EQ(logprobs["token_logprobs"].dump(), "[0,-0.1,-1.5,-9999,-2]");
  EXPECT_EQ(logprobs["text_offset"].dump(), "[0,0,1,1,2]") << "of aé b";
  EXPECT_EQ(logprobs["top_logprobs"].dump(),
            "[{\"<s>\":0},{\"a\":-0.05,\" b\":-3},{\"bytes: \\\\xc3\":-1,\"bytes:\\\\xc3\":-1.5},"
            "{\"bytes:\\\\xa9\":-9999},{\" b\":-2}]")
      << "of equal texts the likelier";
}

TEST(CompletionTest, LogprobsOfChats) {
  ChoiceReader reader(Endpoint::kChats, true, MakeTokenizer());
  ChoicePart part;
  reader.Add(One({.text = "a", .tokens = {{.token = 1, .logprob = -0.5f}}}), &part);
  reader.Add(One({.tokens = {{.token = 3, .logprob = -1, .likeliest = {{6, -0.25f}, {1, -4}}}}}),
             &part);
  const std::string expected =
      R"({"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]},)"
      R"({"token":"\\xc3","logprob":-1,"bytes":[195],"top_logprobs":[)"
      R"({"token":" \\xc3","logprob":-0.25,"bytes":[32,195]},)"
      R"({"token":"a","logprob":-4,"bytes":[97]}]}],"refusal":null})";
  const AnswerWriter writer = Writer(Endpoint::kChats, true);
  EXPECT_EQ(Json::parse(writer.Whole({part}, {}))["choices"][0]["logprobs"].dump(), expected);
  const std::string chunk = writer.Chunk(0, part, false);
  EXPECT_EQ(Json::parse(chunk.substr(6))["choices"][0]["logprobs"].dump(), expected);
  EXPECT_TRUE(
      Json::parse(
          writer.Chunk(0, {.finish_reason = "stop"}, false).substr(6))["choices"][0]["logprobs"]
          .is_null());
}

TEST(CompletionTest, AStopTokenHasNoLogprobs) {
  for (const Endpoint endpoint : {Endpoint::kCompletions, Endpoint::kChats}) {
    ChoiceReader reader(endpoint, true, MakeTokenizer());
    GenerateEvent last = LastEvent(Finish::kStop, 2);
    last.text = "a";
    last.tokens = {{.token = 1, .logprob = -1}, {.token = 2, .logprob = -2}};
    last.summary->stop_token = 2;
    ChoicePart part;
    reader.Add(One(std::move(last)), &part);
    EXPECT_EQ(part.tokens + part.content,
              endpoint == Endpoint::kChats
                  ? R"({"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]})"
                  : "\"a\"");
  }
}

TEST(CompletionTest, TokensWithoutATokenizerHaveTheirNumbers) {
  ChoiceReader reader(Endpoint::kCompletions, true, nullptr);
  ChoicePart part;
  reader.Add(One({.tokens = {{.token = 42, .logprob = -1, .likeliest = {{7, -0.5f}}}}}), &part);
  EXPECT_EQ(part.tokens, "\"token_id:42\"");
  EXPECT_EQ(part.top_logprobs, R"({"token_id:7":-0.5,"token_id:42":-1})");
  EXPECT_EQ(part.text_offset, "0");
}

}  // namespace
}  // namespace athanor
