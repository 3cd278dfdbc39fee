#include "clients/cpp/text/search_text.h"

#include <set>
#include <utility>

#include "absl/time/time.h"
#include "clients/cpp/terminal/progress.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

v1::SearchTask* AddTask(const std::string& about, int calls, v1::SearchProgress* search) {
  v1::SearchTask* task = search->add_tasks();
  task->set_about(about);
  task->set_calls(calls);
  return task;
}

v1::CompileJob Searching() {
  v1::CompileJob job;
  job.set_id("j");
  job.set_model("m");
  job.set_version("2");
  job.set_phase(v1::CompileJob::SEARCHING);
  job.set_percent(98);
  v1::SearchProgress* search = job.mutable_search();
  search->set_candidates(98);
  search->set_candidates_failed(3);
  search->set_genomes_tried(5);
  search->set_genomes_taken(2);
  search->set_plans_measured(2);
  search->set_plans_taken(1);
  search->set_best(0.875);
  search->set_predicted(0.75);
  search->set_roofline(0.5);
  search->set_seconds(12.34);
  search->add_sizes("b=1");
  search->add_sizes("b=32");
  v1::SearchTask* task = AddTask("Mul over Contract", 3, search);
  task->set_schedule("contract mr=12 nv=2");
  task->set_measured(28);
  task->set_failed(1);
  for (double seconds : {1e-6, 20e-6}) task->add_seconds(seconds);
  for (double seconds : {2e-6, 40e-6}) task->add_first_seconds(seconds);
  for (double seconds : {1.5e-6, 5e-6}) task->add_roofline_seconds(seconds);
  task = AddTask("Max", 1, search);
  task->set_schedule("map");
  for (double seconds : {1e-6, 40e-6}) task->add_seconds(seconds);
  for (double seconds : {1e-6, 40e-6}) task->add_first_seconds(seconds);
  for (double seconds : {1e-6, 30e-6}) task->add_roofline_seconds(seconds);
  v1::SearchFailure* failure = search->add_failures();
  failure->set_kernel("0123456789abcdef");
  failure->set_about("Max");
  failure->set_code(4);
  failure->set_message("ran too long");
  return job;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(SearchText, SecondsHaveThreeDigits) {
  EXPECT_EQ(SecondsText(2.3e-6), "2.30 us");
  EXPECT_EQ(SecondsText(39.66e-6), "39.7 us");
  EXPECT_EQ(SecondsText(0.000397), "397 us");
  EXPECT_EQ(SecondsText(0.9996e-3), "1.00 ms");
  EXPECT_EQ(SecondsText(64e-9), "64.0 ns");
  EXPECT_EQ(SecondsText(12), "12.0 s");
  EXPECT_EQ(SecondsText(0), "0.00 ns");
}

TEST(SearchText, EveryStopReasonHasWordsOfItsOwn) {
  const auto* reasons = v1::CompileJob::StopReason_descriptor();
  std::set<std::string> words;
  for (int i = 0; i < reasons->value_count(); ++i) {
    const auto reason = static_cast<v1::CompileJob::StopReason>(reasons->value(i)->number());
    const std::string text = StopReasonText(reason);
    EXPECT_EQ(text.find("STOP_"), std::string::npos) << text;
    EXPECT_TRUE(words.insert(text).second) << text;
  }
}

TEST(SearchText, SharesCountCallsAtEachSize) {
  const v1::CompileJob job = Searching();
  const std::vector<KernelCost> costs = KernelCosts(job.search());
  ASSERT_EQ(costs.size(), 2u);
  ASSERT_EQ(costs[0].shares.size(), 2u);
  EXPECT_DOUBLE_EQ(costs[0].shares[0], 0.75);
  EXPECT_DOUBLE_EQ(costs[0].shares[1], 0.6);
  EXPECT_DOUBLE_EQ(costs[0].share, 0.675);
  EXPECT_DOUBLE_EQ(costs[0].of_roofline[0], 1.5);
  EXPECT_DOUBLE_EQ(costs[0].of_roofline[1], 0.25);
  EXPECT_DOUBLE_EQ(costs[1].share, 0.325);
}

TEST(SearchText, LinesOfATerminal) {
  const std::string expected =
      R"([#############################.]  98 %  SEARCHING, 12.3 s of search
98 candidates (3 failed), 2 of 5 genomes and 1 of 2 plans taken
time 87.5 % of the baseline's; best genome 75.0 %, roofline 50.0 %
  share      time     first  roofline  kernel, at b=32
 67.5 %   20.0 us   40.0 us      25 %  Mul over Contract, 3 calls
        contract mr=12 nv=2
 32.5 %   40.0 us   40.0 us      75 %  Max, 1 call
        map
)";
  EXPECT_EQ(Joined(ProgressLines(Searching(), absl::ZeroDuration(), 80, 24)), expected);
}

