// `athanor-bench llm` from its command line to its files, against servers in this process.
#include <unistd.h>

#include <string>
#include <vector>

#include "clients/bench/commands.h"
#include "clients/bench/progress_line.h"
#include "clients/bench/tokens/fake_generate.h"
#include "clients/bench/tokens/fake_openai.h"
#include "clients/cpp/inputs/text_input.h"
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
  ASSERT_EQ(Bench({"--address", server.address(), "--model", "llm", "--input_tokens", "uniform:2:9",
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
  ASSERT_EQ(Bench({"--address",       first.address(),
                   "--address",       second.address(),
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

TEST(CommandLlmTest, AKneeIsACurveOfRates) {
  FakeGenerate server;
  const std::string out = Path("knee.json"), html = Path("knee.html");
  const auto knee = [&](const std::string& slo) {
    return Bench({"--address", server.address(), "--model", "llm",        "--output_tokens",
                  "2",         "--input_tokens", "2",       "--duration", "300ms",
                  "--arrival", "fixed",          "--rate",  "10",         "--timeout",
                  "10s",       "--knee",         "--slo",   slo,          "--out",
                  out,         "--html",         html});
  };
  EXPECT_EQ(knee("ttft:0.000001"), kMissed);
  json runs = Read(out)["runs"];
  ASSERT_EQ(runs.size(), 11u);  // 10 calls/s halved down to a 1024th
  for (size_t i = 1; i < runs.size(); ++i) {
    EXPECT_LT(runs[i - 1]["options"]["phases"][0]["rate"], runs[i]["options"]["phases"][0]["rate"]);
  }
  EXPECT_EQ(runs[10]["label"], "rate 10");
  EXPECT_EQ(runs[0]["sweep"], runs[10]["sweep"]);
  EXPECT_THAT(client::ReadFile(html).value_or(""), HasSubstr("Goodput over rate"));
}

TEST(CommandLlmTest, ATraceIsSentAsItSays) {
  FakeGenerate server;
  const std::string out = Path("trace.json"), trace = Path("trace.jsonl");
  ASSERT_TRUE(
      client::WriteFile(trace,
                        R"({"timestamp": 0, "input_length": 5, "output_length": 7, "hash_ids": [0]}
{"timestamp": 20, "input_length": 9, "output_length": 2, "hash_ids": [0]})")
          .ok());
  ASSERT_EQ(Bench({"--address", server.address(), "--model", "llm", "--trace", trace, "--warmup",
                   "0", "--out", out}),
            kOk);
  const json run = Read(out);
  EXPECT_EQ(run["completed"], 2);
  EXPECT_EQ(run["arrival"], "trace");
  EXPECT_EQ(run["total_input_tokens"], 14);
  EXPECT_EQ(run["total_output_tokens"], 9);
  EXPECT_EQ(run["options"]["trace"], trace);
  const std::vector<v1::GenerateRequest> requests = server.service().requests();
  ASSERT_EQ(requests.size(), 2u);
  const auto& one = requests[0].tokens().ids();
  const auto& other = requests[1].tokens().ids();
  ASSERT_EQ(one.size() + other.size(), 14);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(one[i], other[i]);
}

TEST(CommandLlmTest, ConversationsGrow) {
  FakeGenerate server;
  const std::string out = Path("turns.json");
  ASSERT_EQ(Bench({"--address",       server.address(),
                   "--model",         "llm",
                   "--input_tokens",  "3",
                   "--output_tokens", "2",
                   "--shared_prefix", "4:2",
                   "--turns",         "3",
                   "--think",         "1ms",
                   "--num_prompts",   "4",
                   "--warmup",        "0",
                   "--out",           out}),
            kOk);
  std::vector<int> lengths;
  for (const v1::GenerateRequest& request : server.service().requests()) {
    lengths.push_back(request.tokens().ids_size());
  }
  EXPECT_THAT(lengths, testing::ElementsAre(7, 12, 17, 7));
  EXPECT_EQ(Read(out)["options"]["turns"], 3);
}

TEST(CommandLlmTest, ExitCodesSayWhatWentWrong) {
  FakeGenerate server;
  const std::vector<std::string> base = {"--address", server.address(), "--num_prompts", "2"};
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
  EXPECT_EQ(ProgressText("", {3, 340, 0, 0, 30}), "3 of 30 s, 340 answered");
}

}  // namespace
}  // namespace athanor::bench
