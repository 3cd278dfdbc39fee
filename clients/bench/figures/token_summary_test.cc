// Figures of token streams, by numbers computed by hand.
#include <cmath>
#include <memory>
#include <vector>

#include "clients/bench/figures/compare.h"
#include "clients/bench/figures/metrics.h"
#include "clients/bench/figures/summary.h"
#include "clients/bench/figures/summary_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMs = 1'000'000;

// A call due at `due` ms whose chunks came at `chunks` ms, a token each unless told.
CallRecord Call(int64_t due, const std::vector<int64_t>& chunks, int64_t input,
                std::vector<int32_t> tokens = {}) {
  auto stream = std::make_shared<TokenStream>();
  stream->input_tokens = input;
  stream->chunk_tokens = tokens;
  for (int64_t ms : chunks) stream->chunk_ns.push_back(ms * kMs);
  stream->output_tokens = static_cast<int64_t>(chunks.size());
  if (!tokens.empty()) {
    stream->output_tokens = 0;
    for (int32_t count : tokens) stream->output_tokens += count;
  }
  CallRecord record;
  record.due_ns = due * kMs;
  record.sent_ns = record.due_ns + 1 * kMs;
  record.done_ns = chunks.back() * kMs;
  record.queue_us = 4000;
  record.tokens = std::move(stream);
  return record;
}

CallRecord Failed(int64_t due) {
  CallRecord record;
  record.due_ns = record.sent_ns = due * kMs;
  record.done_ns = record.due_ns + 5 * kMs;
  record.code = static_cast<int32_t>(absl::StatusCode::kDataLoss);
  return record;
}

LoadOptions Options() {
  LoadOptions options;
  options.answers = Answers::kTokens;
  options.model = "llm";
  options.phases = {{.seconds = 2, .concurrency = 2}};
  return options;
}

// Three answered calls and one that failed:
//   due    0, chunks 100 120 150 190:          ttft 100, tpot 90/3 = 30, gaps 20 30 40, e2el 190
//   due  200, chunk  250:                      ttft  50, no tpot, no gap, e2el 50
//   due 1000, chunks 1200 1300 of 1, 4 tokens: ttft 200, tpot 100/4 = 25, gap 100, e2el 300
LoadResult Result() {
  LoadResult result;
  result.seconds = 2;
  result.not_sent = {0};
  result.most_outstanding = 2;
  result.calls = {Call(0, {100, 120, 150, 190}, 10), Call(200, {250}, 20), Failed(300),
                  Call(1000, {1200, 1300}, 30, {1, 4})};
  return result;
}

