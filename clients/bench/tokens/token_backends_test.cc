// Loads of token streams against servers in this process. Checks counts, orders and messages, never
// times.
#include <algorithm>
#include <thread>

#include "clients/bench/load/load.h"
#include "clients/bench/tokens/fake_generate.h"
#include "clients/bench/tokens/fake_openai.h"
#include "clients/bench/tokens/generate_backend.h"
#include "clients/bench/tokens/openai_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;

LoadOptions Options(int64_t calls, int callers = 2) {
  LoadOptions options;
  options.answers = Answers::kTokens;
  options.address = "fake";
  options.model = "llm";
  options.phases = {{.seconds = 60, .concurrency = callers}};
  options.most_calls = calls;
  options.timeout = absl::Seconds(20);
  return options;
}

PromptOptions Prompts(int64_t input, int64_t output) {
  PromptOptions prompts;
  prompts.input = Lengths(input);
  prompts.output = Lengths(output);
  prompts.vocabulary = 50;
  return prompts;
}

LoadResult Measured(const LoadOptions& options, std::unique_ptr<Backend> backend) {
  auto load = Load::Create(options, std::move(backend));
  EXPECT_TRUE(load.ok()) << load.status();
  return load.ok() ? (*load)->Run(options.phases, options.seed) : LoadResult();
}

std::unique_ptr<Backend> Grpc(const FakeGenerate& server, const PromptOptions& prompts,
                              bool ignore_eos = true) {
  return MakeGenerateBackend({server.address(), {}, 1}, {"llm", "3", ignore_eos, 0.5}, prompts);
}

std::unique_ptr<Backend> OpenAi(const FakeOpenAi& server, const PromptOptions& prompts,
                                bool ignore_eos = true) {
  return MakeOpenAiBackend({server.address()}, {"llm", "", ignore_eos, 0.5}, prompts);
}

void ExpectStreams(const LoadResult& result, int64_t input, int64_t output, size_t chunks) {
  for (const CallRecord& record : result.calls) {
    ASSERT_TRUE(record.answered());
    ASSERT_NE(record.tokens, nullptr);
    EXPECT_EQ(record.tokens->input_tokens, input);
    EXPECT_EQ(record.tokens->output_tokens, output);
    const std::vector<int64_t>& at = record.tokens->chunk_ns;
    EXPECT_EQ(at.size(), chunks);
    EXPECT_TRUE(std::is_sorted(at.begin(), at.end()));
    EXPECT_GE(at.front(), record.sent_ns);
    EXPECT_EQ(at.back(), record.done_ns);
  }
}

// Expects that every call failed with the code and a message with `why`.
void ExpectFailed(const LoadResult& result, absl::StatusCode code, const std::string& why) {
  ASSERT_FALSE(result.calls.empty());
  for (const CallRecord& record : result.calls) {
    EXPECT_EQ(record.code, static_cast<int>(code)) << why;
    EXPECT_EQ(record.tokens, nullptr);
  }
  const auto message = result.messages.find(static_cast<int>(code));
  ASSERT_NE(message, result.messages.end()) << why;
  EXPECT_THAT(message->second, HasSubstr(why));
}

TEST(GenerateBackendTest, StreamsAreRecordedChunkByChunk) {
  FakeGenerate server;
  server.service().chunk = 3;
  const LoadResult result = Measured(Options(9), Grpc(server, Prompts(6, 7)));
  ASSERT_EQ(result.calls.size(), 9u);
  ExpectStreams(result, 6, 7, 3);
  EXPECT_EQ(result.calls[0].tokens->chunk_tokens, (std::vector<int32_t>{3, 3, 1}));
  EXPECT_EQ(result.calls[0].tokens->cached_tokens, 1);
  EXPECT_EQ(result.calls[0].queue_us, 250);
  EXPECT_EQ(result.plan_ids, std::vector<std::string>{"p-1"});
  EXPECT_EQ(server.service().calls, 9);
}

TEST(GenerateBackendTest, RequestsSayWhatIsAskedFor) {
  FakeGenerate server;
  Measured(Options(3, 1), Grpc(server, Prompts(6, 7)));
  const std::vector<v1::GenerateRequest> requests = server.service().requests();
  ASSERT_EQ(requests.size(), 3u);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].model(), "llm");
    EXPECT_EQ(requests[i].version(), "3");
    EXPECT_TRUE(requests[i].ignore_eos());
    EXPECT_EQ(requests[i].max_tokens(), 7);
    EXPECT_EQ(requests[i].sampling().temperature(), 0.5f);
    const Prompt prompt = MakePrompt(Prompts(6, 7), 0, static_cast<int64_t>(i));
    EXPECT_TRUE(std::equal(prompt.tokens.begin(), prompt.tokens.end(),
                           requests[i].tokens().ids().begin(), requests[i].tokens().ids().end()));
  }
}

