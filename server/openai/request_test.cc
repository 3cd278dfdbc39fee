// Tests what the interface takes, ignores and refuses, by field.
#include "server/openai/request.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/fields.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns a right body with `fields` added: "\"n\":2".
std::string Completion(const std::string& fields = "") {
  return R"({"model":"m","prompt":"ab")" + (fields.empty() ? "" : "," + fields) + "}";
}
std::string Chat(const std::string& fields = "") {
  return R"({"model":"m","messages":[{"role":"user","content":"ab"}])" +
         (fields.empty() ? "" : "," + fields) + "}";
}

absl::StatusOr<OpenAiRequest> Read(Endpoint endpoint, const std::string& body) {
  return ReadRequest(endpoint, Json::parse(body));
}
OpenAiRequest MustRead(Endpoint endpoint, const std::string& body) {
  auto request = Read(endpoint, body);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status();
  return request.ok() ? *std::move(request) : OpenAiRequest{.generate = {{}}};
}
OpenAiRequest ReadCompletion(const std::string& fields = "") {
  return MustRead(Endpoint::kCompletions, Completion(fields));
}
OpenAiRequest ReadChat(const std::string& fields = "") {
  return MustRead(Endpoint::kChats, Chat(fields));
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text,
                 const std::string& body) {
  EXPECT_EQ(status.code(), code) << body << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text)) << body;
}
void ExpectWrong(Endpoint endpoint, const std::string& body, const std::string& text) {
  ExpectError(Read(endpoint, body).status(), absl::StatusCode::kInvalidArgument, text, body);
}
void ExpectUnsupported(Endpoint endpoint, const std::string& body, const std::string& text) {
  ExpectError(Read(endpoint, body).status(), absl::StatusCode::kUnimplemented, text, body);
}
// Expects both endpoints to refuse the fields.
void ExpectWrong(const std::string& fields, const std::string& text) {
  ExpectWrong(Endpoint::kCompletions, Completion(fields), text);
  ExpectWrong(Endpoint::kChats, Chat(fields), text);
}

TEST(RequestTest, SilentOnesHaveOpenAisDefaults) {
  const OpenAiRequest completion = ReadCompletion();
  EXPECT_EQ(completion.model, "m");
  EXPECT_EQ(completion.n, 1);
  EXPECT_FALSE(completion.stream || completion.echo || completion.logprobs);
  ASSERT_EQ(completion.generate.size(), 1u);
  EXPECT_EQ(completion.generate[0].text(), "ab");
  EXPECT_EQ(completion.generate[0].max_tokens(), 16);
  EXPECT_FALSE(completion.generate[0].has_sampling()) << "as the model's authors have it";
  const OpenAiRequest chat = ReadChat();
  EXPECT_EQ(chat.generate[0].max_tokens(), 2'147'483'647) << "to the context's end";
  ASSERT_EQ(chat.generate[0].chat().messages_size(), 1);
  EXPECT_EQ(chat.generate[0].chat().messages(0).role(), "user");
  EXPECT_EQ(chat.generate[0].chat().messages(0).content(), "ab");
  EXPECT_EQ(chat.generate[0].chat().variables_json(), "");
}

TEST(RequestTest, WhatIsSetCounts) {
  const std::string common =
      R"("n":3,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},
      "stop":["x","yz"],"seed":-1,"temperature":0.25,"top_p":0.5,"presence_penalty":-2,
      "frequency_penalty":2,"logit_bias":{"5":-100,"7":1.5},"top_k":7,"min_p":0.125,
      "repetition_penalty":1.5,"min_tokens":2,"ignore_eos":true,"stop_token_ids":[9,10],
      "priority":3,"cache_salt":"s","max_tokens":8,"user":"u","metadata":{"a":"b"},"store":true,
      "safety_identifier":"s","service_tier":"auto","prompt_cache_key":"k",
      "prompt_cache_retention":"24h")";
  for (const OpenAiRequest& request :
       {ReadCompletion(common + R"(,"logprobs":4)"),
        ReadChat(common + R"(,"logprobs":true,"top_logprobs":4,"parallel_tool_calls":true)")}) {
    EXPECT_EQ(request.n, 3);
    EXPECT_TRUE(request.stream && request.include_usage && request.logprobs);
    const v1::GenerateRequest& generate = request.generate.at(0);
    EXPECT_THAT(generate.stop(), ElementsAre("x", "yz"));
    EXPECT_THAT(generate.stop_tokens(), ElementsAre(9, 10));
    EXPECT_EQ(generate.max_tokens(), 8);
    EXPECT_EQ(generate.min_tokens(), 2);
    EXPECT_TRUE(generate.ignore_eos());
    EXPECT_EQ(generate.priority(), 3);
    EXPECT_EQ(generate.cache_salt(), "s");
    const v1::Sampling& sampling = generate.sampling();
    EXPECT_EQ(sampling.seed(), ~uint64_t{0});
    EXPECT_EQ(sampling.temperature(), 0.25f);
    EXPECT_EQ(sampling.top_p(), 0.5f);
    EXPECT_EQ(sampling.top_k(), 7);
    EXPECT_EQ(sampling.min_p(), 0.125f);
    EXPECT_EQ(sampling.repetition_penalty(), 1.5f);
    EXPECT_EQ(sampling.presence_penalty(), -2);
    EXPECT_EQ(sampling.frequency_penalty(), 2);
    EXPECT_EQ(sampling.logprobs(), 4);
    EXPECT_EQ(sampling.bias().size(), 2u);
    EXPECT_EQ(sampling.bias().at(5), -100);
    EXPECT_EQ(sampling.bias().at(7), 1.5f);
  }
}

