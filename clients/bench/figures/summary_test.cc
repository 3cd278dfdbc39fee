#include "clients/bench/figures/summary.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "clients/bench/figures/metrics.h"
#include "clients/bench/figures/summary_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

LoadOptions Options(double seconds, double rate) {
  LoadOptions options;
  options.model = "m";
  options.arrival = Arrival::kFixed;
  options.phases = {{seconds, rate, rate}};
  return options;
}

// Makes evenly spaced calls; each takes `ms(i)`, of which the server reports 1 ms queue and 2 ms
// exec.
template <typename Latency>
LoadResult Result(double seconds, int calls, Latency ms) {
  LoadResult result;
  result.seconds = seconds;
  result.not_sent = {0};
  result.plan_ids = {"p-1"};
  result.most_outstanding = 1;
  for (int i = 0; i < calls; ++i) {
    CallRecord record;
    record.due_ns = record.sent_ns = static_cast<int64_t>(i * seconds / calls * 1e9);
    record.done_ns = record.due_ns + static_cast<int64_t>(ms(i) * 1e6);
    record.queue_us = 1000;
    record.exec_us = 2000;
    record.plan = 0;
    result.calls.push_back(record);
  }
  return result;
}

TEST(SummaryTest, FiguresAreTheirDefinitions) {
  const LoadResult result = Result(10, 1000, [](int i) { return 5 + i % 10; });
  const json summary = Summarise(result, Options(10, 100), {{"e2el", 10}});
  EXPECT_EQ(summary["completed"], 1000);
  EXPECT_EQ(summary["num_prompts"], 1000);
  EXPECT_EQ(summary["failed"], 0);
  EXPECT_DOUBLE_EQ(summary["request_rate"], 100);
  // The last call is due at 9.99 s and takes 14 ms.
  EXPECT_NEAR(summary["duration"].get<double>(), 10.004, 1e-9);
  EXPECT_NEAR(summary["request_throughput"].get<double>(), 1000 / 10.004, 1e-9);
  // Calls of 5 to 10 ms meet the level: six of ten.
  EXPECT_NEAR(summary["request_goodput"].get<double>(), 600 / 10.004, 1e-9);
  EXPECT_DOUBLE_EQ(summary["slo_share"], 0.6);
  EXPECT_NEAR(summary["mean_e2el_ms"].get<double>(), 9.5, 1e-9);
  EXPECT_NEAR(summary["median_e2el_ms"].get<double>(), 9.5, 1e-9);
  EXPECT_EQ(summary["p50_e2el_ms"], summary["median_e2el_ms"]);
  EXPECT_NEAR(summary["p99_e2el_ms"].get<double>(), 14, 1e-9);
  EXPECT_NEAR(summary["std_e2el_ms"].get<double>(), std::sqrt(8.25 * 1000 / 999), 1e-9);
  EXPECT_DOUBLE_EQ(summary["mean_queue_ms"], 1);
  EXPECT_DOUBLE_EQ(summary["mean_exec_ms"], 2);
  EXPECT_NEAR(summary["mean_rest_ms"].get<double>(), 6.5, 1e-9);
  EXPECT_DOUBLE_EQ(summary["mean_late_ms"], 0);
  EXPECT_TRUE(summary["mean_batch_ms"].is_null());
  EXPECT_EQ(summary["plans"][0]["calls"], 1000);
}

// The parts of a call add up to the whole.
TEST(SummaryTest, TheSplitAddsUp) {
  CallRecord record;
  record.due_ns = 1 * kMs;
  record.sent_ns = 4 * kMs;
  record.done_ns = 20 * kMs;
  record.queue_us = 2000;
  record.batch_us = 500;
  record.exec_us = 7000;
  double parts = 0;
  for (const Metric& metric : Metrics()) {
    if (IsOf(metric, Answers::kTensors) && metric.name != "e2el") parts += *metric.ms(record);
  }
  EXPECT_DOUBLE_EQ(parts, 19);
  EXPECT_DOUBLE_EQ(*FindMetric("e2el")->ms(record), 19);
  EXPECT_DOUBLE_EQ(*FindMetric("late")->ms(record), 3);
}

TEST(SummaryTest, EveryFigureSaysItsFormula) {
  const LoadResult result = Result(10, 100, [](int) { return 5; });
  const json summary = Summarise(result, Options(10, 10), {});
  int figures = 0;
  for (const auto& [key, value] : summary.items()) {
    if (!value.is_number() || key == "seed" || key == "connections" || key == "warmups") continue;
    EXPECT_TRUE(summary["formula"].contains(key)) << key;
    ++figures;
  }
  EXPECT_GT(figures, 40);
  EXPECT_THAT(summary["formula"]["p999_queue_ms"].get<std::string>(), HasSubstr("queue_us"));
}

