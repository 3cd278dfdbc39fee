#include "clients/bench/figures/compare.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "clients/bench/figures/summary.h"
#include "clients/bench/figures/summary_text.h"
#include "clients/bench/load/fake_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// Makes a slice of 100 calls in 2 s, each taking `ms`.
LoadResult Slice(double ms, const char* plan = "p-1") {
  LoadResult result;
  result.seconds = 2;
  result.not_sent = {0};
  result.plan_ids = {plan};
  for (int i = 0; i < 100; ++i) {
    CallRecord record;
    record.due_ns = record.sent_ns = i * 20'000'000;
    record.done_ns = record.due_ns + static_cast<int64_t>(ms * 1e6);
    record.exec_us = 1000;
    record.queue_us = 0;
    record.plan = 0;
    result.calls.push_back(record);
  }
  return result;
}

LoadOptions Options() {
  LoadOptions options;
  options.model = "m";
  options.arrival = Arrival::kFixed;
  options.phases = {{2, 50, 50}};
  return options;
}

TEST(CompareTest, RatiosArePairByPairSoDriftCancels) {
  // Both become twice as slow from pair to pair; the second is always 1.5 times the first.
  Interleaved slices{{Options().phases[0], 5}};
  for (double ms : {1.0, 2.0, 4.0, 8.0, 16.0}) {
    slices.first.push_back(Slice(ms));
    slices.second.push_back(Slice(1.5 * ms));
  }
  const json comparison = Compare(slices, Options(), Options(), {});
  const json& ratio = comparison["ratios"]["p99_e2el_ms"];
  EXPECT_NEAR(ratio["value"].get<double>(), 1.5, 1e-9);
  EXPECT_NEAR(ratio["q1"].get<double>(), 1.5, 1e-9);
  EXPECT_NEAR(ratio["ci95"][1].get<double>(), 1.5, 1e-9);
  EXPECT_EQ(ratio["pairs"], 5);
  EXPECT_NEAR(comparison["ratios"]["mean_exec_ms"]["value"].get<double>(), 1, 1e-9);
  // A queue of 0 ms has no ratio; neither has a goodput without service levels.
  EXPECT_FALSE(comparison["ratios"].contains("mean_queue_ms"));
  EXPECT_FALSE(comparison["ratios"].contains("request_goodput"));
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("1.5 [1.5, 1.5]"));
}

TEST(CompareTest, FewPairsHaveQuartilesButNoInterval) {
  Interleaved slices{{Options().phases[0], 2}};
  for (double ms : {1.0, 2.0}) {
    slices.first.push_back(Slice(1));
    slices.second.push_back(Slice(ms));
  }
  const json ratio = Compare(slices, Options(), Options(), {})["ratios"]["p50_e2el_ms"];
  EXPECT_NEAR(ratio["value"].get<double>(), 1.5, 1e-9);
  EXPECT_NEAR(ratio["q1"].get<double>(), 1.25, 1e-9);
  EXPECT_FALSE(ratio.contains("ci95"));
}

LoadResult Refused(LoadResult slice) {
  for (CallRecord& record : slice.calls) record.code = 14;
  return slice;
}

// A server that dies halfway is worse than one that lives, although the median over pairs is 1.
TEST(CompareTest, SlicesWithoutAnAnswerCount) {
  Interleaved slices{{Options().phases[0], 20}};
  for (int pair = 0; pair < 20; ++pair) {
    slices.first.push_back(Slice(1));
    slices.second.push_back(pair < 13 ? Slice(2) : Refused(Slice(2)));
  }
  const json comparison = Compare(slices, Options(), Options(), {{"e2el", 5}});
  for (const char* key : {"request_throughput", "request_goodput"}) {
    const json& ratio = comparison["ratios"][key];
    EXPECT_NEAR(ratio["value"].get<double>(), 0.65, 0.01) << key;
    EXPECT_LT(ratio["ci95"][1].get<double>(), 0.9);
    EXPECT_GT(ratio["ci95"][0].get<double>(), 0.3);
    EXPECT_EQ(ratio["q1"], 0);
    EXPECT_EQ(ratio["pairs"], 20);
  }
  // A server that does not answer has no latency: a warning says so, the ratio leaves it out.
  const json& latency = comparison["ratios"]["p99_e2el_ms"];
  EXPECT_NEAR(latency["value"].get<double>(), 2, 1e-9);
  EXPECT_EQ(latency["pairs"], 13);
  EXPECT_THAT(ComparisonText(comparison),
              HasSubstr("the second server answered nothing in 7 of its 20 slices"));
  EXPECT_THAT(ComparisonText(comparison), Not(HasSubstr("the first server")));
}