TEST(RequestTest, NullIsAsIfItWereNotThere) {
  for (const Field& field : Fields()) {
    if (field.name == "model" || field.name == "prompt" || field.name == "messages") continue;
    const std::string null = "\"" + std::string(field.name) + "\":null";
    if (field.completions) {
      EXPECT_EQ(ReadCompletion(null).generate[0].DebugString(),
                ReadCompletion().generate[0].DebugString());
    }
    if (field.chats) {
      EXPECT_EQ(ReadChat(null).generate[0].DebugString(), ReadChat().generate[0].DebugString());
    }
  }
}

TEST(RequestTest, UnknownFieldsAreNamed) {
  ExpectWrong("\"temprature\":1", "Unrecognized request argument supplied: temprature");
  ExpectWrong("\"embedding\":null", "supplied: embedding");
  ExpectWrong(Endpoint::kChats, Chat("\"echo\":true"), "supplied: echo");
  ExpectWrong(Endpoint::kCompletions, Completion("\"tools\":[]"), "supplied: tools");
  ExpectWrong("\"stream\":true,\"stream_options\":{\"usage\":1}", "supplied: stream_options.usage");
  ExpectWrong(Endpoint::kChats, R"({"model":"m","messages":[{"role":"user","text":"a"}]})",
              "supplied: messages[0].text");
  std::set<absl::string_view> names;
  for (const Field& field : Fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name << " has two rows";
    EXPECT_TRUE(field.completions || field.chats || field.embeddings) << field.name;
  }
}

