// Tests of what each tier remembers and what it refuses, and of the cost of a hit.
#include "compiler/cache/cache.h"

#include <sqlite3.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "compiler/cache/cache_fixture.h"
#include "compiler/cache/rows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST_F(CacheTest, KeepsRowsOfEveryTierAcrossOpens) {
  {
    auto cache = Open();
    for (const TierCase& tier : TierCases()) {
      EXPECT_FALSE(tier.found(*cache)) << tier.tier;
      tier.put(*cache);
      EXPECT_TRUE(tier.found(*cache)) << tier.tier;  // queued, or written already
    }
    cache->checks().Put(std::string(32, 'c'));
    EXPECT_TRUE(cache->checks().Has(std::string(32, 'c')));
    ASSERT_TRUE(cache->Flush(kLong).ok());
    for (const TierCase& tier : TierCases()) EXPECT_TRUE(tier.found(*cache)) << tier.tier;
  }
  auto cache = Open();
  for (const TierCase& tier : TierCases()) {
    EXPECT_TRUE(tier.found(*cache)) << tier.tier;
    const auto stat = TierOf(*cache, tier.tier);
    EXPECT_EQ(stat.rows(), 1) << tier.tier;
    EXPECT_GT(stat.bytes(), 0) << tier.tier;
    EXPECT_EQ(stat.hits(), 1) << tier.tier;
    EXPECT_EQ(stat.misses(), 0) << tier.tier;
  }
  EXPECT_TRUE(cache->checks().Has(std::string(32, 'c')));
  EXPECT_FALSE(cache->checks().Has(std::string(32, 'd')));
  EXPECT_EQ(TierOf(*cache, "checks").rows(), 1);
  EXPECT_EQ(cache->Stat().state(), v1::CacheStat::USABLE);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_F(CacheTest, WhatIsNotWrittenYetIsFound) {
  auto cache = Open();
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  for (const TierCase& tier : TierCases()) {
    tier.put(*cache);
    EXPECT_TRUE(tier.found(*cache)) << tier.tier;
  }
  EXPECT_EQ(cache->Flush(std::chrono::milliseconds(1)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cache->Stat().writes_waiting(), static_cast<int64_t>(TierCases().size()));
  ASSERT_EQ(sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  EXPECT_TRUE(cache->Flush(kLong).ok());
  EXPECT_EQ(cache->Stat().writes_waiting(), 0);
  for (const TierCase& tier : TierCases()) EXPECT_TRUE(tier.found(*cache)) << tier.tier;
}

TEST_F(CacheTest, ABadByteIsAMissAndARowInQuarantine) {
  auto cache = Open();
  for (const TierCase& tier : TierCases()) {
    for (const std::string& damage : tier.damages) {
      SCOPED_TRACE(tier.tier + ": " + damage);
      tier.put(*cache);
      ASSERT_TRUE(cache->Flush(kLong).ok());
      ASSERT_TRUE(tier.found(*cache));
      Execute("DELETE FROM quarantine; UPDATE " + tier.tier + " SET " + damage);
      const int64_t bad_before = TierOf(*cache, tier.tier).bad_rows();
      EXPECT_FALSE(tier.found(*cache));
      ASSERT_TRUE(cache->Flush(kLong).ok());
      EXPECT_EQ(Number("SELECT count(*) FROM " + tier.tier), 0);
      EXPECT_EQ(Number("SELECT count(*) FROM quarantine WHERE tier = '" + tier.tier + "'"), 1);
      EXPECT_EQ(TierOf(*cache, tier.tier).bad_rows(), bad_before + 1);
    }
    EXPECT_GT(TierOf(*cache, tier.tier).misses_by_reason().at("bad_row"), 0);
    tier.put(*cache);
    EXPECT_TRUE(tier.found(*cache)) << tier.tier;
  }
}

// Neither the write-ahead log nor the file changes by a byte.
TEST_F(CacheTest, AHitWritesNothing) {
  auto cache = Open();
  for (const TierCase& tier : TierCases()) tier.put(*cache);
  cache->checks().Put(std::string(32, 'c'));
  ASSERT_TRUE(cache->Flush(kLong).ok());
  // Rows used long ago: even their use marks must wait.
  for (const TierCase& tier : TierCases()) Execute("UPDATE " + tier.tier + " SET used_us = 7");
  Execute("UPDATE checks SET used_us = 7");
  const auto bytes = [this] {
    std::string all;
    for (const char* suffix : {"", "-wal"}) {
      std::ifstream in(path_ + suffix, std::ios::binary);
      all.append(std::istreambuf_iterator<char>(in), {});
    }
    return all;
  };
  const auto time = [this] { return std::filesystem::last_write_time(path_); };
  for (const TierCase& tier : TierCases()) ASSERT_TRUE(tier.found(*cache));
  const std::string before = bytes();
  const auto time_before = time();
  const int64_t version = cache->data_version();
  ASSERT_TRUE(cache->ExecuteForTest("PRAGMA query_only=1").ok());
  for (int i = 0; i < 3; ++i) {
    for (const TierCase& tier : TierCases()) EXPECT_TRUE(tier.found(*cache)) << tier.tier;
    EXPECT_TRUE(cache->checks().Has(std::string(32, 'c')));
  }
  EXPECT_TRUE(cache->Flush(kLong).ok());
  EXPECT_EQ(cache->data_version(), version);
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(time(), time_before);
  // The marks are written with the next row.
  cache->checks().Put(std::string(32, 'd'));
  ASSERT_TRUE(cache->Flush(kLong).ok());
  for (const TierCase& tier : TierCases()) {
    EXPECT_EQ(Number("SELECT count(*) FROM " + tier.tier + " WHERE used_us = 7"), 0) << tier.tier;
  }
  EXPECT_EQ(Number("SELECT count(*) FROM checks WHERE used_us = 7"), 0);
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_F(CacheTest, APlanOfEqualConditionsGoesFirstAndOfThoseTheIncumbent) {
  for (const bool flushed : {false, true}) {
    SCOPED_TRACE(flushed);
    auto cache = Open();
    const auto settle = [&] {
      if (flushed) ASSERT_TRUE(cache->Flush(kLong).ok());
    };
    const int graph = flushed ? 1 : 2;
    const PlanKey here = TestPlanKey(graph);
    PlanKey there = here;
    there.made_under.target.set_threads(8);
    PlanRow other = TestPlan("p-other");
    other.incumbent = true;
    cache->plans().Put(there, other);
    settle();
    ASSERT_TRUE(cache->plans().Find(here).has_value());
    EXPECT_EQ(cache->plans().Find(here)->stored.plan().plan_id(), "p-other");
    EXPECT_FALSE(cache->plans().Find(here)->conditions_equal);
    cache->plans().Put(here, TestPlan("p-base"));
    settle();
    EXPECT_EQ(cache->plans().Find(here)->stored.plan().plan_id(), "p-base");
    PlanRow best = TestPlan("p-best");
    best.incumbent = true;
    cache->plans().Put(here, best);
    settle();
    cache->plans().Put(here, TestPlan("p-slower"));
    cache->plans().Put(here, TestPlan("p-best"));  // put again: it stays the incumbent
    settle();
    EXPECT_EQ(cache->plans().Find(here)->stored.plan().plan_id(), "p-best");
    EXPECT_TRUE(cache->plans().Find(here)->incumbent);
    PlanRow newer = TestPlan("p-newer");
    newer.incumbent = true;
    cache->plans().Put(here, newer);
    settle();
    EXPECT_EQ(cache->plans().Find(here)->stored.plan().plan_id(), "p-newer");
    EXPECT_FALSE(cache->plans().FindById(here, "p-best")->incumbent);
    EXPECT_FALSE(cache->plans().FindById(here, "p-none").has_value());
    EXPECT_EQ(cache->plans().All(here).size(), 5u);
    EXPECT_EQ(cache->plans().Find(there)->stored.plan().plan_id(), "p-other");
    ASSERT_TRUE(cache->Flush(kLong).ok());
    EXPECT_EQ(Number("SELECT count(*) FROM plans WHERE incumbent = 1 AND graph_hash = '" +
                     here.graph_hash + "'"),
              2);
  }
}

TEST_F(CacheTest, AMissSaysWhy) {
  auto cache = Open();
  MissReason why = MissReason::kBusy;
  EXPECT_FALSE(cache->plans().Find(TestPlanKey(1), &why).has_value());
  EXPECT_EQ(why, MissReason::kAbsent);
  cache->plans().Put(TestPlanKey(1), TestPlan("p-1"));
  cache->kernels().Put(TestKernelKey(0), TestObject(0));
  ASSERT_TRUE(cache->Flush(kLong).ok());
  PlanKey other = TestPlanKey(1);
  other.made_under.target.set_cpu("znver5");
  other.made_under.driver = "NVIDIA H200, CUDA 13.0";
  EXPECT_FALSE(cache->plans().Find(other, &why).has_value());
  EXPECT_EQ(why, MissReason::kGate);
  const v1::BucketExplanation miss = cache->Explain(other);
  EXPECT_FALSE(miss.hit());
  ASSERT_EQ(miss.differences_size(), 2);
  EXPECT_EQ(miss.differences(0).column(), "cpu");
  EXPECT_EQ(miss.differences(0).wanted(), "znver5");
  EXPECT_EQ(miss.differences(0).found(), "znver4");
  EXPECT_TRUE(miss.differences(0).gates());
  EXPECT_EQ(miss.differences(1).column(), "driver");
  EXPECT_EQ(miss.differences(1).wanted(), "NVIDIA H200, CUDA 13.0");
  EXPECT_FALSE(miss.differences(1).gates());
  EXPECT_THAT(miss.steps(0), HasSubstr("the nearest is p-1"));
  const v1::BucketExplanation hit = cache->Explain(TestPlanKey(1));
  EXPECT_TRUE(hit.hit());
  EXPECT_EQ(hit.plan_id(), "p-1");
  EXPECT_EQ(hit.differences_size(), 0);
  EXPECT_THAT(hit.steps(), ElementsAre("plans: found p-1", "kernels: 1 of the plan's 2"));
  EXPECT_THAT(cache->Explain(TestPlanKey(7)).steps(), ElementsAre(HasSubstr("plans: none of")));
  KernelKey kernel = TestKernelKey(0);
  kernel.flags = "-O2";
  EXPECT_FALSE(cache->kernels().Find(kernel, &why).has_value());
  EXPECT_EQ(why, MissReason::kGate);
  EXPECT_EQ(TierOf(*cache, "plans").misses_by_reason().at("gate"), 2);
}

TEST_F(CacheTest, ExplainNamesWhatSearchesOfTheGraphLeaveOut) {
  auto cache = Open();
  const std::string& graph = TestPlanKey(1).graph_hash;
  cache->failures().Put("k", FailureKind::kCompile,
                        {absl::InternalError("crashed"), FailureAbout(graph, "kernel 1")});
  cache->failures().Put("p", FailureKind::kPlanCheck,
                        {absl::DataLossError("wrong"), FailureAbout(graph, "plan p-2")});
  cache->failures().Put("q", FailureKind::kCompile,
                        {absl::InternalError("crashed"), FailureAbout("12ab", "kernel 2")});
  ASSERT_TRUE(cache->Flush(kLong).ok());
  EXPECT_THAT(cache->Explain(TestPlanKey(1)).steps(),
              UnorderedElementsAre(
                  HasSubstr("plans: none of"), "failures: 2 remembered of searches of this graph",
                  "failed: kernel 1: compile, INTERNAL: crashed; not tried for 1440 minutes",
                  "failed: plan p-2: plan_check, DATA_LOSS: wrong; not tried for 43200 minutes"));
  for (int i = 0; i < 9; ++i) {
    cache->failures().Put(absl::StrCat(i), FailureKind::kMeasure,
                          {absl::InternalError("crashed"), FailureAbout(graph, "kernel")});
  }
  ASSERT_TRUE(cache->Flush(kLong).ok());
  const v1::BucketExplanation many = cache->Explain(TestPlanKey(1));
  EXPECT_THAT(many.steps(1), HasSubstr("failures: 11 remembered"));
  EXPECT_EQ(many.steps_size(), 2 + 5);
}

TEST_F(CacheTest, RecipesOfThisKeyAndMachineComeFirst) {
  auto cache = Open();
  v1::RegionRecipe far = TestRecipe("elsewhere", 0.1);
  far.set_cpu("sapphirerapids");
  RecipeKey box = TestRecipeKey(1);
  box.dim_box = "d0=1..8";
  RecipeKey meant_otherwise = TestRecipeKey(1);
  meant_otherwise.semantics_version = 2;
  cache->recipes().Put(meant_otherwise, TestRecipe("of other ops", 0.01));
  cache->recipes().Put(box, TestRecipe("other box", 0.05));
  cache->recipes().Put(TestRecipeKey(1), far);
  cache->recipes().Put(TestRecipeKey(1), TestRecipe("slow", 0.9));
  cache->recipes().Put(TestRecipeKey(1), TestRecipe("fast", 0.4));
  cache->recipes().Put(TestRecipeKey(2), TestRecipe("other region", 0.1));
  for (const bool flushed : {false, true}) {
    if (flushed) ASSERT_TRUE(cache->Flush(kLong).ok());
    std::vector<std::string> genomes;
    for (const auto& r : cache->recipes().Find(TestRecipeKey(1), TestTarget(), 9)) {
      genomes.push_back(r.genome());
    }
    EXPECT_THAT(genomes, ElementsAre("fast", "slow", "elsewhere", "other box"));
    EXPECT_EQ(cache->recipes().Find(TestRecipeKey(1), TestTarget(), 2).size(), 2u);
  }
  // Another machine's time of a recipe of ours changes nothing.
  SqliteFile file(path_, CacheSchema(), nullptr);
  ASSERT_EQ(file.Open(), FileState::kUsable);
  const CacheRow foreign = RecipeRow(TestRecipeKey(1), TestRecipe("fast", 0.99), "bundle 12");
  ASSERT_TRUE(file.Transaction([&] { return InsertRow(file, foreign); }).ok());
  EXPECT_EQ(cache->recipes().Find(TestRecipeKey(1), TestTarget(), 1)[0].share_of_baseline(), 0.4);
}

TEST_F(CacheTest, FailuresExpireAndAClockThatWasWrongKeepsNone) {
  auto cache = Open();
  const FailureRow crash{absl::InternalError("crashed"), "kernel 1"};
  cache->failures().Put("k", FailureKind::kCompile, crash);
  cache->failures().Put("k", FailureKind::kMeasure, {absl::CancelledError("stop"), "kernel 1"});
  ASSERT_TRUE(cache->Flush(kLong).ok());
  EXPECT_TRUE(cache->failures().Find("k", FailureKind::kCompile).has_value());
  EXPECT_FALSE(cache->failures().Find("k", FailureKind::kMeasure).has_value());
  EXPECT_FALSE(cache->failures().Find("k", FailureKind::kCheck).has_value());
  EXPECT_EQ(FailureLifetime(absl::StatusCode::kInternal), int64_t{86400} * 1000000);
  EXPECT_EQ(FailureLifetime(absl::StatusCode::kDeadlineExceeded), int64_t{3600} * 1000000);
  EXPECT_EQ(FailureLifetime(absl::StatusCode::kUnimplemented), 30 * int64_t{86400} * 1000000);
  EXPECT_EQ(FailureLifetime(absl::StatusCode::kAborted), 0);
  EXPECT_EQ(Number("SELECT expires_us - created_us BETWEEN 86399000000 AND 86401000000"
                   " FROM failures"),
            1);
  // Reads the failure as 400 days later and 400 days earlier: moves the rows, not the clock.
  constexpr int64_t kDays = int64_t{400} * 86400 * 1000000;
  for (const int64_t shift : {-kDays, kDays}) {
    CacheRow row{.tier = Tier::kFailures, .key = ""};
    row.values = ValuesOf(Tier::kFailures, {},
                          {{"key", Bytes{"moved"}},
                           {"kind", std::string("load")},
                           {"code", int64_t{13}},
                           {"message", std::string("crashed")},
                           {"about", std::string("kernel 1")},
                           {"expires_us", WallMicroseconds() + kDays / 400 + shift}});
    const auto at = absl::c_find(TableOf(Tier::kFailures).columns, "created_us") -
                    TableOf(Tier::kFailures).columns.begin();
    row.values[at] = WallMicroseconds() + shift;
    SqliteFile file(path_, CacheSchema(), nullptr);
    ASSERT_EQ(file.Open(), FileState::kUsable);
    ASSERT_TRUE(file.Transaction([&] { return InsertRow(file, row); }).ok());
    MissReason why = MissReason::kAbsent;
    EXPECT_FALSE(cache->failures().Find("moved", FailureKind::kLoad, &why).has_value()) << shift;
    EXPECT_EQ(why, MissReason::kExpired);
  }
}

TEST_F(CacheTest, SearchesAreKnownByTheirOptionsAndConditions) {
  auto cache = Open();
  cache->searches().Put(TestPlanKey(1), TestOptions("30s"), {v1::CompileJob::STOP_BUDGET, 30, 5});
  ASSERT_TRUE(cache->Flush(kLong).ok());
  EXPECT_TRUE(cache->searches().Find(TestPlanKey(1), TestOptions("30s")).has_value());
  EXPECT_FALSE(cache->searches().Find(TestPlanKey(1), TestOptions("60s")).has_value());
  PlanKey other = TestPlanKey(1);
  other.made_under.rule_set = "more rules";
  EXPECT_FALSE(cache->searches().Find(other, TestOptions("30s")).has_value());
  EXPECT_FALSE(cache->searches().Find(TestPlanKey(2), TestOptions("30s")).has_value());
}

TEST_F(CacheTest, LeasesAreHeldThroughTheFileAndShown) {
  CacheOptions options{.path = path_};
  options.leases.timeout = std::chrono::seconds(5);  // a busy machine may beat late
  auto one = Cache::Open(options, [](absl::string_view) {});
  auto two = Cache::Open(options, [](absl::string_view) {});
  absl::StatusOr<Lease> lease = one->leases().Take("key", "plan", "model m");
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(two->leases().Take("key", "plan", "model m").status().code(),
            absl::StatusCode::kUnavailable);
  const v1::CacheStat stat = one->Stat(), others = two->Stat();
  ASSERT_EQ(stat.leases_size(), 1);
  EXPECT_EQ(stat.leases(0).kind(), "plan");
  EXPECT_EQ(stat.leases(0).about(), "model m");
  EXPECT_EQ(stat.leases(0).pid(), getpid());
  EXPECT_TRUE(stat.leases(0).ours());
  ASSERT_EQ(others.leases_size(), 1);
  EXPECT_FALSE(others.leases(0).ours());
  // The writer thread renews the lease.
  while (Number("SELECT count(*) FROM leases WHERE beat_boot_us > taken_boot_us") == 0)
    usleep(1000);
  EXPECT_TRUE(lease->valid());
  lease->Release();
  EXPECT_TRUE(two->leases().Take("key", "plan", "model m").ok());
}

}  // namespace
}  // namespace athanor
