#include "clients/bench/flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using testing::HasSubstr;

RunFlags Flags() {
  RunFlags flags;
  flags.servers = {"127.0.0.1:1"};
  flags.model = "digits/2";
  return flags;
}

TEST(FlagsTest, DefaultsAreAClosedLoopOfOneCaller) {
  const auto plan = ParseRunFlags(Flags());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.arrival, Arrival::kClosed);
  EXPECT_EQ(plan->load.model, "digits");
  EXPECT_EQ(plan->load.version, "2");
  ASSERT_EQ(plan->load.phases.size(), 1u);
  EXPECT_EQ(plan->load.phases[0].seconds, 10);
  EXPECT_EQ(plan->load.phases[0].concurrency, 1);
  EXPECT_TRUE(plan->slos.empty());
}

TEST(FlagsTest, ARateMakesAnOpenLoop) {
  RunFlags flags = Flags();
  flags.rate = "500..2500";
  flags.duration = "1m30s";
  flags.max_outstanding = 7;
  flags.timeout = "250ms";
  auto plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.arrival, Arrival::kPoisson);
  EXPECT_EQ(plan->load.phases[0].rate, 500);
  EXPECT_EQ(plan->load.phases[0].rate_end, 2500);
  EXPECT_EQ(plan->load.phases[0].seconds, 90);
  EXPECT_EQ(plan->load.most_outstanding, 7);
  EXPECT_EQ(plan->load.timeout, absl::Milliseconds(250));
  flags.rate = "20";
  flags.arrival = "fixed";
  plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.arrival, Arrival::kFixed);
  EXPECT_EQ(plan->load.phases[0].rate_end, 20);
}

TEST(FlagsTest, AKneeBeginsAtTheRate) {
  RunFlags flags = Flags();
  flags.knee = true;
  EXPECT_THAT(std::string(ParseRunFlags(flags).status().message()), HasSubstr("--slo"));
  flags.slo = "e2el:5";
  auto plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.arrival, Arrival::kPoisson);
  EXPECT_EQ(plan->load.phases[0].rate, 1);
  EXPECT_EQ(plan->knee_most, kMostRate);
  EXPECT_TRUE(plan->sweep.empty());
  flags.rate = "30";
  flags.duration = "100000s";
  plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.phases[0].rate, 30);
  EXPECT_EQ(plan->knee_most, 100);
  flags.slo.clear();
  flags.knee = false;
  EXPECT_EQ(ParseRunFlags(flags)->knee_most, 0);
  const std::pair<const char*, void (*)(RunFlags*)> cases[] = {
      {"--rate", [](RunFlags* f) { f->rate = "5..9"; }},
      {"--rate", [](RunFlags* f) { f->rate = "0"; }},
      {"--knee", [](RunFlags* f) { f->servers = {"a:1", "b:1"}; }},
      {"--knee", [](RunFlags* f) { f->rate.clear(), f->phases = {"1s:rate=5"}; }},
      {"--concurrency", [](RunFlags* f) { f->concurrency = "5"; }},
      {"--arrival", [](RunFlags* f) { f->arrival = "closed"; }},
      {"--think", [](RunFlags* f) { f->think = "1s"; }},
  };
  for (const auto& [flag, change] : cases) {
    RunFlags changed = Flags();
    changed.slo = "e2el:5";
    changed.knee = true;
    change(&changed);
    EXPECT_THAT(std::string(ParseRunFlags(changed).status().message()), HasSubstr(flag)) << flag;
  }
}

TEST(FlagsTest, ATraceOfTooManyCallsIsEndedEarly) {
  RunFlags flags = Flags();
  flags.answers = Answers::kTokens;
  flags.due.resize(kMostStreams);
  EXPECT_TRUE(ParseRunFlags(flags).ok());
  flags.due.push_back(2);
  const absl::Status status = ParseRunFlags(flags).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--trace (1000001 calls)"));
  flags.num_prompts = 5;
  EXPECT_TRUE(ParseRunFlags(flags).ok());
  flags.num_prompts.reset();
  flags.duration = "1s";
  EXPECT_EQ(ParseRunFlags(flags)->load.due.size(), static_cast<size_t>(kMostStreams));
}