TEST(CompareTest, SlicesThatMeetNoServiceLevelCount) {
  Interleaved slices{{Options().phases[0], 6}};
  for (int pair = 0; pair < 6; ++pair) {
    slices.first.push_back(Slice(pair < 2 ? 9 : 1));
    slices.second.push_back(Slice(pair < 4 ? 9 : 1));
  }
  const json ratios = Compare(slices, Options(), Options(), {{"e2el", 5}})["ratios"];
  const json& goodput = ratios["request_goodput"];
  EXPECT_NEAR(goodput["value"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(goodput["pairs"], 6);
  EXPECT_EQ(ratios["p50_e2el_ms"]["pairs"], 6);
}

TEST(CompareTest, AFirstServerThatWasDeadMakesQuartilesInfiniteAndAtLastNoRatio) {
  Interleaved slices{{Options().phases[0], 4}};
  for (int pair = 0; pair < 4; ++pair) {
    slices.first.push_back(pair < 2 ? Slice(1) : Refused(Slice(1)));
    slices.second.push_back(Slice(1));
  }
  json comparison = Compare(slices, Options(), Options(), {});
  const json ratio = comparison["ratios"]["request_throughput"];
  EXPECT_NEAR(ratio["value"].get<double>(), 2, 1e-9);
  EXPECT_EQ(ratio["q1"], 1);
  EXPECT_TRUE(ratio["q3"].is_null());
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("quartiles 1 to infinite"));
  for (LoadResult& slice : slices.first) slice = Refused(std::move(slice));
  comparison = Compare(slices, Options(), Options(), {});
  EXPECT_TRUE(comparison["ratios"].empty());
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("request_throughput has no ratio: the first"));
}

// Answered calls that still have no ratio: 0 ms in a queue.
TEST(CompareTest, WhatHasNoRatioIsSaid) {
  Interleaved slices{{Options().phases[0], 3}, {Slice(1), Slice(1), Slice(1)}, {}};
  slices.second = slices.first;
  for (CallRecord& record : slices.first[1].calls) record.queue_us = 5;
  for (CallRecord& record : slices.second[1].calls) record.queue_us = 10;
  const json comparison = Compare(slices, Options(), Options(), {});
  EXPECT_EQ(comparison["ratios"]["mean_queue_ms"]["pairs"], 1);
  EXPECT_EQ(comparison["ratios"]["mean_queue_ms"]["value"], 2);
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("mean_queue_ms (2)"));
  EXPECT_THAT(ComparisonText(comparison), Not(HasSubstr("goodput (")));
}