TEST(SearchText, WhatCameFromTheCacheIsSaid) {
  v1::CompileJob job = Searching();
  v1::SearchProgress* search = job.mutable_search();
  search->set_candidates_from_cache(90);
  search->set_failures_from_cache(1);
  search->set_recipes_tried(2);
  search->mutable_failures(0)->set_from_cache(true);
  EXPECT_NE(Joined(ProgressLines(job, absl::ZeroDuration(), 80, 24))
                .find("98 candidates (3 failed, 90 from the cache, 2 recipes tried)"),
            std::string::npos);
  EXPECT_NE(Joined(SearchReport(*search))
                .find("Put aside, the last 1 of 3, 1 of them not tried since they had failed "
                      "before:\n  Max (kernel 0123456789ab, not tried again): "),
            std::string::npos)
      << Joined(SearchReport(*search));
}

TEST(SearchText, SaysWhatLimitedTheSearch) {
  v1::CompileJob job = Searching();
  EXPECT_EQ(Joined(SearchReport(job.search())).find("limited by"), std::string::npos);
  job.mutable_search()->set_limited_by("the machine: kernels take 1.05 times what it allows");
  EXPECT_NE(Joined(SearchReport(job.search()))
                .find("\nlimited by the machine: kernels take 1.05 times what it allows\n"),
            std::string::npos);
}

TEST(SearchText, NamesTheBucketThatIsSearchedFor) {
  v1::CompileJob job = Searching();
  job.set_search_bucket("b=1..8");
  EXPECT_NE(ProgressLines(job, absl::ZeroDuration(), 200, 24)[0].find(" s of search for b=1..8"),
            std::string::npos);
}

TEST(SearchText, LinesFitTheTerminal) {
  v1::CompileJob job = Searching();
  for (int i = 0; i < 20; ++i) AddTask("Max", 1, job.mutable_search());
  const std::vector<std::string> lines = ProgressLines(job, absl::ZeroDuration(), 40, 6);
  EXPECT_EQ(lines.size(), 5u);
  for (const std::string& line : lines) EXPECT_LT(line.size(), 40u) << line;
  EXPECT_NE(Joined(ProgressLines(job, absl::ZeroDuration(), 80, 24)).find("and 17 more"),
            std::string::npos);
}

TEST(SearchText, NothingMeasuredYet) {
  v1::CompileJob job;
  job.set_phase(v1::CompileJob::SEARCHING);
  job.mutable_search()->add_sizes("b=1");
  AddTask("Contract", 1, job.mutable_search());
  const std::string text = Joined(ProgressLines(job, absl::ZeroDuration(), 80, 24));
  EXPECT_NE(text.find("time ? of the baseline's"), std::string::npos) << text;
  EXPECT_NE(text.find("      -         -         -         -  Contract, 1 call"), std::string::npos)
      << text;
  EXPECT_NE(text.find("not measured yet"), std::string::npos) << text;
}

TEST(SearchText, ReportShowsEverySizeAndFailure) {
  const std::string expected =
      R"(12.3 s of search: 98 candidates (3 failed), 2 of 5 genomes and 1 of 2 plans taken
time 87.5 % of the baseline's; best genome 75.0 %, roofline 50.0 %

Kernels of the best genome, one call, with the schedule named:
  size     share      time     first  roofline   reached
kernel 1: Mul over Contract, 3 calls, 67.5 % of the whole
  contract mr=12 nv=2 (28 measured, 1 failed)
  b=1     75.0 %   1.00 us   2.00 us   1.50 us     150 %
  b=32    60.0 %   20.0 us   40.0 us   5.00 us      25 %
kernel 2: Max, 1 call, 32.5 % of the whole
  map (0 measured, 0 failed)
  b=1     25.0 %   1.00 us   1.00 us   1.00 us     100 %
  b=32    40.0 %   40.0 us   40.0 us   30.0 us      75 %

Put aside, the last 1 of 3:
  Max (kernel 0123456789ab): DEADLINE_EXCEEDED: ran too long
)";
  EXPECT_EQ(Joined(SearchReport(Searching().search())), expected);
}