TEST(FlagsTest, ASweepIsANumberOrAscendingOnes) {
  const auto points = [](const std::string& text) {
    return ParseSweep(text).value_or(std::vector<int>{});
  };
  EXPECT_EQ(points("8"), std::vector<int>{8});
  EXPECT_EQ(points("1,4,16"), (std::vector<int>{1, 4, 16}));
  EXPECT_EQ(points("1:64:x2"), (std::vector<int>{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(points("3:20:x2"), (std::vector<int>{3, 6, 12}));
  EXPECT_EQ(points("4:12:+4"), (std::vector<int>{4, 8, 12}));
  EXPECT_EQ(points("5:5:x9"), std::vector<int>{5});
  for (const char* text :
       {"", "0", "-1", "x", "1,", "4,1", "2,2", "1:64", "1:64:2", "1:64:x1", "1:64:+0", "64:1:x2",
        "0:4:x2", "1:4:x2:x2", "1:100:+1", "1:2147483647:+1", "99999999999"}) {
    const absl::Status status = ParseSweep(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--concurrency"));
  }
  RunFlags flags = Flags();
  flags.concurrency = "1:4:x2";
  auto plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->sweep, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(plan->load.phases[0].concurrency, 4);  // so warm-up calls come from as many callers
  flags.concurrency = "1,200000";
  EXPECT_FALSE(ParseRunFlags(flags).ok());
}

TEST(FlagsTest, ARunMayEndAfterANumberOfCalls) {
  RunFlags flags = Flags();
  flags.answers = Answers::kTokens;
  auto plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.most_calls, kMostStreams);
  EXPECT_EQ(plan->load.phases[0].seconds, 10);
  flags.num_prompts = 100;
  plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.most_calls, 100);
  EXPECT_GE(plan->load.phases[0].seconds, 86'400);
  flags.rate = "1000000";  // calls are limited by their number, not by the rate
  EXPECT_TRUE(ParseRunFlags(flags).ok());
  flags.duration = "5s";
  EXPECT_EQ(ParseRunFlags(flags)->load.phases[0].seconds, 5);
}

TEST(FlagsTest, PhasesFollowEachOther) {
  RunFlags flags = Flags();
  flags.phases = {"10s:rate=100", "500ms:rate=100..400", "1s:rate=0"};
  auto plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->load.phases.size(), 3u);
  EXPECT_EQ(plan->load.phases[1].seconds, 0.5);
  EXPECT_EQ(plan->load.phases[1].rate_end, 400);
  flags.phases = {"1s:concurrency=1", "1s:concurrency=8"};
  plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.arrival, Arrival::kClosed);
  EXPECT_EQ(plan->load.phases[1].concurrency, 8);
}

TEST(FlagsTest, TwoServersTakeTurns) {
  RunFlags flags = Flags();
  flags.servers.push_back("127.0.0.1:2");
  flags.duration = "30s";
  flags.slice = "3s";
  const auto plan = ParseRunFlags(flags);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->load.address, "127.0.0.1:1");
  EXPECT_EQ(plan->second_server, "127.0.0.1:2");
  EXPECT_EQ(Pairs(*plan), 10);
}