TEST(RequestTest, TypesAreNamed) {
  ExpectWrong("\"n\":\"two\"", "n is \"two\"; it has to be an integer");
  ExpectWrong("\"n\":1.5", "n is 1.5; it has to be an integer");
  ExpectWrong("\"n\":0", "n is 0; it has to be from 1 to 128");
  ExpectWrong("\"n\":129", "n is 129");
  ExpectWrong("\"n\":18446744073709551615", "n is 18446744073709551615; it has to be from 1");
  ExpectWrong("\"stream\":1", "stream is 1; it has to be true or false");
  ExpectWrong("\"temperature\":\"hot\"", "temperature is \"hot\"; it has to be a number");
  ExpectWrong("\"temperature\":1e300", "temperature is 1e+300");
  ExpectWrong("\"max_tokens\":[]", "max_tokens is a list; it has to be an integer");
  ExpectWrong("\"seed\":1.0", "seed is 1.0; it has to be an integer");
  ExpectWrong("\"stop\":{}", "stop is an object; it has to be a text or a list of texts");
  ExpectWrong("\"stop\":[\"a\",1]", "stop[1] is 1; it has to be a text");
  ExpectWrong("\"stop_token_ids\":[-1]", "stop_token_ids[0] is -1");
  ExpectWrong("\"stop_token_ids\":5", "stop_token_ids is 5; it has to be a list of tokens");
  ExpectWrong("\"top_k\":-2", "top_k is -2");
  ExpectWrong("\"logit_bias\":[1]", "logit_bias is a list");
  for (const char* key : {"", "a", "-1", "+1", " 1", "1.0", "99999999999"}) {
    ExpectWrong("\"logit_bias\":{\"" + std::string(key) + "\":1}", "which is no token's number");
  }
  ExpectWrong("\"logit_bias\":{\"1\":1,\"01\":2}", "logit_bias names token 1 twice");
  ExpectWrong("\"logit_bias\":{\"1\":\"x\"}", "logit_bias of token 1 is \"x\"");
  ExpectWrong("\"cache_salt\":1", "cache_salt is 1; it has to be a text");
  ExpectWrong("\"stream\":true,\"stream_options\":true", "stream_options is true");
  ExpectWrong("\"stream\":true,\"stream_options\":{\"include_usage\":1}",
              "stream_options.include_usage is 1");
  ExpectWrong(Endpoint::kCompletions, Completion("\"logprobs\":true"), "logprobs is true");
  ExpectWrong(Endpoint::kCompletions, Completion("\"logprobs\":21"), "from 0 to 20");
  ExpectWrong(Endpoint::kChats, Chat("\"logprobs\":2"), "logprobs is 2");
  ExpectWrong(Endpoint::kChats, Chat("\"logprobs\":true,\"top_logprobs\":21"), "from 0 to 20");
  ExpectWrong(Endpoint::kChats, Chat("\"chat_template_kwargs\":1"), "chat_template_kwargs is 1");
  ExpectWrong(Endpoint::kChats, R"({"model":"m","messages":"hi"})", "messages is \"hi\"");
  for (const char* body : {"[]", "1", "\"x\"", "null"}) {
    ExpectWrong(Endpoint::kChats, body, "the body is ");
  }
}

TEST(RequestTest, FieldsGoTogether) {
  ExpectWrong("\"stream_options\":{}", "stream is not true");
  ExpectWrong(Endpoint::kChats, Chat("\"top_logprobs\":2"), "top_logprobs is set, and logprobs");
  ExpectWrong(Endpoint::kChats, Chat("\"max_tokens\":2,\"max_completion_tokens\":3"),
              "set one of them");
  EXPECT_EQ(ReadChat("\"max_completion_tokens\":3").generate[0].max_tokens(), 3);
  EXPECT_EQ(ReadChat("\"max_tokens\":3,\"max_completion_tokens\":3").generate[0].max_tokens(), 3);
  ExpectUnsupported(Endpoint::kCompletions, Completion("\"echo\":true,\"logprobs\":0"),
                    "echo with logprobs");
  ExpectUnsupported(Endpoint::kCompletions, Completion("\"best_of\":2"), "best_of is 2");
  EXPECT_EQ(ReadCompletion("\"best_of\":2,\"n\":2").n, 2);
  EXPECT_EQ(ReadChat("\"logprobs\":true").generate[0].sampling().logprobs(), 0);
  EXPECT_FALSE(ReadChat("\"logprobs\":false").generate[0].sampling().has_logprobs());
  EXPECT_EQ(ReadCompletion("\"top_k\":-1").generate[0].sampling().top_k(), 0);
  ExpectWrong(Endpoint::kChats, R"({"messages":[{"role":"user","content":"a"}]})",
              "model is missing");
  ExpectWrong(Endpoint::kChats, R"({"model":"m"})", "messages is missing");
  ExpectWrong(Endpoint::kChats, R"({"model":"m","messages":[]})", "messages is empty");
  ExpectWrong(Endpoint::kCompletions, R"({"model":"m"})", "prompt is missing");
}

