// `athanor-bench llm` from its command line to its files, against servers in this process.
#include <unistd.h>

#include <string>
#include <vector>

#include "clients/bench/commands.h"
#include "clients/bench/progress_line.h"
#include "clients/bench/tokens/fake_generate.h"
#include "clients/bench/tokens/fake_openai.h"
#include "clients/cpp/text_input.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string Path(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name + std::to_string(getpid());
  unlink(path.c_str());
  return path;
}

int Bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"athanor-bench", "llm"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return RunBench(static_cast<int>(argv.size()), argv.data());
}

json Read(const std::string& path) {
  return json::parse(client::ReadFile(path).value_or("null"), nullptr, false);
}

TEST(CommandLlmTest, ARunHasItsFigures) {
  FakeGenerate server;
  const std::string out = Path("run.json"), html = Path("run.html");
  ASSERT_EQ(Bench({"--server", server.address(), "--model", "llm", "--input_tokens", "uniform:2:9",
                   "--output_tokens", "5", "--num_prompts", "12", "--concurrency", "3", "--goodput",
                   "ttft:60000,tpot:60000", "--out", out, "--detailed", "--html", html}),
            kOk);
  const json run = Read(out);
  EXPECT_EQ(run["completed"], 12);
  EXPECT_EQ(run["failed"], 0);
  EXPECT_EQ(run["total_output_tokens"], 60);
  EXPECT_EQ(run["backend"], "athanor-grpc");
  EXPECT_EQ(run["slo_share"], 1);
  EXPECT_EQ(run["options"]["output_tokens"], "5");
  EXPECT_EQ(run["options"]["vocabulary"], 100);
  EXPECT_EQ(run["detailed"]["itls"].size(), 12u);
  for (const json& gaps : run["detailed"]["itls"]) EXPECT_EQ(gaps.size(), 4u);
  EXPECT_FALSE(run.contains("sweep"));
  EXPECT_THAT(client::ReadFile(html).value_or(""), HasSubstr("median_tpot_ms"));
  // Two warm-up calls, with prompts of their own.
  EXPECT_EQ(server.service().calls, 14);
}

TEST(CommandLlmTest, ASweepOfTwoServersAndProtocols) {
  FakeGenerate first;
  FakeOpenAi second;
  const std::string out = Path("sweep.json"), html = Path("sweep.html");
  ASSERT_EQ(Bench({"--server",        first.address(),
                   "--server",        second.address(),
                   "--model",         "llm",
                   "--backend",       "grpc",
                   "--backend",       "openai",
                   "--output_tokens", "3",
                   "--input_tokens",  "4",
                   "--duration",      "200ms",
                   "--slice",         "100ms",
                   "--concurrency",   "1:2:x2",
                   "--label",         "mine",
                   "--out",           out,
                   "--html",          html}),
            kOk);
  const json document = Read(out);
  ASSERT_EQ(document["runs"].size(), 4u);
  ASSERT_EQ(document["comparisons"].size(), 2u);
  EXPECT_EQ(document["runs"][0]["label"], "mine first concurrency 1");
  EXPECT_EQ(document["runs"][3]["label"], "mine second concurrency 2");
  EXPECT_EQ(document["runs"][3]["backend"], "openai");
  EXPECT_EQ(document["runs"][3]["server"], "fake");
  EXPECT_EQ(document["runs"][2]["sweep"], document["runs"][0]["sweep"]);
  EXPECT_NE(document["runs"][1]["sweep"], document["runs"][0]["sweep"]);
  EXPECT_EQ(document["runs"][2]["max_concurrency"], 2);
  EXPECT_TRUE(document["comparisons"][1]["ratios"].contains("output_throughput"));
  EXPECT_EQ(document["comparisons"][1]["first"], "mine first concurrency 2");
  EXPECT_THAT(client::ReadFile(html).value_or(""), HasSubstr("Output tokens over callers"));
  const auto results = ReadResults(out);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->runs.size(), 4u);
  EXPECT_EQ(results->comparisons.size(), 2u);
}

TEST(CommandLlmTest, ExitCodesSayWhatWentWrong) {
  FakeGenerate server;
  const std::vector<std::string> base = {"--server", server.address(), "--num_prompts", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), base.begin(), base.end());
    return Bench(std::move(more));
  };
  EXPECT_EQ(with({"--model", "llm", "--output_tokens", "2", "--input_tokens", "2"}), kOk);
  EXPECT_EQ(with({"--model", "unknown"}), kFailed);
  EXPECT_EQ(with({"--model", "llm", "--input_tokens", "x"}), kUsage);
  EXPECT_EQ(with({"--model", "llm"}), kUsage);  // 128 + 128 do not fit into the model's 64
  EXPECT_EQ(with({"--model", "llm", "--output_tokens", "2", "--input_tokens", "2", "--slo",
                  "ttft:0.000001"}),
            kMissed);
  server.service().end_after = 1;
  EXPECT_EQ(
      with({"--model", "llm", "--output_tokens", "2", "--input_tokens", "2", "--warmup", "0"}),
      kFailed);
}

TEST(ProgressTextTest, SaysWhatIsThere) {
  EXPECT_EQ(ProgressText("", {12.3, 340, 0, 0}), "12 s, 340 answered");
  EXPECT_EQ(ProgressText("concurrency 4", {1, 5, 2, 160}),
            "concurrency 4: 1 s, 5 answered, 2 failed, 160 tokens");
}

}  // namespace
}  // namespace athanor::bench