TEST(FlagsTest, SlicesAreCountedWhole) {
  RunFlags flags = Flags();
  flags.servers.push_back("127.0.0.1:2");
  struct Case {
    const char *duration, *slice;
    int pairs;
  };
  for (const Case& c : {Case{"300ms", "100ms", 3}, Case{"399ms", "100ms", 3},
                        Case{"100ms", "50ms", 2}, Case{"500s", "50ms", 10'000}}) {
    flags.duration = c.duration;
    flags.slice = c.slice;
    const auto plan = ParseRunFlags(flags);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(Pairs(*plan), c.pairs) << c.duration << " of " << c.slice;
  }
}

TEST(FlagsTest, AbsurdFlagsAreRefusedByName) {
  struct Case {
    const char* flag;
    void (*change)(RunFlags* flags);
  };
  const Case cases[] = {
      {"--address", [](RunFlags* f) { f->servers.clear(); }},
      {"--address", [](RunFlags* f) { f->servers = {"a:1", "b:2", "c:3"}; }},
      {"--address", [](RunFlags* f) { f->servers = {"a:1", "b:2"}, f->rate = "1..5"; }},
      {"--slice", [](RunFlags* f) { f->slice = "1s"; }},
      {"--slice", [](RunFlags* f) { f->servers = {"a:1", "b:2"}, f->slice = "8s"; }},
      {"--slice", [](RunFlags* f) { f->servers = {"a:1", "b:2"}, f->slice = "0s"; }},
      {"--slice", [](RunFlags* f) { f->servers = {"a:1", "b:2"}, f->slice = "1ns"; }},
      {"--slice", [](RunFlags* f) { f->servers = {"a:1", "b:2"}, f->slice = "49ms"; }},
      {"--slice",
       [](RunFlags* f) { f->servers = {"a:1", "b:2"}, f->slice = "50ms", f->duration = "168h"; }},
      {"--model", [](RunFlags* f) { f->model = ""; }},
      {"--num_prompts", [](RunFlags* f) { f->servers = {"a:1", "b:2"}, f->num_prompts = 5; }},
      {"--num_prompts", [](RunFlags* f) { f->num_prompts = 0; }},
      {"--rate", [](RunFlags* f) { f->rate = "fast"; }},
      {"--rate", [](RunFlags* f) { f->rate = "-5"; }},
      {"--rate", [](RunFlags* f) { f->rate = "0"; }},
      {"--rate", [](RunFlags* f) { f->rate = "nan"; }},
      {"--rate", [](RunFlags* f) { f->rate = "inf"; }},
      {"--rate", [](RunFlags* f) { f->rate = "1..2..3"; }},
      {"--rate", [](RunFlags* f) { f->rate = "1000000", f->duration = "1h"; }},
      {"--arrival", [](RunFlags* f) { f->arrival = "uniform"; }},
      {"--arrival", [](RunFlags* f) { f->arrival = "poisson"; }},
      {"--arrival", [](RunFlags* f) { f->arrival = "closed", f->rate = "5"; }},
      {"--burstiness", [](RunFlags* f) { f->rate = "5", f->burstiness = 2; }},
      {"--burstiness",
       [](RunFlags* f) { f->rate = "5", f->arrival = "gamma", f->burstiness = -2; }},
      {"--concurrency", [](RunFlags* f) { f->concurrency = "0"; }},
      {"--concurrency", [](RunFlags* f) { f->concurrency = "5", f->rate = "5"; }},
      {"--duration", [](RunFlags* f) { f->duration = "10"; }},
      {"--duration", [](RunFlags* f) { f->duration = "-3s"; }},
      {"--duration", [](RunFlags* f) { f->duration = "inf"; }},
      {"--duration", [](RunFlags* f) { f->duration = "9000h"; }},
      {"--phase", [](RunFlags* f) { f->phases = {"10s"}; }},
      {"--phase", [](RunFlags* f) { f->phases = {"10s:speed=5"}; }},
      {"--phase", [](RunFlags* f) { f->phases = {"x:rate=5"}; }},
      {"--phase", [](RunFlags* f) { f->phases = {"1s:rate=5", "1s:concurrency=5"}; }},
      {"--phase", [](RunFlags* f) { f->phases = {"1s:rate=5"}, f->duration = "5s"; }},
      {"--max_outstanding", [](RunFlags* f) { f->max_outstanding = 5; }},
      {"--max_outstanding", [](RunFlags* f) { f->rate = "5", f->max_outstanding = -1; }},
      {"--connections", [](RunFlags* f) { f->connections = -1; }},
      {"--warmup", [](RunFlags* f) { f->warmups = -1; }},
      {"--timeout", [](RunFlags* f) { f->timeout = "soon"; }},
      {"--slo", [](RunFlags* f) { f->slo = "speed:5"; }},
      {"--slo ,", [](RunFlags* f) { f->slo = ","; }},
      {"--slo_share", [](RunFlags* f) { f->slo_share = 2; }},
      {"--slo_share", [](RunFlags* f) { f->slo_share = 0.5; }},
      {"--metadata", [](RunFlags* f) { f->metadata = {"commit"}; }},
  };
  for (const Case& c : cases) {
    RunFlags flags = Flags();
    c.change(&flags);
    const absl::Status status = ParseRunFlags(flags).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.flag;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.flag));
  }
}

}  // namespace
}  // namespace athanor::bench