TEST(CompareTest, SlicesJoinedAreOneRun) {
  std::vector<LoadResult> slices = {Slice(1, "p-1"), Slice(2, "p-2"), Slice(3, "p-1")};
  slices[1].not_sent = {4};
  slices[2].calls[0].code = 14;
  slices[2].messages = {{14, "gone"}};
  const LoadResult joined = Join(slices);
  EXPECT_EQ(joined.seconds, 6);
  EXPECT_EQ(joined.calls.size(), 300u);
  EXPECT_EQ(joined.not_sent[0], 4);
  EXPECT_EQ(joined.messages.at(14), "gone");
  EXPECT_EQ(joined.plan_ids, (std::vector<std::string>{"p-1", "p-2"}));
  EXPECT_EQ(joined.calls[100].plan, 1);
  EXPECT_EQ(joined.calls[200].plan, 0);
  EXPECT_EQ(joined.calls[100].due_ns, 2'000'000'000);
  EXPECT_EQ(joined.calls[250].done_ns - joined.calls[250].due_ns, 3'000'000);
  EXPECT_TRUE(
      std::is_sorted(joined.calls.begin(), joined.calls.end(),
                     [](const CallRecord& a, const CallRecord& b) { return a.due_ns < b.due_ns; }));
  EXPECT_TRUE(Join({}).calls.empty());
}

// A call that ends after its slice makes the slice longer: throughput counts the time it took.
TEST(CompareTest, ASliceLastsUntilItsLastCallHasEnded) {
  std::vector<LoadResult> slices = {Slice(1), Slice(1)};
  slices[0].calls.back().done_ns = 3'500'000'000;
  auto stream = std::make_shared<TokenStream>();
  stream->chunk_ns = {1'000'000, 2'000'000};
  slices[1].calls[0].tokens = stream;
  const LoadResult joined = Join(slices);
  EXPECT_EQ(joined.seconds, 5.5);
  EXPECT_EQ(joined.calls[100].due_ns, 3'500'000'000);
  EXPECT_EQ(joined.calls[100].tokens->chunk_ns,
            (std::vector<int64_t>{3'501'000'000, 3'502'000'000}));
  EXPECT_EQ(stream->chunk_ns[0], 1'000'000);  // the slice's own stays as it was
}

// Two servers that send their names: each slice's calls all go to one server, in alternation.
// Keeps the numbers of its calls, which are answered at once.
class Numbers final : public Backend {
 public:
  explicit Numbers(std::vector<int64_t>* numbers) : numbers_(numbers) {}
  std::unique_ptr<Call> NewCall() override { return std::make_unique<Numbered>(numbers_); }

 private:
  struct Numbered final : Call {
    explicit Numbered(std::vector<int64_t>* numbers) : numbers(numbers) {}
    void Prepare(uint64_t, int64_t number) override { numbers->push_back(number); }
    void Begin(absl::Duration, std::function<void(absl::Status)> done) override {
      done(absl::OkStatus());
    }
    void Tell(Clock::time_point, CallRecord*, std::string*) override {}
    std::vector<int64_t>* numbers;
  };
  std::vector<int64_t>* numbers_;
};

// Slices go on with texts and lengths where the one before ended; warm-up calls take their end.
TEST(CompareTest, ASliceGoesOnWhereTheOneBeforeItEnded) {
  std::vector<int64_t> first, second;
  LoadOptions options = Options();
  options.answers = Answers::kTokens;
  options.address = "none";
  options.arrival = Arrival::kClosed;
  options.phases = {{.seconds = 60, .concurrency = 1}};
  options.warmups = 2;
  options.most_calls = 3;
  auto faster = Load::Create(options, std::make_unique<Numbers>(&first));
  options.most_calls = 2;
  auto slower = Load::Create(options, std::make_unique<Numbers>(&second));
  ASSERT_TRUE(faster.ok() && slower.ok()) << faster.status() << slower.status();
  const Interleaved slices =
      RunInterleaved(faster->get(), slower->get(), {options.phases[0], 2, 7, 10});
  EXPECT_THAT(first, testing::ElementsAre(-2, -1, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(second, testing::ElementsAre(-2, -1, 10, 11, 13, 14));
  EXPECT_EQ(slices.next_number, 16);
}

TEST(CompareTest, TurnsAreABBA) {
  FakeServer one, two;
  two.service().plan_id = "p-2";
  auto first = Load::Create(LoadOf(one)), second = Load::Create(LoadOf(two));
  ASSERT_TRUE(first.ok() && second.ok());
  const Interleaved slices = RunInterleaved(first->get(), second->get(), {{.seconds = 0.05}, 3});
  ASSERT_EQ(slices.first.size(), 3u);
  ASSERT_EQ(slices.second.size(), 3u);
  int64_t calls = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(slices.first[i].plan_ids, std::vector<std::string>{"p-1"});
    EXPECT_EQ(slices.second[i].plan_ids, std::vector<std::string>{"p-2"});
    calls += static_cast<int64_t>(slices.first[i].calls.size());
  }
  EXPECT_EQ(calls, one.service().calls);
}

// The ratio of two independent means, by the normal approximation.
TEST(CompareTest, RatiosOfStoredRunsHaveTheirOwnIntervals) {
  const json a = {{"mean_e2el_ms", 10.0}, {"ci95", {{"mean_e2el_ms", {9.0, 11.0}}}}};
  const json b = {
      {"mean_e2el_ms", 20.0}, {"ci95", {{"mean_e2el_ms", {18.0, 22.0}}}}, {"p99_e2el_ms", 5.0}};
  const json ratio = CompareSummaries(a, b)["ratios"]["mean_e2el_ms"];
  EXPECT_DOUBLE_EQ(ratio["value"], 2);
  const double half = std::sqrt(2.0) * std::log(11.0 / 9) / 2;
  EXPECT_NEAR(ratio["ci95"][0].get<double>(), 2 * std::exp(-half), 1e-9);
  EXPECT_NEAR(ratio["ci95"][1].get<double>(), 2 * std::exp(half), 1e-9);
  EXPECT_FALSE(CompareSummaries(a, b)["ratios"].contains("p99_e2el_ms"));
  EXPECT_TRUE(CompareSummaries(json::object(), json{{"ci95", 5}})["ratios"].empty());
  EXPECT_FALSE(
      CompareSummaries(a, json{{"mean_e2el_ms", 5.0}})["ratios"]["mean_e2el_ms"].contains("ci95"));
  EXPECT_THAT(ComparisonText(CompareSummaries(a, b)),
              HasSubstr("p99_e2el_ms has no ratio: the first"));
}

TEST(CompareTest, AStoredRunThatMetNothingIsZeroOfTheOther) {
  const json some = {{"request_goodput", 50.0}, {"ci95", {{"request_goodput", {40.0, 60.0}}}}};
  const json none = {{"request_goodput", 0.0}};
  const json ratio = CompareSummaries(some, none)["ratios"]["request_goodput"];
  EXPECT_EQ(ratio["value"], 0);
  EXPECT_FALSE(ratio.contains("ci95"));
  const json comparison = CompareSummaries(none, some);
  EXPECT_TRUE(comparison["ratios"].empty());
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("request_goodput has no ratio: the first"));
}

}  // namespace
}  // namespace athanor::bench