// Each prompt has a copy of them.
TEST(RequestTest, SettingsHaveALimit) {
  ExpectWrong("\"cache_salt\":\"" + std::string(1025, 's') + "\"", "cache_salt has 1025 bytes");
  ExpectWrong("\"stop\":\"" + std::string(200'000, 's') + "\"", "take more than 131072 bytes");
  std::string stops = "\"stop\":[\"a\"";
  for (int i = 1; i < 17; ++i) stops += ",\"a\"";
  ExpectWrong(stops + "]", "stop has 17 texts; it may have 16");
  std::string tokens = "\"stop_token_ids\":[0";
  for (int i = 1; i < 1025; ++i) tokens += ",0";
  ExpectWrong(tokens + "]", "stop_token_ids has 1025 tokens; it may have 1024");
  // As much as Generation takes of each.
  std::string most = "\"cache_salt\":\"" + std::string(1024, 's') + "\",\"stop\":[\"" +
                     std::string(1024, 'a') + "\"";
  for (int i = 1; i < 16; ++i) most += ",\"" + std::string(1024, 'a') + "\"";
  most += "],\"stop_token_ids\":[0";
  for (int i = 1; i < 1024; ++i) most += ",0";
  most += "],\"logit_bias\":{\"0\":1";
  for (int i = 1; i < 1024; ++i) most += ",\"" + std::to_string(i) + "\":1";
  EXPECT_EQ(ReadCompletion(most + "}").generate[0].sampling().bias().size(), 1024u);
}

TEST(RequestTest, WhatIsNotThereIsRefusedByName) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> chats = {
      {"tools", {R"([{"type":"function"}])"}},
      {"tool_choice", {"\"required\"", "{}"}},
      {"functions", {"[{}]"}},
      {"function_call", {R"({"name":"f"})"}},
      {"response_format", {R"({"type":"json_object"})", R"({"type":"json_schema"})", "\"text\""}},
      {"modalities", {R"(["text","audio"])", "[]"}},
      {"audio", {"{}"}},
      {"prediction", {"{}"}},
      {"reasoning_effort", {"\"high\""}},
      {"verbosity", {"\"low\""}},
      {"web_search_options", {"{}"}},
      {"moderation", {"{}"}}};
  for (const auto& [name, values] : chats) {
    for (const std::string& value : values) {
      ExpectUnsupported(Endpoint::kChats, Chat("\"" + name + "\":" + value),
                        name + " is not supported");
    }
  }
  ExpectUnsupported(Endpoint::kCompletions, Completion("\"suffix\":\"x\""),
                    "suffix is not supported");
  // Changes nothing.
  ReadChat(R"("tools":[],"tool_choice":"none","functions":[],"function_call":"auto",
           "response_format":{"type":"text"},"modalities":["text"],"reasoning_effort":"none",
           "verbosity":"medium")");
  ReadCompletion(R"("suffix":"","best_of":1)");
}

TEST(RequestTest, PromptsAreTextsOrTokensOrLists) {
  const auto prompts = [](const std::string& json) {
    return MustRead(Endpoint::kCompletions, R"({"model":"m","top_k":3,"prompt":)" + json + "}")
        .generate;
  };
  EXPECT_THAT(prompts("[5,0,7]").at(0).tokens().ids(), ElementsAre(5, 0, 7));
  const auto texts = prompts(R"(["a","","c"])");
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[2].text(), "c");
  EXPECT_TRUE(texts[1].has_text());
  EXPECT_EQ(texts[2].sampling().top_k(), 3) << "settings are of each";
  const auto mixed = prompts(R"([[1],"b",[2,3]])");
  ASSERT_EQ(mixed.size(), 3u);
  EXPECT_EQ(mixed[1].text(), "b");
  EXPECT_THAT(mixed[2].tokens().ids(), ElementsAre(2, 3));
  EXPECT_TRUE(prompts("[]").at(0).has_tokens()) << "Generation refuses a prompt without tokens";
  const auto wrong = [](const std::string& json, const std::string& text) {
    ExpectWrong(Endpoint::kCompletions, R"({"model":"m","prompt":)" + json + "}", text);
  };
  wrong("1", "prompt is 1; it has to be a text, a list of tokens, or a list of these");
  wrong("{}", "prompt is an object");
  wrong("[1,\"a\"]", "prompt[1] is \"a\"; it has to be an integer");
  wrong("[\"a\",1]", "prompt[1] is 1");
  wrong("[[1],[[2]]]", "prompt[1][0] is a list");
  wrong("[-1]", "prompt[0] is -1");
  wrong("[2147483648]", "prompt[0] is 2147483648");
  wrong("[1.5]", "prompt[0] is 1.5");
  std::string many = "[\"a\"";
  for (int i = 1; i < 64; ++i) many += ",\"a\"";
  EXPECT_EQ(
      MustRead(Endpoint::kCompletions, R"({"model":"m","n":2,"prompt":)" + many + "]}").choices(),
      128);
  ExpectWrong(Endpoint::kCompletions, R"({"model":"m","n":2,"prompt":)" + many + ",\"a\"]}",
              "prompt has 65 prompts, and n is 2");
}

