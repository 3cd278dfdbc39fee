// Tests of garbage collection and of verification.
#include "compiler/cache/garbage.h"

#include <sqlite3.h>

#include <filesystem>
#include <string>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_fixture.h"
#include "compiler/cache/schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

class GarbageTest : public CacheTest {};

TEST_F(GarbageTest, VerifyFindsWhatIsBadAndQuarantinesOnlyIfAsked) {
  auto cache = Open();
  for (const TierCase& tier : TierCases()) tier.put(*cache);
  cache->PutPassed(std::string(32, 'c'));
  const v1::CacheVerification clean = cache->Verify(false).value();
  EXPECT_EQ(clean.rows(), 8);
  EXPECT_EQ(clean.bad_size(), 0);
  EXPECT_EQ(clean.database(), "ok");
  for (const TierCase& tier : TierCases()) {
    Execute("UPDATE " + tier.tier + " SET " + tier.damages[0]);
  }
  Execute("UPDATE checks SET key = x'00'");
  for (const bool quarantine : {false, true}) {
    const v1::CacheVerification bad = cache->Verify(quarantine).value();
    EXPECT_EQ(bad.rows(), 8);
    EXPECT_EQ(bad.bad_size(), 8);
    for (const auto& row : bad.bad()) {
      EXPECT_FALSE(row.tier().empty() || row.key().empty() || row.about().empty() ||
                   row.why().empty())
          << row.DebugString();
    }
    EXPECT_EQ(Number("SELECT count(*) FROM quarantine"), quarantine ? 8 : 0);
  }
  EXPECT_EQ(cache->Verify(false).value().rows(), 0);
}

// An index whose columns were declared in another order: SQLite calls it malformed.
TEST_F(GarbageTest, VerifyMakesIndexesAnewIfAsked) {
  auto cache = Open();
  for (const TierCase& tier : TierCases()) tier.put(*cache);
  ASSERT_TRUE(cache->Flush(kLong).ok());
  Execute("CREATE INDEX extra ON kernels (cpu)");
  Execute(
      "PRAGMA writable_schema = 1;"
      "UPDATE sqlite_master SET sql = 'CREATE INDEX extra ON kernels (triple)'"
      " WHERE name = 'extra'");
  EXPECT_NE(cache->Verify(false).value().database(), "ok");
  EXPECT_NE(cache->Verify(true).value().database(), "ok");
  const v1::CacheVerification mended = cache->Verify(false).value();
  EXPECT_EQ(mended.database(), "ok");
  EXPECT_EQ(mended.rows(), 7);
}

TEST_F(GarbageTest, VerifyMovesADamagedFileAsideIfAsked) {
  auto cache = Open();
  for (const TierCase& tier : TierCases()) tier.put(*cache);
  ASSERT_TRUE(cache->Flush(kLong).ok());
  // A page that belongs to nothing.
  Execute(
      "CREATE TABLE extra (a); INSERT INTO extra VALUES (zeroblob(9000));"
      "PRAGMA writable_schema = 1; DELETE FROM sqlite_master WHERE name = 'extra'");
  EXPECT_NE(cache->Verify(false).value().database(), "ok");
  EXPECT_EQ(cache->Verify(false).value().rows(), 7);
  EXPECT_NE(cache->Verify(true).value().database(), "ok");
  const v1::CacheVerification mended = cache->Verify(false).value();
  EXPECT_EQ(mended.database(), "ok");
  EXPECT_EQ(mended.rows(), 0);
  ASSERT_EQ(reports().size(), 1u);
  EXPECT_THAT(reports()[0], testing::HasSubstr("is damaged: moved to "));
}