TEST(SummaryTest, IntervalsHoldTheirValueAndNarrowWithTheRun) {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> latency(1, 0.5);
  const auto drawn = [&](int) { return latency(random); };
  double width = 1e9;
  for (double seconds : {20.0, 320.0}) {
    const json summary =
        Summarise(Result(seconds, static_cast<int>(seconds * 50), drawn), Options(seconds, 50), {});
    for (const char* key : {"mean_e2el_ms", "p50_e2el_ms", "p99_e2el_ms", "request_throughput"}) {
      const json& ci = summary["ci95"][key];
      EXPECT_LE(ci[0].get<double>(), summary[key].get<double>()) << key;
      EXPECT_GE(ci[1].get<double>(), summary[key].get<double>()) << key;
    }
    const json& ci = summary["ci95"]["mean_e2el_ms"];
    EXPECT_LT(ci[1].get<double>() - ci[0].get<double>(), width / 2);
    width = ci[1].get<double>() - ci[0].get<double>();
  }
}

TEST(SummaryTest, AnEmptyRunHasNoFiguresAndNoCrash) {
  LoadResult result;
  result.seconds = 1;
  result.not_sent = {0};
  const json summary = Summarise(result, Options(1, 1), {{"e2el", 5}});
  EXPECT_EQ(summary["num_prompts"], 0);
  EXPECT_TRUE(summary["p99_e2el_ms"].is_null());
  EXPECT_TRUE(summary["slo_share"].is_null());
  EXPECT_EQ(summary["request_throughput"], 0);
  EXPECT_EQ(json::parse(summary.dump()), summary);
  EXPECT_THAT(SummaryText(summary), HasSubstr("0 due"));
}

TEST(SummaryTest, OneCallHasAValueButNoInterval) {
  const json summary = Summarise(Result(10, 1, [](int) { return 7; }), Options(10, 0.1), {});
  EXPECT_DOUBLE_EQ(summary["p99_e2el_ms"], 7);
  EXPECT_TRUE(summary["std_e2el_ms"].is_null());
  EXPECT_TRUE(summary["ci95"].empty());
  EXPECT_THAT(SummaryText(summary), HasSubstr("p99 7 "));
}

TEST(SummaryTest, FailuresAreCountedByCodeAndInNoLatency) {
  LoadResult result = Result(10, 100, [](int) { return 5; });
  for (size_t i = 0; i < 100; ++i) {
    if (i % 4 != 0) continue;
    result.calls[i].code = i % 8 == 0 ? 14 : 8;
    result.calls[i].done_ns += 5000 * kMs;
  }
  result.messages = {{14, "draining"}, {8, "full"}};
  const json summary = Summarise(result, Options(10, 10), {{"e2el", 50}});
  EXPECT_EQ(summary["completed"], 75);
  EXPECT_EQ(summary["failed"], 25);
  EXPECT_DOUBLE_EQ(summary["p99_e2el_ms"], 5);
  EXPECT_DOUBLE_EQ(summary["slo_share"], 0.75);
  ASSERT_EQ(summary["errors"].size(), 2u);
  EXPECT_EQ(summary["errors"][0],
            (json{{"code", "RESOURCE_EXHAUSTED"}, {"calls", 12}, {"message", "full"}}));
  for (CallRecord& record : result.calls) record.code = 14;
  const json none = Summarise(result, Options(10, 10), {{"e2el", 50}});
  EXPECT_EQ(none["completed"], 0);
  EXPECT_EQ(none["slo_share"], 0);
  EXPECT_TRUE(none["mean_e2el_ms"].is_null());
  EXPECT_THAT(SummaryText(none), HasSubstr("100 UNAVAILABLE: draining"));
}

TEST(SummaryTest, AGeneratorThatIsLateSaysSo) {
  LoadResult result = Result(10, 100, [](int) { return 50; });
  EXPECT_TRUE(Summarise(result, Options(10, 10), {})["generator"]["kept_up"]);
  for (int i = 0; i < 10; ++i) result.calls[i].sent_ns += 5 * kMs;
  json summary = Summarise(result, Options(10, 10), {});
  EXPECT_FALSE(summary["generator"]["kept_up"]);
  EXPECT_EQ(summary["late_calls"], 10);
  EXPECT_THAT(summary["generator"]["reason"].get<std::string>(), HasSubstr("too slow"));
  LoadOptions limited = Options(10, 10);
  limited.most_outstanding = 1;
  summary = Summarise(result, limited, {});
  EXPECT_THAT(summary["generator"]["reason"].get<std::string>(), HasSubstr("limit"));
  EXPECT_THAT(SummaryText(summary), HasSubstr("did not keep up"));
  LoadResult cut = Result(10, 100, [](int) { return 50; });
  cut.not_sent = {100};
  summary = Summarise(cut, Options(10, 20), {{"e2el", 60}});
  EXPECT_FALSE(summary["generator"]["kept_up"]);
  EXPECT_EQ(summary["num_prompts"], 200);
  // A call that was not sent meets no level.
  EXPECT_DOUBLE_EQ(summary["slo_share"], 0.5);
}

