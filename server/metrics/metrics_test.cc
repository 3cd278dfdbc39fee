#include "server/metrics/metrics.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/athanor/v1/compile.pb.h"
#include "server/metrics/exposition_testing.h"

namespace athanor {
namespace {

using ::std::chrono::microseconds;
using ::std::chrono::milliseconds;
using ::std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Families Parsed(const Metrics& metrics) {
  absl::StatusOr<Families> families = ParseExposition(metrics.Text());
  EXPECT_TRUE(families.ok()) << families.status();
  return families.value_or(Families());
}

LabelSet Labels(const std::string& model, const std::string& version) {
  return {{"model", model}, {"version", version}};
}

TEST(MetricTableTest, EveryRowIsComplete) {
  std::set<absl::string_view> names;
  for (const MetricRow& row : MetricTable()) {
    // OpenMetrics drops the suffix of counters.
    EXPECT_TRUE(names.insert(absl::StripSuffix(row.name, "_total")).second) << row.name << " twice";
    // Prometheus' clients have one set of names for what is known of any process.
    EXPECT_TRUE(absl::StartsWith(row.name, "athanor_") || absl::StartsWith(row.name, "process_"))
        << row.name;
    EXPECT_TRUE(absl::EndsWith(row.help, ".")) << row.name;
    EXPECT_GT(row.help.size(), 10u) << row.name;
    EXPECT_EQ(row.type == MetricType::kCounter, absl::EndsWith(row.name, "_total")) << row.name;
    EXPECT_TRUE(absl::EndsWith(absl::StripSuffix(row.name, "_total"), row.unit)) << row.name;
    EXPECT_EQ(row.type == MetricType::kHistogram, !row.bounds.empty()) << row.name;
    EXPECT_TRUE(std::is_sorted(row.bounds.begin(), row.bounds.end())) << row.name;
    // A counted metric has its label values in the row; a collector brings its own.
    const bool counted = row.scope != MetricScope::kAsked;
    EXPECT_LE(counted ? row.labels.size() : 0, 1u) << row.name;
    EXPECT_EQ(counted && !row.labels.empty(), !row.values.empty()) << row.name;
    EXPECT_FALSE(counted && row.type == MetricType::kGauge) << row.name;
  }
}

TEST(MetricTableTest, LabelValuesHaveTheNumbersOfTheirEnums) {
  const MetricRow& codes = RowOf(Metric::kRequests);
  for (int code = 0; code < static_cast<int>(codes.values.size()); ++code) {
    EXPECT_EQ(codes.values[code], absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
  EXPECT_EQ(codes.values.size(), 17u);
  const MetricRow& jobs = RowOf(Metric::kCompileJobs);
  const auto* reasons = v1::CompileJob::StopReason_descriptor();
  for (int i = 0; i < reasons->value_count(); ++i) {
    const auto number = static_cast<size_t>(reasons->value(i)->number());
    ASSERT_LT(number, jobs.values.size()) << reasons->value(i)->name() << " has no label value";
    if (number == 0) continue;
    EXPECT_EQ(absl::StrCat("STOP_", absl::AsciiStrToUpper(jobs.values[number])),
              reasons->value(i)->name());
  }
  EXPECT_EQ(RowOf(Metric::kRefusals).values[static_cast<int>(Refusal::kCompileJobs)],
            "compile_jobs");
  EXPECT_EQ(RowOf(Metric::kCompileSeconds).values[static_cast<int>(CompilePhase::kLoad)], "load");
  EXPECT_EQ(RowOf(Metric::kSequencesEnded).values[static_cast<int>(FinishedReason::kError)],
            "error");
}

TEST(MetricCellsTest, HistogramsAgainstCountsByHand) {
  MetricCells cells(MetricScope::kVersion);
  // Bounds are inclusive: 10, 16, 25, ... microseconds.
  for (int us : {0, 10, 16, 16, 24, 25}) cells.Observe(Metric::kExecSeconds, microseconds(us));
  cells.Observe(Metric::kExecSeconds, nanoseconds(10'001));
  cells.Observe(Metric::kExecSeconds, std::chrono::seconds(10));
  cells.Observe(Metric::kExecSeconds, nanoseconds(10'000'000'001));
  const HistogramCounts counts = cells.histogram(Metric::kExecSeconds);
  const absl::Span<const int64_t> bounds = RowOf(Metric::kExecSeconds).bounds;
  ASSERT_EQ(counts.buckets.size(), bounds.size() + 1);
  EXPECT_EQ(counts.buckets[0], 2);
  EXPECT_EQ(counts.buckets[1], 3);
  EXPECT_EQ(counts.buckets[2], 2);
  EXPECT_EQ(counts.buckets[bounds.size() - 1], 1);
  EXPECT_EQ(counts.buckets[bounds.size()], 1);
  EXPECT_EQ(counts.count(), 9);
  EXPECT_EQ(counts.sum, 91'000 + 10'001 + 10'000'000'000 + 10'000'000'001);
  // Other metrics do not change.
  EXPECT_EQ(cells.histogram(Metric::kQueueSeconds).count(), 0);
}

TEST(MetricCellsTest, QuantilesLieInsideTheirBucket) {
  const int64_t bounds[] = {100, 200, 400};
  EXPECT_EQ(Quantile(bounds, {{0, 0, 0, 0}, 0}, 0.5), 0);
  const HistogramCounts counts = {{2, 4, 2, 2}, 0};
  EXPECT_EQ(Quantile(bounds, counts, 0), 0);
  EXPECT_EQ(Quantile(bounds, counts, 0.1), 50);
  EXPECT_EQ(Quantile(bounds, counts, 0.2), 100);
  EXPECT_EQ(Quantile(bounds, counts, 0.5), 175);
  EXPECT_EQ(Quantile(bounds, counts, 0.7), 300);
  EXPECT_EQ(Quantile(bounds, counts, 0.99), 400);
  EXPECT_EQ(Quantile(bounds, {{0, 0, 4, 0}, 0}, 0.25), 250);
}

TEST(MetricCellsTest, EachLabelHasItsOwnCells) {
  MetricCells cells(MetricScope::kServer);
  cells.Count(Metric::kRefusals, Refusal::kMemory);
  cells.Count(Metric::kRefusals, Refusal::kCompileJobs, 3);
  cells.Count(Metric::kUploads, 0, 7);
  cells.Observe(Metric::kCompileSeconds, milliseconds(5), CompilePhase::kCheck);
  cells.Observe(Metric::kCompileSeconds, milliseconds(7), CompilePhase::kLoad);
  EXPECT_EQ(cells.value(Metric::kRefusals, static_cast<int>(Refusal::kMemory)), 1);
  EXPECT_EQ(cells.value(Metric::kRefusals, static_cast<int>(Refusal::kCompileJobs)), 3);
  EXPECT_EQ(cells.value(Metric::kRefusals, static_cast<int>(Refusal::kDraining)), 0);
  EXPECT_EQ(cells.value(Metric::kUploads), 7);
  const auto sum = [&](CompilePhase phase) {
    return cells.histogram(Metric::kCompileSeconds, static_cast<int>(phase)).sum;
  };
  EXPECT_EQ(sum(CompilePhase::kKernels), 0);
  EXPECT_EQ(sum(CompilePhase::kCheck), 5'000'000);
  EXPECT_EQ(sum(CompilePhase::kLoad), 7'000'000);
  // A number without a row is counted under the first label, and no other memory is written.
  cells.Count(Metric::kCompileJobs, 99);
  EXPECT_EQ(cells.value(Metric::kCompileJobs, 0), 1);
}

TEST(MetricsTest, TextOfEveryRowCanBeRead) {
  Metrics metrics(10);
  metrics.AddCollector([](std::vector<MetricSample>* samples) {
    for (const MetricRow& row : MetricTable()) {
      if (row.scope != MetricScope::kAsked) continue;
      const std::vector<absl::string_view> names = LabelNames(row);
      const bool counter = row.type == MetricType::kCounter;
      samples->push_back({row.metric,
                          {names.begin(), names.end()},
                          counter ? 3 : static_cast<int>(row.metric) + 0.5});
    }
  });
  const auto version = metrics.ForVersion("m", 1);
  for (const MetricRow& row : MetricTable()) {
    if (row.scope == MetricScope::kAsked) continue;
    MetricCells& cells = row.scope == MetricScope::kServer ? metrics.server() : version->cells;
    if (row.type == MetricType::kHistogram) {
      row.unit == "seconds" ? cells.Observe(row.metric, milliseconds(3))
                            : cells.ObserveNumber(row.metric, 3);
    } else {
      cells.Count(row.metric, row.values.empty() ? 0 : 1, 4);
    }
  }
  const Families families = Parsed(metrics);
  EXPECT_EQ(families.size(), MetricTable().size());
  for (const MetricRow& row : MetricTable()) {
    const Family& family = families.at(std::string(row.name));
    EXPECT_EQ(family.type, MetricTypeName(row.type));
    EXPECT_EQ(family.help, row.help);
    EXPECT_FALSE(family.samples.empty()) << row.name;
  }
  LabelSet labels = Labels("m", "1");
  EXPECT_EQ(families.at("athanor_exec_seconds").Value(labels, "_sum"), 0.003);
  EXPECT_EQ(families.at("athanor_exec_seconds").Value(labels, "_count"), 1);
  labels["le"] = "0.0025";
  EXPECT_EQ(families.at("athanor_exec_seconds").Value(labels, "_bucket"), 0);
  labels["le"] = "0.004";
  EXPECT_EQ(families.at("athanor_exec_seconds").Value(labels, "_bucket"), 1);
  labels = Labels("m", "1");
  EXPECT_EQ(families.at("athanor_batch_rows").Value(labels, "_sum"), 3);
  labels["le"] = "2";
  EXPECT_EQ(families.at("athanor_batch_rows").Value(labels, "_bucket"), 0);
  labels["le"] = "4";
  EXPECT_EQ(families.at("athanor_batch_rows").Value(labels, "_bucket"), 1);
  EXPECT_EQ(families.at("athanor_refusals_total").Value({{"reason", "pending"}}), 4);
  EXPECT_EQ(families.at("athanor_search_share_ratio").Value(Labels("model", "version")),
            static_cast<int>(Metric::kSearchShare) + 0.5);
}

TEST(MetricsTest, NamesAreEscaped) {
  Metrics metrics(10);
  const std::string names[] = {
      "<script>alert(1)</script>", "a\"b", "a\\b", "a\nb", "a\\nb", "{}=,", "größe", "\\"};
  std::vector<std::shared_ptr<VersionMetrics>> versions;
  int64_t count = 0;
  for (const std::string& name : names) {
    versions.push_back(metrics.ForVersion(name, 1));
    versions.back()->cells.Count(Metric::kPlanSwaps, 0, ++count);
  }
  const Families families = Parsed(metrics);
  count = 0;
  for (const std::string& name : names) {
    EXPECT_EQ(families.at("athanor_plan_swaps_total").Value(Labels(name, "1")), ++count) << name;
  }
}

TEST(MetricsTest, AVersionLeavesWithItsCells) {
  Metrics metrics(10);
  auto one = metrics.ForVersion("m", 1);
  auto two = metrics.ForVersion("m", 2);
  one->cells.Count(Metric::kRequests, absl::StatusCode::kOk);
  EXPECT_THAT(metrics.Text(), HasSubstr("version=\"1\",code=\"OK\"} 1\n"));
  one.reset();
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("version=\"1\"")));
  EXPECT_THAT(metrics.Text(), HasSubstr("version=\"2\",code=\"OK\"} 0\n"));
}

TEST(MetricsTest, VersionsAboveTheMostAreCountedTogether) {
  Metrics metrics(2);
  auto one = metrics.ForVersion("a", 1), two = metrics.ForVersion("b", 1);
  auto three = metrics.ForVersion("c", 1), four = metrics.ForVersion("d", 1);
  EXPECT_TRUE(metrics.IsOwn(*one) && metrics.IsOwn(*two));
  EXPECT_FALSE(metrics.IsOwn(*three) || metrics.IsOwn(*four));
  three->cells.Count(Metric::kPlanSwaps);
  four->cells.Count(Metric::kPlanSwaps);
  EXPECT_EQ(Parsed(metrics).at("athanor_plan_swaps_total").Value(Labels("", "other")), 2);
  // There is room for one more; versions that share cells keep sharing them.
  one.reset();
  auto five = metrics.ForVersion("e", 1);
  EXPECT_TRUE(metrics.IsOwn(*five));
  three.reset();
  four.reset();
  EXPECT_EQ(Parsed(metrics).at("athanor_plan_swaps_total").Value(Labels("", "other")), 2);
}

TEST(MetricsTest, CodesThatNeverWereAreLeftOutForVersions) {
  Metrics metrics(2);
  auto version = metrics.ForVersion("m", 1);
  version->cells.Count(Metric::kRequests, absl::StatusCode::kNotFound);
  metrics.no_version().Count(Metric::kRequests, absl::StatusCode::kInvalidArgument, 2);
  const Families families = Parsed(metrics);
  const auto& requests = families.at("athanor_requests_total").samples.begin()->second;
  LabelSet labels = Labels("m", "1");
  labels["code"] = "NOT_FOUND";
  EXPECT_EQ(requests.at(labels), 1);
  labels["code"] = "OK";
  EXPECT_EQ(requests.at(labels), 0);
  labels["code"] = "ABORTED";
  EXPECT_FALSE(requests.contains(labels));
  EXPECT_EQ(requests.at({{"model", ""}, {"version", ""}, {"code", "INVALID_ARGUMENT"}}), 2);
  EXPECT_TRUE(families.at("athanor_exec_seconds").samples.empty());
}

TEST(MetricsTest, CountsFromManyThreadsWhileTextIsRead) {
  constexpr int kThreads = 4, kEach = 5'000;
  Metrics metrics(10);
  auto version = metrics.ForVersion("m", 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        version->cells.Count(Metric::kRequests, absl::StatusCode::kOk);
        version->cells.Observe(Metric::kExecSeconds, microseconds(i % 100));
        metrics.server().Count(Metric::kRefusals, Refusal::kPending);
        if (i % 500 == 0) metrics.ForVersion(absl::StrCat("churn", t), i);
      }
    });
  }
  for (int i = 0; i < 20; ++i) Parsed(metrics);
  for (std::thread& thread : threads) thread.join();
  const Families families = Parsed(metrics);
  EXPECT_EQ(families.at("athanor_exec_seconds").Value(Labels("m", "1"), "_count"),
            kThreads * kEach);
  EXPECT_EQ(families.at("athanor_refusals_total").Value({{"reason", "pending"}}), kThreads * kEach);
}

TEST(ExpositionTest, SecondsAreExactAndShort) {
  EXPECT_EQ(SecondsText(0), "0");
  EXPECT_EQ(SecondsText(1), "0.000000001");
  EXPECT_EQ(SecondsText(1'600'000), "0.0016");
  EXPECT_EQ(SecondsText(10'000'000'000), "10");
  EXPECT_EQ(SecondsText(-1'500'000'000), "-1.5");
  EXPECT_EQ(SecondsText(9'000'000'000'000'000'001), "9000000000.000000001");
}

// Checks what the parser rejects.
TEST(ExpositionTest, WrongTextsAreRefused) {
  const std::string begin = "# HELP a Help.\n# TYPE a counter\n";
  const std::string histogram = "# HELP h Help.\n# TYPE h histogram\n";
  EXPECT_TRUE(ParseExposition(begin + "a{b=\"c\"} 1\na{b=\"d\"} 1\n").ok());
  EXPECT_TRUE(ParseExposition(histogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 1.5\nh_count 1\n").ok());
  for (const std::string& wrong :
       {std::string("a 1\n"),
        begin + "a 1",
        begin + "a 1\n\n",
        begin + "a{b=\"c\"}1\n",
        begin + "a{b=c} 1\n",
        begin + "a{b=\"c} 1\n",
        begin + "a{b=\"\\x\"} 1\n",
        begin + "a{} 1\n",
        begin + "a{b=\"c\",} 1\n",
        begin + "a{b=\"c\" d=\"e\"} 1\n",
        begin + "a{b=\"c\",b=\"d\"} 1\n",
        begin + "a 1\na 1\n",
        begin + "a one\n",
        begin + "a -1\n",
        begin + "a 1.5\n",
        begin + "b 1\n",
        begin + "a_total 1\n",
        begin + "1a 1\n",
        begin + begin,
        begin + "# TYPE a counter\n",
        std::string("# TYPE a counter\n"),
        std::string("# HELP a Help.\na 1\n"),
        std::string("# HELP a Help.\n# TYPE a summary\n"),
        begin + "# note\n",
        histogram + "h 1\n",
        histogram + "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
        histogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
        histogram + "h_bucket{le=\"+Inf\"} 1\nh_count 1\n",
        histogram + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n"}) {
    EXPECT_FALSE(ParseExposition(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace athanor
