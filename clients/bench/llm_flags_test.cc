#include "clients/bench/llm_flags.h"

#include <unistd.h>

#include <cmath>

#include "clients/bench/tokens/openai_backend.h"
#include "clients/cpp/inputs/text_input.h"
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
  LlmPlan plan;
  if (absl::Status s = PrepareRunFlags(flags.llm, &flags.run, &plan); !s.ok()) return s;
  absl::StatusOr<RunPlan> parsed = ParseRunFlags(flags.run);
  if (!parsed.ok()) return parsed.status();
  if (absl::Status s = ParseLlmFlags(flags.llm, &*parsed, &plan); !s.ok()) return s;
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
      {"--shared_prefix", [](All* f) { f->llm.shared_prefix = "0"; }},
      {"--shared_prefix", [](All* f) { f->llm.shared_prefix = "10:"; }},
      {"--shared_prefix", [](All* f) { f->llm.shared_prefix = "10:0"; }},
      {"--shared_prefix", [](All* f) { f->llm.shared_prefix = "10:2:3"; }},
      {"--turns", [](All* f) { f->llm.turns = 0; }},
      {"--turns", [](All* f) { f->llm.turns = 1001; }},
      {"--turns", [](All* f) { f->llm.turns = 2, f->run.rate = "5"; }},
      {"--trace", [](All* f) { f->llm.trace = "/dev/null"; }},
      {"--input_tokens", [](All* f) { f->llm.trace = "t", f->llm.input_tokens = "5"; }},
      {"--output_tokens", [](All* f) { f->llm.trace = "t", f->llm.output_tokens = "5"; }},
      {"--turns", [](All* f) { f->llm.trace = "t", f->llm.turns = 2; }},
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

TEST(LlmFlagsTest, PromptsMaySharePrefixesAndHaveTurns) {
  All flags = Flags();
  flags.run.seed = 9;
  flags.llm.shared_prefix = "1000:4";
  flags.llm.turns = 3;
  flags.run.think = "2s";
  RunPlan run;
  const auto plan = Parse(flags, &run);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prompts.prefix_tokens, 1000);
  EXPECT_EQ(plan->prompts.prefix_groups, 4);
  EXPECT_EQ(plan->prompts.prefix_seed, 9u);
  EXPECT_EQ(plan->prompts.turns, 3);
  EXPECT_EQ(run.load.think, absl::Seconds(2));
  flags.llm.shared_prefix = "7";
  EXPECT_EQ(Parse(flags)->prompts.prefix_groups, 1);
}

TEST(LlmFlagsTest, ATraceSaysWhatAndWhen) {
  All flags = Flags();
  flags.llm.trace = testing::TempDir() + "/trace" + std::to_string(getpid());
  const std::string rest = R"(, "input_length": 5, "output_length": 7, "hash_ids": [0]})";
  ASSERT_TRUE(client::WriteFile(flags.llm.trace, "{\"timestamp\": 0" + rest + "\n" +
                                                     "{\"timestamp\": 3500" + rest + "\n")
                  .ok());
  RunPlan run;
  auto plan = Parse(flags, &run);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_NE(plan->prompts.trace, nullptr);
  EXPECT_EQ(plan->prompts.trace->size(), 2u);
  EXPECT_EQ(run.load.arrival, Arrival::kTrace);
  EXPECT_EQ(run.load.due, (std::vector<double>{0, 3.5}));
  EXPECT_EQ(run.load.phases[0].seconds, 3.5);
  flags.run.duration = "3s";
  plan = Parse(flags, &run);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(run.load.due, std::vector<double>{0});
  EXPECT_EQ(run.load.phases[0].seconds, 3);
  const std::pair<const char*, void (*)(All*)> cases[] = {
      {"--rate", [](All* f) { f->run.rate = "5"; }},
      {"--arrival", [](All* f) { f->run.arrival = "poisson"; }},
      {"--concurrency", [](All* f) { f->run.concurrency = "5"; }},
      {"--phase", [](All* f) { f->run.phases = {"1s:rate=5"}; }},
      {"--knee", [](All* f) { f->run.knee = true; }},
      {"--think", [](All* f) { f->run.think = "1s"; }},
      {"--address", [](All* f) { f->run.servers = {"a:1", "b:1"}; }},
  };
  for (const auto& [flag, change] : cases) {
    All changed = flags;
    change(&changed);
    EXPECT_THAT(std::string(Parse(changed).status().message()), HasSubstr(flag)) << flag;
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