TEST(TokenSummaryTest, FiguresAreThoseOfTheFormulas) {
  const json s = Summarise(Result(), Options(), {});
  EXPECT_DOUBLE_EQ(s["duration"], 1.3);
  EXPECT_EQ(s["completed"], 3);
  EXPECT_EQ(s["failed"], 1);
  EXPECT_EQ(s["num_prompts"], 4);
  EXPECT_NEAR(s["mean_ttft_ms"].get<double>(), 350.0 / 3, 1e-9);
  EXPECT_DOUBLE_EQ(s["median_ttft_ms"], 100);
  EXPECT_DOUBLE_EQ(s["p50_ttft_ms"], 100);
  EXPECT_DOUBLE_EQ(s["p90_ttft_ms"], 100 + 0.8 * 100);
  EXPECT_DOUBLE_EQ(s["p95_ttft_ms"], 100 + 0.9 * 100);
  EXPECT_DOUBLE_EQ(s["p99_ttft_ms"], 100 + 0.98 * 100);
  EXPECT_DOUBLE_EQ(s["mean_tpot_ms"], 27.5);
  EXPECT_DOUBLE_EQ(s["median_tpot_ms"], 27.5);
  EXPECT_NEAR(s["std_tpot_ms"].get<double>(), 2.5 * std::sqrt(2.0), 1e-9);
  EXPECT_DOUBLE_EQ(s["mean_itl_ms"], (20 + 30 + 40 + 100) / 4.0);  // pooled over calls
  EXPECT_DOUBLE_EQ(s["median_itl_ms"], 35);
  EXPECT_DOUBLE_EQ(s["mean_e2el_ms"], (190 + 50 + 300) / 3.0);
  EXPECT_DOUBLE_EQ(s["mean_late_ms"], 1);
  EXPECT_DOUBLE_EQ(s["mean_queue_ms"], 4);
  EXPECT_EQ(s["total_input_tokens"], 60);
  EXPECT_EQ(s["total_output_tokens"], 10);
  EXPECT_NEAR(s["request_throughput"].get<double>(), 3 / 1.3, 1e-9);
  EXPECT_NEAR(s["input_throughput"].get<double>(), 60 / 1.3, 1e-9);
  EXPECT_NEAR(s["output_throughput"].get<double>(), 10 / 1.3, 1e-9);
  EXPECT_NEAR(s["total_token_throughput"].get<double>(), 70 / 1.3, 1e-9);
  // In [0 s, 1 s): 5; in [1 s, 2 s): 1 + 4.
  EXPECT_DOUBLE_EQ(s["max_output_tokens_per_s"], 5);
  EXPECT_NEAR(s["tokens_per_chunk"].get<double>(), 10 / 7.0, 1e-9);
  EXPECT_TRUE(s["request_goodput"].is_null());
}

TEST(TokenSummaryTest, EveryFigureSaysItsFormulaAndTensorsHaveNone) {
  const json tokens = Summarise(Result(), Options(), {});
  for (const auto& [key, value] : tokens.items()) {
    if (!value.is_number() || key == "seed" || key == "connections" || key == "warmups") continue;
    EXPECT_TRUE(tokens["formula"].contains(key)) << key;
  }
  EXPECT_FALSE(tokens.contains("p99_exec_ms"));
  EXPECT_FALSE(tokens.contains("p99_rest_ms"));
  LoadResult tensors = Result();
  for (CallRecord& record : tensors.calls) record.tokens = nullptr;
  LoadOptions options = Options();
  options.answers = Answers::kTensors;
  const json summary = Summarise(tensors, options, {});
  EXPECT_FALSE(summary.contains("p99_ttft_ms"));
  EXPECT_FALSE(summary.contains("output_throughput"));
  EXPECT_TRUE(summary.contains("p99_exec_ms"));
}

// The keys that readers of vLLM's results look for.
TEST(TokenSummaryTest, KeysAreVllms) {
  json summary = Summarise(Result(), Options(), {{"ttft", 100}});
  for (const char* key :
       {"tokenizer_id", "model_id", "num_prompts", "request_rate", "burstiness", "max_concurrency",
        "duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
        "request_throughput", "request_goodput", "output_throughput", "total_token_throughput",
        "max_output_tokens_per_s", "max_concurrent_requests"}) {
    EXPECT_TRUE(summary.contains(key)) << key;
  }
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* statistic : {"mean", "median", "std", "p50", "p90", "p95", "p99"}) {
      EXPECT_TRUE(summary[FigureKey(statistic, metric)].is_number()) << statistic << metric;
    }
  }
}

TEST(TokenSummaryTest, DetailsHaveAnEntryPerCall) {
  const json d = Detailed(Result());
  EXPECT_EQ(d["input_lens"], json::parse("[10, 20, null, 30]"));
  EXPECT_EQ(d["output_lens"], json::parse("[4, 1, null, 5]"));
  EXPECT_EQ(d["errors"], json::parse(R"(["", "", "DATA_LOSS", ""])"));
  EXPECT_NEAR(d["ttfts"][3].get<double>(), 0.2, 1e-12);
  EXPECT_TRUE(d["ttfts"][2].is_null());
  ASSERT_EQ(d["itls"].size(), 4u);
  EXPECT_NEAR(d["itls"][0][2].get<double>(), 0.04, 1e-12);
  EXPECT_EQ(d["itls"][1], json::array());
  EXPECT_EQ(d["itls"][2], json::array());
  EXPECT_NEAR(d["latencies"][0].get<double>(), 0.19, 1e-12);
}

