#include "clients/bench/llm_flags.h"

#include <unistd.h>

#include <cmath>

#include "clients/bench/tokens/openai_backend.h"
#include "clients/cpp/text_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::HasSubstr;

struct All {
  RunFlags run;
  LlmFlags llm;
};

All Flags() {
  All flags;
  flags.run.servers = {"a:1"};
  flags.llm.models = {"llm/2"};
  return flags;
}

absl::StatusOr<LlmPlan> Parse(All flags, RunPlan* run = nullptr) {
  if (absl::Status s = PrepareRunFlags(flags.llm, &flags.run); !s.ok()) return s;
  absl::StatusOr<RunPlan> parsed = ParseRunFlags(flags.run);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<LlmPlan> plan = ParseLlmFlags(flags.llm, &*parsed);
  if (run != nullptr) *run = *std::move(parsed);
  return plan;
}

TEST(LlmFlagsTest, DefaultsAreRandomPromptsOverGrpc) {
  RunPlan run;
  const auto plan = Parse(Flags(), &run);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->servers.size(), 1u);
  EXPECT_EQ(plan->servers[0].protocol, Protocol::kGrpc);
  EXPECT_EQ(plan->servers[0].address, "a:1");
  EXPECT_EQ(plan->servers[0].model, "llm/2");
  EXPECT_EQ(plan->prompts.input.fixed(), 128);
  EXPECT_EQ(plan->prompts.output.fixed(), 128);
  EXPECT_EQ(run.load.answers, Answers::kTokens);
}

TEST(LlmFlagsTest, TwoServersMayDifferInAll) {
  All flags = Flags();
  flags.run.servers = {"a:1", "b:2"};
  flags.llm.models = {"llm", "other.gguf"};
  flags.llm.backends = {"grpc", "openai"};
  RunPlan run;
  auto plan = Parse(flags, &run);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->servers[1].protocol, Protocol::kOpenAi);
  EXPECT_EQ(plan->servers[1].address, "b:2");
  EXPECT_EQ(plan->servers[1].model, "other.gguf");
  EXPECT_EQ(run.load.most_outstanding, kMostOpenAiCalls);
  flags.llm.models = {"llm"};
  flags.llm.backends = {"openai"};
  plan = Parse(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->servers[0].protocol, Protocol::kOpenAi);
  EXPECT_EQ(plan->servers[1].model, "llm");
}

TEST(LlmFlagsTest, AbsurdFlagsAreRefusedByName) {
  struct Case {
    const char* flag;
    void (*change)(All* flags);
  };
  const Case cases[] = {
      {"--model", [](All* f) { f->llm.models = {"a", "b"}; }},
      {"--backend", [](All* f) { f->llm.backends = {"grpc", "grpc"}; }},
      {"--backend", [](All* f) { f->llm.backends = {"http"}; }},
      {"--input_tokens", [](All* f) { f->llm.input_tokens = "many"; }},
      {"--output_tokens", [](All* f) { f->llm.output_tokens = "0"; }},
      {"--prompts", [](All* f) { f->llm.prompts = "/no/such"; }},
      {"--chat", [](All* f) { f->llm.chat = true; }},
      {"--temperature", [](All* f) { f->llm.temperature = -1; }},
      {"--temperature", [](All* f) { f->llm.temperature = std::nan(""); }},
      {"--vocabulary", [](All* f) { f->llm.vocabulary = 0; }},
      {"--max_model_len", [](All* f) { f->llm.max_model_len = 1; }},
      {"--slo", [](All* f) { f->run.slo = "itl:5"; }},
      {"--connections", [](All* f) { f->llm.backends = {"openai"}, f->run.connections = 2; }},
      {"--concurrency",
       [](All* f) { f->llm.backends = {"openai"}, f->run.concurrency = "1,5000"; }},
  };
  for (const Case& c : cases) {
    All flags = Flags();
    c.change(&flags);
    const absl::Status status = Parse(flags).status();
    EXPECT_FALSE(status.ok()) << c.flag;
    if (std::string(c.flag) != "--prompts") {
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.flag));
    }
  }
}

TEST(LlmFlagsTest, LengthsOfTextsAreTheirOwn) {
  All flags = Flags();
  flags.llm.prompts = testing::TempDir() + "/prompts" + std::to_string(getpid());
  ASSERT_TRUE(client::WriteFile(flags.llm.prompts, "\"a\"\n").ok());
  flags.llm.chat = true;
  const auto plan = Parse(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->prompts.chat);
  flags.llm.input_tokens = "5";
  EXPECT_THAT(std::string(Parse(flags).status().message()), HasSubstr("--input_tokens"));
}

TEST(LlmFlagsTest, PromptsFitEveryServer) {
  PromptOptions prompts;
  EXPECT_THAT(std::string(FitPrompts({{}}, &prompts).message()), HasSubstr("--vocabulary"));
  prompts = {};
  ASSERT_TRUE(FitPrompts({{500, 4096, {2}}, {400, 0, {3}}}, &prompts).ok());
  EXPECT_EQ(prompts.vocabulary, 400);
  EXPECT_EQ(prompts.max_model_len, 4096);
  EXPECT_EQ(prompts.not_drawn, (std::vector<int32_t>{2, 3}));
  prompts = {};
  prompts.vocabulary = 300;
  prompts.max_model_len = 1000;
  ASSERT_TRUE(FitPrompts({{500, 4096, {}}}, &prompts).ok());
  EXPECT_EQ(prompts.vocabulary, 300);
  EXPECT_EQ(prompts.max_model_len, 1000);
  EXPECT_FALSE(FitPrompts({{500, 100, {}}}, &prompts).ok());  // 128 + 128 do not fit
}

}  // namespace
}  // namespace athanor::bench