TEST(GenerateBackendTest, TextsAndChatsAreSentAsSuch) {
  FakeGenerate server;
  PromptOptions prompts = Prompts(1, 2);
  prompts.texts = {"hello"};
  Measured(Options(1, 1), Grpc(server, prompts));
  prompts.chat = true;
  Measured(Options(1, 1), Grpc(server, prompts, /*ignore_eos=*/false));
  const std::vector<v1::GenerateRequest> requests = server.service().requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].text(), "hello");
  ASSERT_EQ(requests[1].chat().messages_size(), 1);
  EXPECT_EQ(requests[1].chat().messages(0).role(), "user");
  EXPECT_EQ(requests[1].chat().messages(0).content(), "hello");
  EXPECT_FALSE(requests[1].ignore_eos());
}

// Each caller has a conversation of its own: prompts of 6, 6 + 2 + 6, 14 + 2 + 6 tokens.
TEST(GenerateBackendTest, AConversationGoesOnWithItsTokens) {
  FakeGenerate server;
  PromptOptions prompts = Prompts(6, 2);
  prompts.turns = 3;
  const LoadResult result = Measured(Options(4, 1), Grpc(server, prompts));
  EXPECT_EQ(result.calls.size(), 4u);
  const std::vector<v1::GenerateRequest> requests = server.service().requests();
  ASSERT_EQ(requests.size(), 4u);
  std::vector<int32_t> said;
  for (int64_t i = 0; i < 3; ++i) {
    const std::vector<int32_t> own = DrawPrompt(prompts, 0, i).tokens;
    said.insert(said.end(), own.begin(), own.end());
    const auto& ids = requests[static_cast<size_t>(i)].tokens().ids();
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.end()), said) << i;
    said.insert(said.end(), {7, 7});  // the fake server's tokens
  }
  EXPECT_EQ(requests[3].tokens().ids_size(), 6);
}

TEST(GenerateBackendTest, AConversationOfACallThatFailsIsOver) {
  FakeGenerate server;
  server.service().fail_late = true;
  PromptOptions prompts = Prompts(6, 2);
  prompts.turns = 3;
  Measured(Options(3, 1), Grpc(server, prompts));
  for (const v1::GenerateRequest& request : server.service().requests()) {
    EXPECT_EQ(request.tokens().ids_size(), 6);
  }
}

TEST(GenerateBackendTest, AChatGoesOnWithItsMessages) {
  FakeGenerate server;
  PromptOptions prompts = Prompts(1, 2);
  prompts.texts = {"one", "two"};
  prompts.chat = true;
  prompts.turns = 2;
  Measured(Options(2, 1), Grpc(server, prompts));
  const std::vector<v1::GenerateRequest> requests = server.service().requests();
  ASSERT_EQ(requests.size(), 2u);
  ASSERT_EQ(requests[1].chat().messages_size(), 3);
  EXPECT_EQ(requests[1].chat().messages(0).content(), "one");
  EXPECT_EQ(requests[1].chat().messages(1).role(), "assistant");
  EXPECT_EQ(requests[1].chat().messages(1).content(), "held back");  // the fake server's text
  EXPECT_EQ(requests[1].chat().messages(2).content(), "two");
}

TEST(GenerateBackendTest, OneTokenHasNoGap) {
  FakeGenerate server;
  ExpectStreams(Measured(Options(2), Grpc(server, Prompts(1, 1))), 1, 1, 1);
}

TEST(GenerateBackendTest, AStreamThatEndsEarlyFails) {
  FakeGenerate server;
  server.service().end_after = 2;
  ExpectFailed(Measured(Options(2), Grpc(server, Prompts(4, 5))), absl::StatusCode::kDataLoss,
               "2 of 5 tokens: it ended early");
  ExpectStreams(Measured(Options(2), Grpc(server, Prompts(4, 5), /*ignore_eos=*/false)), 4, 2, 2);
  server.service().end_after = 0;
  for (bool ignore_eos : {true, false}) {
    ExpectFailed(Measured(Options(2), Grpc(server, Prompts(4, 5), ignore_eos)),
                 absl::StatusCode::kDataLoss, "without a token");
  }
}

