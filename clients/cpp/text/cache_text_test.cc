#include "clients/cpp/text/cache_text.h"

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Joined(const std::vector<std::string>& lines) { return absl::StrJoin(lines, "\n"); }

v1::CacheStat TestStat() {
  v1::CacheStat stat;
  stat.set_path("/var/cache.db");
  stat.set_state(v1::CacheStat::NEWER_SCHEMA);
  stat.set_reason("schema 9 is newer");
  stat.set_schema(9);
  stat.set_bytes(3 << 20);
  stat.set_limit_bytes(int64_t{2} << 30);
  stat.set_kernels_compiled(5);
  stat.set_kernels_from_cache(6);
  stat.set_candidates_measured(7);
  v1::CacheStat::TierStat& tier = *stat.add_tiers();
  tier.set_tier("plans");
  tier.set_rows(4);
  tier.set_bytes(1536);
  tier.set_hits(2);
  tier.set_misses(3);
  (*tier.mutable_misses_by_reason())["gate"] = 1;
  (*tier.mutable_misses_by_reason())["absent"] = 2;
  v1::CacheStat::Lease& lease = *stat.add_leases();
  lease.set_kind("plan");
  lease.set_about("model m, version 1");
  lease.set_pid(71);
  lease.set_age_seconds(1.25);
  return stat;
}

TEST(CacheTextTest, Bytes) {
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(1023), "1023 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(int64_t{2} << 30), "2.0 GiB");
  EXPECT_EQ(BytesText(int64_t{1} << 60), "1048576.0 TiB");
}

TEST(CacheTextTest, Stat) {
  const std::string text = Joined(CacheStatLines(TestStat()));
  for (const char* part :
       {"cache /var/cache.db: newer schema, schema 9 is newer", "3.0 MiB of 2.0 GiB",
        "5 kernels compiled, 6 from the cache, 7 candidates measured", "absent 2, gate 1",
        "plan lease of model m, version 1: process 71 for 1.2 s"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const nlohmann::json json = CacheStatJson(TestStat());
  EXPECT_EQ(json["state"], "NEWER_SCHEMA");
  EXPECT_EQ(json["tiers"]["plans"]["misses_by_reason"]["absent"], 2);
  EXPECT_EQ(json["leases"][0]["pid"], 71);
  EXPECT_EQ(json["candidates_measured"], 7);
}

TEST(CacheTextTest, Explanation) {
  v1::BucketExplanation bucket;
  EXPECT_THAT(CacheExplanationLines(bucket), ElementsAre("no dims: no plan is found"));
  v1::DimRange& range = *bucket.add_bucket();
  range.set_name("b");
  range.set_min(1);
  range.set_max(64);
  bucket.set_hit(true);
  bucket.set_plan_id("p-1");
  bucket.add_steps("plans: found p-1, made under other conditions");
  v1::BucketExplanation::Difference& difference = *bucket.add_differences();
  difference.set_column("threads");
  difference.set_wanted("2");
  difference.set_found("4");
  EXPECT_THAT(CacheExplanationLines(bucket),
              ElementsAre("b=1..64: found p-1", "  plans: found p-1, made under other conditions",
                          "  threads \"4\" is not \"2\" (only a new search is due)"));
  difference.set_gates(true);
  EXPECT_EQ(CacheExplanationLines(bucket).back(), "  threads \"4\" is not \"2\"");
  EXPECT_EQ(CacheExplanationJson(bucket)["bucket"]["b"], nlohmann::json({1, 64}));
}

TEST(CacheTextTest, Verification) {
  v1::CacheVerification found;
  found.set_rows(3);
  found.set_bytes(10);
  found.set_database("ok");
  v1::CacheVerification::BadRow& bad = *found.add_bad();
  bad.set_tier("kernels");
  bad.set_key("ab12");
  bad.set_about("kernel 01 for znver4");
  bad.set_why("its checksum does not fit");
  EXPECT_THAT(CacheVerificationLines(found),
              ElementsAre("3 rows, 10 B: 1 bad; database: ok",
                          "  kernels ab12 (kernel 01 for znver4): its checksum does not fit"));
  EXPECT_EQ(CacheVerificationJson(found)["bad"][0]["tier"], "kernels");
  v1::CacheVerification::BadRow& aside = *found.add_quarantined();
  aside.set_tier("plans");
  aside.set_about("p-1 of graph 12ab");
  aside.set_why("it is wrong");
  const std::vector<std::string> lines = CacheVerificationLines(found);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[2], "quarantined before: 1");
  EXPECT_EQ(lines[3], "  plans, p-1 of graph 12ab: it is wrong");
  EXPECT_EQ(CacheVerificationJson(found)["quarantined"][0]["why"], "it is wrong");
}

TEST(CacheTextTest, Garbage) {
  v1::CollectGarbageReply reply;
  reply.set_rows(2);
  reply.set_bytes(2048);
  v1::CollectGarbageReply::TierGarbage& tier = *reply.add_tiers();
  tier.set_tier("failures");
  tier.set_rows(2);
  tier.set_bytes(2048);
  EXPECT_THAT(CacheGarbageLines(reply, true),
              ElementsAre("would remove 2 rows, 2.0 KiB; 0 B would be left",
                          "  failures: 2 rows, 2.0 KiB"));
  EXPECT_EQ(CacheGarbageLines(reply, false)[0], "removed 2 rows, 2.0 KiB; 0 B left");
  EXPECT_EQ(CacheGarbageJson(reply, true)["tiers"]["failures"]["rows"], 2);
}

TEST(CacheTextTest, Import) {
  v1::ImportCacheReply reply;
  reply.set_recipes_added(2);
  reply.set_kernels_known(1);
  reply.set_plans_added(3);
  EXPECT_EQ(
      ImportText(reply),
      "imported from an unknown server: 2 recipes (0 were here), 3 plans (0 were here), 0 kernels "
      "(1 were here); not signed by a trusted key");
  reply.set_origin("athanord on host");
  reply.set_signed_by("ab");
  EXPECT_THAT(ImportText(reply), HasSubstr("from athanord on host:"));
  EXPECT_THAT(ImportText(reply), HasSubstr("signed by ab"));
  EXPECT_EQ(ImportJson(reply)["recipes_added"], 2);
  EXPECT_EQ(ImportJson(reply)["plans_added"], 3);
}

}  // namespace
}  // namespace athanor::client