void AddRegion(int instances, const std::string& stop, v1::SearchProgress* search) {
  v1::SearchRegion* region = search->add_regions();
  region->set_instances(instances);
  region->set_nodes(18);
  region->set_e_nodes(1204);
  region->set_e_classes(400);
  region->set_iterations(5);
  region->set_milliseconds(12.14);
  region->set_peak_bytes(400'000);
  region->set_stop(stop);
  v1::SearchRule* rule = region->add_rules();
  rule->set_rule("contracts_share_operand");
  rule->set_family("algebra");
  rule->set_rule_class("exact");
  rule->set_matches(20);
  rule->set_fired(12);
  rule->set_milliseconds(0.5);
  rule = region->add_rules();
  rule->set_rule("views_rise");
  rule->set_family("layout");
  rule->set_rule_class("exact");
  rule->set_matches(1);
  rule->set_milliseconds(0.75);
}

TEST(SearchText, WhatTheRulesDid) {
  v1::CompileJob job = Searching();
  AddRegion(24, "saturated", job.mutable_search());
  AddRegion(1, "node limit", job.mutable_search());
  job.mutable_search()->set_forms_tried(12);
  job.mutable_search()->set_forms_taken(1);
  job.mutable_search()->add_rules("contracts_share_operand");
  const std::string shown = Joined(ProgressLines(job, absl::ZeroDuration(), 80, 24));
  EXPECT_NE(shown.find("\n25 regions, 2 distinct (1 saturated), 2408 e-nodes; "
                       "1 rules fired 24 times\n"
                       "1 of 12 forms taken, by contracts_share_operand\n"),
            std::string::npos)
      << shown;
  const std::string report = Joined(SearchReport(job.search()));
  EXPECT_NE(
      report.find("  region 0: 24 x 18 nodes: 1204 e-nodes in 400 e-classes after 5 iterations and "
                  "12.1 ms, 0.4 MB, saturated\n      contracts_share_operand 12\n"),
      std::string::npos)
      << report;
}

TEST(SearchText, RulesAsATable) {
  v1::CompileJob job = Searching();
  EXPECT_TRUE(RuleTable(job.search()).empty());
  AddRegion(24, "saturated", job.mutable_search());
  AddRegion(1, "node limit", job.mutable_search());
  v1::SearchRule* rule = job.mutable_search()->mutable_regions(1)->mutable_rules(0);
  rule->set_refused(3);
  rule->set_bans(2);
  rule->set_errors(1);
  rule->set_last_error("c7 is f32[4], c9 is f32[5]");
  EXPECT_EQ(Joined(RuleTable(job.search())),
            R"(Rules that found anything, in all distinct regions together:
  rule                     family     class          matches  fired refused banned errors       ms
  views_rise               layout     exact                2      0       0      0      0     1.50
  contracts_share_operand  algebra    exact               40     24       3      2      1     1.00
    last error: c7 is f32[4], c9 is f32[5]
)");
  // `watch` shows them too.
  const std::string shown = Joined(ProgressLines(job, absl::ZeroDuration(), 200, 24));
  EXPECT_NE(shown.find("1 rules fired 24 times, 3 refused, 2 times over a budget, 1 error\n"),
            std::string::npos)
      << shown;
  // Rules that did not fire are only in the table.
  EXPECT_EQ(Joined(SearchReport(job.search())).find("views_rise"), std::string::npos);
}

TEST(SearchText, JsonHasEveryField) {
  v1::CompileJob job = Searching();
  AddRegion(24, "saturated", job.mutable_search());
  job.mutable_search()->add_times();
  job.mutable_search_options();
  job.mutable_comparison();
  const nlohmann::json search = JobJson(job)["search"];
  for (const auto& [object, message] :
       {std::pair(search, v1::SearchProgress::descriptor()),
        std::pair(search["tasks"][0], v1::SearchTask::descriptor()),
        std::pair(search["failures"][0], v1::SearchFailure::descriptor()),
        std::pair(search["times"][0], v1::SearchTime::descriptor()),
        std::pair(search["regions"][0], v1::SearchRegion::descriptor()),
        std::pair(search["regions"][0]["rules"][0], v1::SearchRule::descriptor()),
        std::pair(JobJson(job)["search_options"], v1::SearchOptions::descriptor()),
        std::pair(JobJson(job)["comparison"], v1::PlanComparison::descriptor()),
        std::pair(JobJson(job), v1::CompileJob::descriptor())}) {
    for (int i = 0; i < message->field_count(); ++i) {
      EXPECT_TRUE(object.contains(std::string(message->field(i)->name())))
          << message->field(i)->full_name();
    }
  }
  EXPECT_EQ(search["tasks"][0]["seconds"], nlohmann::json({1e-6, 20e-6}));
  EXPECT_EQ(KernelsJson(job.search())[0]["of_roofline"], nlohmann::json({1.5, 0.25}));
  EXPECT_TRUE(JobJson(v1::CompileJob())["search"].is_null());
}

TEST(SearchText, AJobAsALine) {
  v1::CompileJob job = Searching();
  EXPECT_EQ(JobText(job),
            "job j m/2: SEARCHING, 12.3 s, 98 candidates (3 failed), 1 of 2 plans taken, "
            "time 87.5 % of the baseline's; best genome 75.0 %, roofline 50.0 %");
  job.set_phase(v1::CompileJob::DONE);
  job.set_stop_reason(v1::CompileJob::STOP_STAGNATION);
  job.set_message("a plan serves");
  EXPECT_EQ(JobText(job), "job j m/2: DONE, nothing left to try promises a gain: a plan serves");
}

}  // namespace
}  // namespace athanor::client