TEST(GenerateBackendTest, AStreamThatIsCutOrLiesFails) {
  FakeGenerate server;
  server.service().no_finish = true;
  ExpectFailed(Measured(Options(2), Grpc(server, Prompts(4, 3))), absl::StatusCode::kDataLoss,
               "cut after 3 of 3 tokens");
  server.service().no_finish = false;
  server.service().fail_late = true;
  ExpectFailed(Measured(Options(2), Grpc(server, Prompts(4, 3))), absl::StatusCode::kInternal,
               "the plan failed (after 3 of 3 tokens)");
  server.service().fail_late = false;
  server.service().lie = 1;
  ExpectFailed(Measured(Options(2), Grpc(server, Prompts(4, 3))), absl::StatusCode::kDataLoss,
               "brought 3 tokens, but its usage says 4");
}

TEST(GenerateBackendTest, RefusedAndLateCallsKeepTheirCode) {
  FakeGenerate server;
  server.service().refuse = true;
  ExpectFailed(Measured(Options(2), Grpc(server, Prompts(4, 3))),
               absl::StatusCode::kResourceExhausted, "too many sequences");
  server.service().refuse = false;
  server.service().stuck = true;
  LoadOptions options = Options(2);
  options.timeout = absl::Milliseconds(200);
  ExpectFailed(Measured(options, Grpc(server, Prompts(4, 3))), absl::StatusCode::kDeadlineExceeded,
               "");
}