TEST(SummaryTextTest, FiguresHaveNoExponentWhereDigitsAreRead) {
  const nlohmann::json figures = {{"calls", 16066},
                                  {"rate", 11104.36},
                                  {"ms", 0.185299},
                                  {"tiny", 6.3e-7},
                                  {"ci95", {{"rate", {999.96, 12345.6}}}}};
  EXPECT_EQ(FigureText(figures, "calls"), "16066");
  EXPECT_EQ(FigureText(figures, "rate"), "11104 [1000, 12346]");
  EXPECT_EQ(FigureText(figures, "ms"), "0.1853");
  EXPECT_EQ(FigureText(figures, "tiny"), "6.3e-07");
  EXPECT_EQ(FigureText(figures, "absent"), "-");
}

TEST(SummaryTest, ARunThatDriftsIsNotSteady) {
  const json level = Summarise(Result(30, 300, [](int) { return 5; }), Options(30, 10), {});
  EXPECT_TRUE(level["steady"]["steady"]);
  const json drift =
      Summarise(Result(30, 300, [](int i) { return 5 + i / 100.0; }), Options(30, 10), {});
  EXPECT_FALSE(drift["steady"]["steady"]);
  EXPECT_NEAR(drift["steady"]["latency_spread"].get<double>(), 7.495 / 5.495, 1e-6);
  EXPECT_THAT(SummaryText(drift), HasSubstr("not steady"));
  LoadOptions ramp = Options(30, 10);
  ramp.phases[0].rate_end = 20;
  EXPECT_TRUE(Summarise(Result(30, 300, [](int) { return 5; }), ramp, {})["steady"].is_null());
}

TEST(SummaryTest, PhasesSeriesAndDistributionCoverTheRun) {
  LoadResult result = Result(10, 1000, [](int i) { return i < 500 ? 2 : 8; });
  for (int i = 500; i < 1000; ++i) result.calls[i].phase = 1;
  result.not_sent = {0, 3};
  LoadOptions options = Options(5, 100);
  options.phases = {{5, 100, 100}, {5, 100, 100}};
  const json summary = Summarise(result, options, {});
  ASSERT_EQ(summary["phases"].size(), 2u);
  EXPECT_DOUBLE_EQ(summary["phases"][0]["median_e2el_ms"], 2);
  EXPECT_DOUBLE_EQ(summary["phases"][1]["median_e2el_ms"], 8);
  EXPECT_EQ(summary["phases"][1]["not_sent"], 3);
  EXPECT_DOUBLE_EQ(summary["phases"][0]["request_throughput"], 100);
  const json& series = summary["series"];
  double completed = 0;
  for (double rate : series["completed"]) completed += rate;
  const double width = series["t"][1].get<double>() - series["t"][0].get<double>();
  EXPECT_NEAR(completed * width, 1000, 1e-6);
  EXPECT_DOUBLE_EQ(series["p50"].front(), 2);
  EXPECT_DOUBLE_EQ(series["p50"].back(), 8);
  const json& cdf = summary["cdf"]["e2el"];
  EXPECT_TRUE(std::is_sorted(cdf["ms"].begin(), cdf["ms"].end()));
  EXPECT_EQ(cdf["share"].front(), 0);
  EXPECT_LE(cdf["share"].back().get<double>(), 0.999 + 1e-9);
}

TEST(SummaryTest, DetailsAreOnePerCall) {
  LoadResult result = Result(1, 3, [](int) { return 4; });
  result.calls[1].code = 14;
  result.calls[2].queue_us = -1;
  const json detailed = Detailed(result);
  ASSERT_EQ(detailed["latencies"].size(), 3u);
  EXPECT_NEAR(detailed["latencies"][0].get<double>(), 0.004, 1e-12);
  EXPECT_TRUE(detailed["latencies"][1].is_null());
  EXPECT_EQ(detailed["errors"][1], "UNAVAILABLE");
  EXPECT_TRUE(detailed["queue_times"][2].is_null());
}

TEST(SummaryTest, ServiceLevelsAreReadOrRefusedByName) {
  const auto slos = ParseSlos("e2el:5,queue:0.5");
  ASSERT_TRUE(slos.ok()) << slos.status();
  ASSERT_EQ(slos->size(), 2u);
  EXPECT_EQ((*slos)[1].metric, "queue");
  EXPECT_EQ((*slos)[1].ms, 0.5);
  EXPECT_TRUE(ParseSlos("")->empty());
  for (const char* text :
       {"e2el", "e2el:0", "e2el:-1", "e2el:x", "ttft:5", ":5", "e2el:nan", ",", "e2el:5,"}) {
    const absl::Status status = ParseSlos(text).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("--slo ") + text));
  }
  // No call meets a level for a metric that its reply does not report.
  CallRecord record;
  EXPECT_FALSE(MeetsAll(record, {{"batch", 5}}));
  EXPECT_TRUE(MeetsAll(record, {{"e2el", 5}}));
}

}  // namespace
}  // namespace athanor::bench