TEST(TokenSummaryTest, GoodputCountsCallsThatMeetEveryLevel) {
  // tpot 27: the one-token call has none and meets it, the first one misses with 30.
  json s = Summarise(Result(), Options(), {{"tpot", 27}});
  EXPECT_NEAR(s["request_goodput"].get<double>(), 2 / 1.3, 1e-9);
  EXPECT_DOUBLE_EQ(s["slo_share"], 0.5);  // the failed one counts
  s = Summarise(Result(), Options(), {{"tpot", 27}, {"ttft", 100}});
  EXPECT_NEAR(s["request_goodput"].get<double>(), 1 / 1.3, 1e-9);
  s = Summarise(Result(), Options(), {{"e2el", 50}});
  EXPECT_NEAR(s["request_goodput"].get<double>(), 1 / 1.3, 1e-9);
}

TEST(TokenSummaryTest, LevelsAreOfTheRunsMetrics) {
  EXPECT_TRUE(ParseSlos("ttft:200,tpot:30,e2el:5000", Answers::kTokens).ok());
  for (const char* text : {"itl:5", "exec:5", "rest:5"}) {
    const absl::Status status = ParseSlos(text, Answers::kTokens).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("ttft, tpot, e2el, late, queue")) << text;
  }
  EXPECT_FALSE(ParseSlos("ttft:5", Answers::kTensors).ok());
}

TEST(TokenSummaryTest, NothingAnsweredIsNullNotZero) {
  LoadResult result = Result();
  result.calls = {Failed(0), Failed(10)};
  const json s = Summarise(result, Options(), {});
  for (const char* key : {"mean_ttft_ms", "p99_tpot_ms", "mean_itl_ms", "tokens_per_chunk"}) {
    EXPECT_TRUE(s[key].is_null()) << key;
  }
  EXPECT_EQ(s["total_output_tokens"], 0);
  EXPECT_EQ(s["output_throughput"], 0);
  EXPECT_EQ(s["errors"][0]["code"], "DATA_LOSS");
  EXPECT_FALSE(Detailed(result).contains("ttfts"));
}

// Streams that differ in length are steady if tokens come evenly.
TEST(TokenSummaryTest, SteadinessIsOfTokens) {
  const auto steady = [](int64_t slower) {
    LoadResult result;
    result.seconds = 3;
    result.not_sent = {0};
    std::vector<int64_t> chunks;
    for (int64_t ms = 5; ms < 3000; ms += 10) {
      if (ms < 2000 || ms % slower == 5) chunks.push_back(ms);
    }
    result.calls = {Call(0, chunks, 1), Call(0, chunks, 1), Call(0, chunks, 1)};
    LoadOptions options = Options();
    options.phases[0].seconds = 3;
    return Summarise(result, options, {})["steady"]["steady"];
  };
  EXPECT_EQ(steady(10), true);
  EXPECT_EQ(steady(20), false);
}

// Calls that are out at the end of the run are waited for; what they bring then is in no window,
// but the time is the run's.
TEST(TokenSummaryTest, SteadinessIsOfTheTimeInWhichCallsWereDue) {
  LoadResult result;
  result.seconds = 3;
  result.not_sent = {0};
  std::vector<int64_t> chunks;
  for (int64_t ms = 5; ms < 6000; ms += ms < 3000 ? 10 : 5) chunks.push_back(ms);
  result.calls = {Call(0, chunks, 1), Call(0, chunks, 1), Call(0, chunks, 1)};
  LoadOptions options = Options();
  options.phases[0].seconds = 3;
  const json s = Summarise(result, options, {});
  EXPECT_DOUBLE_EQ(s["steady"]["throughput_spread"], 1);
  EXPECT_NEAR(s["steady"]["latency_spread"].get<double>(), 1, 1e-9);
  EXPECT_EQ(s["steady"]["steady"], true);
  EXPECT_DOUBLE_EQ(s["phases"][0]["seconds"], s["duration"]);
  EXPECT_DOUBLE_EQ(s["phases"][0]["request_throughput"], s["request_throughput"]);
}