TEST(GenerateBackendTest, AServerThatDiesEndsItsStreams) {
  FakeGenerate server;
  server.service().stuck = true;
  std::thread killer([&] {
    while (server.service().calls < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server.Stop();
  });
  LoadOptions options = Options(6);
  const LoadResult result = Measured(options, Grpc(server, Prompts(4, 3)));
  killer.join();
  EXPECT_EQ(result.calls.size(), 6u);
  for (const CallRecord& record : result.calls) EXPECT_FALSE(record.answered());
  EXPECT_TRUE(result.messages.contains(static_cast<int>(absl::StatusCode::kUnavailable)));
}

TEST(GenerateBackendTest, AnOpenLoopSendsWhatIsDue) {
  FakeGenerate server;
  LoadOptions options = Options(kMostStreams);
  options.arrival = Arrival::kPoisson;
  options.phases = {{0.5, 60, 60}};
  options.warmups = 3;
  const LoadResult result = Measured(options, Grpc(server, Prompts(4, 3)));
  EXPECT_GT(result.calls.size(), 5u);
  EXPECT_EQ(server.service().calls, static_cast<int64_t>(result.calls.size()) + 3);
  ExpectStreams(result, 4, 3, 3);
}

TEST(GenerateBackendTest, TheEngineIsAsked) {
  FakeGenerate server;
  const auto engine = GetEngine({server.address(), {}, 1}, "llm", "", absl::Seconds(20));
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(engine->vocabulary(), 100);
  EXPECT_EQ(GetEngine({server.address(), {}, 1}, "x", "", absl::Seconds(20)).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(OpenAiBackendTest, CompletionsTakeTokens) {
  FakeOpenAi server;
  const LoadResult result = Measured(Options(8, 3), OpenAi(server, Prompts(6, 4)));
  ASSERT_EQ(result.calls.size(), 8u);
  ExpectStreams(result, 5, 4, 4);
  EXPECT_TRUE(result.calls[0].tokens->chunk_tokens.empty());
  EXPECT_EQ(result.calls[0].queue_us, -1);
  EXPECT_EQ(server.closing, 8);  // some servers end connections though they promise to keep them
  const json request = server.requests()[0];
  EXPECT_EQ(request["model"], "llm");
  EXPECT_EQ(request["prompt"].size(), 6u);
  EXPECT_EQ(request["max_tokens"], 4);
  EXPECT_EQ(request["temperature"], 0.5);
  EXPECT_EQ(request["stream"], true);
  EXPECT_EQ(request["ignore_eos"], true);
  EXPECT_EQ(request["stream_options"], json({{"include_usage", true}}));
}

TEST(OpenAiBackendTest, ChatsTakeTexts) {
  FakeOpenAi server;
  PromptOptions prompts = Prompts(6, 4);
  prompts.texts = {"hi \xff"};  // not UTF-8: replaced, no crash
  Measured(Options(1, 1), OpenAi(server, prompts, /*ignore_eos=*/false));
  prompts.chat = true;
  ExpectStreams(Measured(Options(3), OpenAi(server, prompts)), 5, 4, 4);
  EXPECT_THAT(server.requests()[0]["prompt"].get<std::string>(), HasSubstr("hi "));
  EXPECT_FALSE(server.requests()[0].contains("ignore_eos"));
  EXPECT_EQ(server.requests()[1]["messages"][0]["role"], "user");
}

TEST(OpenAiBackendTest, AConversationGoesOn) {
  FakeOpenAi server;
  PromptOptions prompts = Prompts(6, 2);
  prompts.turns = 2;
  Measured(Options(2, 1), OpenAi(server, prompts));
  prompts.texts = {"one", "two"};
  prompts.chat = true;
  Measured(Options(2, 1), OpenAi(server, prompts));
  const std::vector<json> requests = server.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[1]["prompt"].size(), 14u);
  const auto message = [](const char* role, const char* text) {
    return json{{"role", role}, {"content", text}};
  };
  EXPECT_EQ(
      requests[3]["messages"],
      json::array({message("user", "one"), message("assistant", "aa"), message("user", "two")}));
}

// The key is the bearer token of calls and of the question about the model.
TEST(OpenAiBackendTest, TheKeyIsSent) {
  FakeOpenAi server;
  Measured(Options(1, 1), MakeOpenAiBackend({.address = server.address(), .api_key = "secret"},
                                            {"llm", "", true, 0}, Prompts(6, 4)));
  EXPECT_EQ(server.authorization(), "Bearer secret");
  Measured(Options(1, 1), OpenAi(server, Prompts(6, 4)));
  EXPECT_EQ(server.authorization(), "");
}

TEST(OpenAiBackendTest, WrongAnswersAreNamed) {
  struct Case {
    void (*change)(FakeOpenAi* server);
    absl::StatusCode code;
    const char* why;
  };
  const Case cases[] = {
      {[](FakeOpenAi* s) { s->status = 400, s->body = R"({"error":{"message":"too long"}})"; },
       absl::StatusCode::kInvalidArgument, "HTTP 400: too long"},
      {[](FakeOpenAi* s) { s->status = 503, s->body = "loading"; }, absl::StatusCode::kUnavailable,
       "HTTP 503: loading"},
      {[](FakeOpenAi* s) { s->type = "application/json"; }, absl::StatusCode::kDataLoss,
       "no stream of events"},
      {[](FakeOpenAi* s) { s->body = OpenAiEvents(2, false); }, absl::StatusCode::kDataLoss,
       "2 of 4 tokens: it ended early"},
      {[](FakeOpenAi* s) { s->body = OpenAiEvents(0, false); }, absl::StatusCode::kDataLoss,
       "without a token"},
      {[](FakeOpenAi* s) { s->body = "data: {\"choices\": [\n\n"; }, absl::StatusCode::kDataLoss,
       "no JSON object"},
      {[](FakeOpenAi* s) { s->body = OpenAiEvents(4, false).substr(0, 150); },
       absl::StatusCode::kDataLoss, "without [DONE]"},
      {[](FakeOpenAi* s) { s->body = OpenAiEvents(4, false).substr(0, 150), s->cut = true; },
       absl::StatusCode::kUnavailable, "the connection was lost after 2 of 4 tokens"},
  };
  for (const Case& c : cases) {
    FakeOpenAi server;
    c.change(&server);
    ExpectFailed(Measured(Options(2), OpenAi(server, Prompts(6, 4))), c.code, c.why);
  }
}

TEST(OpenAiBackendTest, NobodyThereIsUnavailable) {
  std::string address;
  {
    FakeOpenAi server;
    address = server.address();
  }
  std::unique_ptr<Backend> backend =
      MakeOpenAiBackend({address}, {"llm", "", true, 0}, Prompts(6, 4));
  ExpectFailed(Measured(Options(2), std::move(backend)), absl::StatusCode::kUnavailable,
               "the connection failed");
  EXPECT_EQ(FindModel({address}, "llm", absl::Seconds(5)).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(OpenAiBackendTest, ModelsAreFoundByName) {
  FakeOpenAi server;
  const auto find = [&](const std::string& name) {
    return FindModel({server.address()}, name, absl::Seconds(20));
  };
  EXPECT_EQ(find("any name")->vocabulary, 90);  // a server of one model takes any
  EXPECT_EQ(find("llm")->owner, "fake");
  EXPECT_EQ(find("llm")->max_model_len, 50);
  server.models =
      R"({"data": [{"id": "a", "meta": 3}, {"id": "b", "max_model_len": 9, "meta": {"n_vocab": 7}}]})";
  EXPECT_EQ(find("b")->vocabulary, 7);
  EXPECT_EQ(find("b")->max_model_len, 9);
  EXPECT_EQ(find("a")->vocabulary, 0);
  EXPECT_EQ(find("c")->vocabulary, 0);
  server.models = "[]";
  EXPECT_EQ(find("a")->vocabulary, 0);
}

}  // namespace
}  // namespace athanor::bench