TEST_F(GarbageTest, GarbageLeavesWhatIncumbentsName) {
  auto cache = Open();
  PlanRow serving = TestPlan("p-serving", 0);  // kernels 0 and 1
  serving.incumbent = true;
  cache->PutPlan(TestPlanKey(1), serving);
  cache->PutPlan(TestPlanKey(1), TestPlan("p-before", 38));  // kernels 38 and 39
  for (int i = 0; i < 60; ++i) cache->PutKernel(TestKernelKey(i), TestObject(i));
  cache->PutTiming(TestTimingKey(1), {{1}, {1}, {1}, 1, true});
  cache->PutTiming(TestTimingKey(1000), {{1}, {1}, {1}, 1, true});
  cache->PutRecipe(TestRecipeKey(1), TestRecipe("tile 4"));
  cache->PutFailure("k", FailureKind::kCheck, {absl::InternalError("wrong"), "kernel 9"});
  ASSERT_TRUE(cache->Flush(kLong).ok());
  Execute("UPDATE kernels SET used_us = 1");  // the plans' kernels are among the oldest
  v1::CollectGarbageRequest request;
  request.set_limit_bytes(500000);
  request.set_dry_run(true);
  const v1::CollectGarbageReply dry = cache->CollectGarbage(request).value();
  EXPECT_EQ(TierOf(*cache, "kernels").rows(), 60);
  EXPECT_GT(dry.rows(), 0);
  EXPECT_LE(dry.bytes_left(), 500000);
  request.set_dry_run(false);
  const v1::CollectGarbageReply done = cache->CollectGarbage(request).value();
  EXPECT_EQ(done.rows(), dry.rows());
  EXPECT_EQ(done.bytes(), dry.bytes());
  EXPECT_FALSE(cache->FindTiming(TestTimingKey(1000)).has_value());  // its kernel is not here
  EXPECT_TRUE(cache->FindPlanById(TestPlanKey(1), "p-before").has_value());
  for (int i : {0, 1, 38, 39}) EXPECT_EQ(cache->FindKernel(TestKernelKey(i)), TestObject(i)) << i;
  EXPECT_LT(std::filesystem::file_size(path_), 600000u);
  // Lowers the limit until plans that do not serve are removed: the serving one stays.
  for (int64_t limit = 400000; cache->FindPlanById(TestPlanKey(1), "p-before"); limit -= 8000) {
    ASSERT_GT(limit, 0);
    request.set_limit_bytes(limit);
    ASSERT_TRUE(cache->CollectGarbage(request).ok());
    ASSERT_TRUE(cache->FindPlan(TestPlanKey(1)).has_value());
    for (int i : {0, 1}) ASSERT_EQ(cache->FindKernel(TestKernelKey(i)), TestObject(i)) << limit;
  }
  // Under a limit that nothing fits, collection ends with nothing left.
  request.set_limit_bytes(1);
  ASSERT_TRUE(cache->CollectGarbage(request).ok());
  EXPECT_EQ(TierOf(*cache, "plans").rows() + TierOf(*cache, "kernels").rows(), 0);
  request.set_limit_bytes(-1);
  EXPECT_EQ(cache->CollectGarbage(request).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->Verify(false).value().database(), "ok");
}

TEST_F(GarbageTest, GarbageForgetsFailuresAndQuarantineOnRequest) {
  auto cache = Open();
  cache->PutFailure("k", FailureKind::kCheck, {absl::InternalError("wrong"), "kernel 9"});
  ASSERT_TRUE(cache->Flush(kLong).ok());
  Execute("INSERT INTO quarantine VALUES ('kernels', x'00', 1, 'why', 'about', 3)");
  EXPECT_EQ(cache->CollectGarbage({}).value().rows(), 0);
  v1::CollectGarbageRequest request;
  request.set_failures(true);
  request.set_quarantine(true);
  const v1::CollectGarbageReply done = cache->CollectGarbage(request).value();
  EXPECT_EQ(done.rows(), 2);
  ASSERT_EQ(done.tiers_size(), 2);
  EXPECT_EQ(done.tiers(0).tier(), "failures");
  EXPECT_EQ(done.tiers(1).tier(), "quarantine");
  // Expired failures are always removed.
  cache->PutFailure("k", FailureKind::kCheck, {absl::InternalError("wrong"), "kernel 9"});
  ASSERT_TRUE(cache->Flush(kLong).ok());
  Execute("UPDATE failures SET expires_us = 1");
  EXPECT_EQ(cache->CollectGarbage({}).value().rows(), 1);
}

// Thousands of small rows: others write between the transactions, none of which is long.
TEST_F(GarbageTest, ManyRowsGoInManyTransactions) {
  constexpr int kRows = 20'000;
  Open();
  Execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
          std::to_string(kRows) +
          ") INSERT INTO checks (key, created_us, used_us) SELECT CAST(printf('%032d', i) AS "
          "BLOB), 1, i FROM n");
  SqliteFile file(path_, CacheSchema(), nullptr);
  ASSERT_EQ(file.Open(), FileState::kUsable) << file.reason();
  int commits = 0;
  sqlite3_commit_hook(
      file.db(),
      [](void* count) {
        ++*static_cast<int*>(count);
        return 0;
      },
      &commits);
  const int64_t limit = UsedBytes(file) / 2;
  const v1::CollectGarbageReply done = CollectGarbage(file, {.limit_bytes = limit}).value();
  EXPECT_LE(done.bytes_left(), limit);
  EXPECT_GT(done.rows(), kRows / 4);
  EXPECT_LT(done.rows(), kRows);
  EXPECT_GE(commits, done.rows() / 500);
  // The rows used longest ago are gone.
  EXPECT_EQ(Number("SELECT min(used_us) FROM checks"), done.rows() + 1);
}

TEST_F(GarbageTest, TheWriterKeepsTheFileUnderItsLimit) {
  constexpr int64_t kLimit = 2000000;
  auto cache = Open(kLimit);
  for (int i = 0; i < 400; ++i) {
    cache->PutKernel(TestKernelKey(i), TestObject(i));
    if (i % 50 == 49) ASSERT_TRUE(cache->Flush(kLong).ok());
  }
  ASSERT_TRUE(cache->Flush(kLong).ok());
  EXPECT_LE(static_cast<int64_t>(std::filesystem::file_size(path_)), kLimit);
  const int64_t rows = TierOf(*cache, "kernels").rows();
  EXPECT_GT(rows, 40);
  EXPECT_LT(rows, 200);
  EXPECT_EQ(cache->FindKernel(TestKernelKey(399)), TestObject(399));
  EXPECT_EQ(cache->FindKernel(TestKernelKey(0)), std::nullopt);
}

}  // namespace
}  // namespace athanor