TEST(TokenSummaryTest, TextAndSweepHaveTheFigures) {
  json summary = Summarise(Result(), Options(), {});
  summary["label"] = "concurrency 2";
  const std::string text = SummaryText(summary);
  EXPECT_THAT(text, HasSubstr("7.692 out/s"));
  EXPECT_THAT(text, HasSubstr("ttft  ms"));
  EXPECT_THAT(text, Not(HasSubstr("exec")));
  EXPECT_THAT(text, Not(HasSubstr("cached")));
  summary["total_cached_tokens"] = 15;  // of 60
  EXPECT_THAT(SummaryText(summary), HasSubstr("a chunk, 25 % of in cached\n"));
  const std::string sweep = SweepText({summary, json::object()});
  EXPECT_THAT(sweep, HasSubstr("tokens/s"));
  EXPECT_THAT(sweep, HasSubstr("27.5"));
  EXPECT_THAT(sweep, HasSubstr("concurrency 2\n"));
  EXPECT_THAT(sweep, HasSubstr("callers"));
  summary["request_rate"] = 3.25;
  EXPECT_THAT(SweepText({summary}), HasSubstr("rate/s"));
  EXPECT_THAT(SweepText({summary}), HasSubstr("3.25"));
}

TEST(CurveTextTest, ThroughputAgainstTimes) {
  const auto run = [](int callers, double rate, double p50, double p99) {
    return json{{"max_concurrency", callers},
                {"request_throughput", rate},
                {"median_e2el_ms", p50},
                {"p99_e2el_ms", p99}};
  };
  json refused = run(4, 0, 0, 0);
  refused["median_e2el_ms"] = refused["p99_e2el_ms"] = nullptr;
  // The axis has 41 columns: 1 ms is the first, 100 ms the last, 10 ms the middle.
  EXPECT_EQ(
      CurveText({run(1, 500, 1, 10), run(2, 1000, 10, 100), refused}),
      "   callers                            calls/s  e2el from 1 to 100 ms: o p50, x p99\n"
      "         1  ##########                    500  o-------------------x\n"
      "         2  ####################         1000                      o-------------------x\n"
      "         4                                  0  \n");
  EXPECT_THAT(CurveText({run(1, 500, 3, 3)}), HasSubstr("500  o\n")) << "one time alone";
  EXPECT_EQ(CurveText({refused}), "");
  EXPECT_EQ(CurveText({}), "");
}

TEST(TokenSummaryTest, TwoServersAreComparedByTheirTokens) {
  Interleaved slices{{Options().phases[0], 5}};
  for (int pair = 0; pair < 5; ++pair) {
    slices.first.push_back(Result());
    slices.second.push_back(Result());
    CallRecord& changed = slices.second.back().calls[3];
    changed = Call(1000, {1200, 1300}, 30, {1, 14});  // ten tokens more
  }
  const json ratios = Compare(slices, Options(), Options(), {})["ratios"];
  EXPECT_DOUBLE_EQ(ratios["output_throughput"]["value"], 2);
  EXPECT_NEAR(ratios["total_token_throughput"]["value"].get<double>(), 80 / 70.0, 1e-12);
  EXPECT_DOUBLE_EQ(ratios["p50_ttft_ms"]["value"], 1);
  EXPECT_TRUE(ratios.contains("p99_tpot_ms"));
  EXPECT_TRUE(ratios.contains("mean_itl_ms"));
  EXPECT_FALSE(ratios.contains("p50_exec_ms"));
}

}  // namespace
}  // namespace athanor::bench