TEST(RequestTest, Messages) {
  const auto messages = [](const std::string& json, const std::string& fields = "") {
    return MustRead(Endpoint::kChats, R"({"model":"m","messages":)" + json + fields + "}")
        .generate.at(0)
        .chat();
  };
  const v1::Chat chat = messages(
      R"([{"role":"developer","content":"s"},{"role":"user","name":"n","content":
      [{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"assistant","content":"so",
      "refusal":null,"tool_calls":null,"function_call":null,"audio":null,"annotations":[]}])",
      R"(,"continue_final_message":true,"chat_template_kwargs":{"z":1,"a":[true]})");
  ASSERT_EQ(chat.messages_size(), 3);
  EXPECT_EQ(chat.messages(0).role(), "system");
  EXPECT_EQ(chat.messages(1).content(), "a\nb");
  EXPECT_EQ(chat.messages(2).content(), "so");
  EXPECT_TRUE(chat.continue_last());
  EXPECT_EQ(chat.variables_json(), R"({"z":1,"a":[true]})");
  const auto wrong = [](const std::string& message, const std::string& text) {
    ExpectWrong(Endpoint::kChats, R"({"model":"m","messages":[)" + message + "]}", text);
  };
  const auto unsupported = [](const std::string& message, const std::string& text) {
    ExpectUnsupported(Endpoint::kChats, R"({"model":"m","messages":[)" + message + "]}", text);
  };
  wrong("1", "messages[0] is 1; it has to be an object");
  wrong("{}", "messages[0].role is missing");
  wrong(R"({"role":"user"})", "messages[0].content is missing");
  wrong(R"({"role":"assistant","content":null})", "messages[0].content is missing");
  wrong(R"({"role":"robot","content":"a"})", "messages[0].role is \"robot\"");
  wrong(R"({"role":1,"content":"a"})", "messages[0].role is 1");
  wrong(R"({"role":"user","content":1})", "messages[0].content is 1");
  wrong(R"({"role":"user","content":["a"]})", "messages[0].content[0] is \"a\"");
  wrong(R"({"role":"user","content":[{"type":"text"}]})", "messages[0].content[0].text is missing");
  wrong(R"({"role":"user","content":[{"type":"text","text":1}]})", "content[0].text is 1");
  unsupported(R"({"role":"tool","content":"a"})", "messages[0].role is \"tool\"");
  unsupported(R"({"role":"function","content":"a"})", "messages[0].role is \"function\"");
  unsupported(R"({"role":"user","content":[{"type":"image_url","image_url":{}}]})",
              "messages[0].content[0].type is not \"text\"");
  unsupported(R"({"role":"assistant","content":"a","tool_calls":[{}]})",
              "messages[0].tool_calls is not supported");
  unsupported(R"({"role":"assistant","content":"a","refusal":"no"})", "messages[0].refusal");
}

}  // namespace
}  // namespace athanor
