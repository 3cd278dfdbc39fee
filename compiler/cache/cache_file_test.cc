// Tests of files of other schemas, and of files that are damaged, deleted, full or missing.
#include <sqlite3.h>
#include <sys/mount.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "compiler/cache/cache.h"
#include "compiler/cache/cache_fixture.h"
#include "compiler/cache/schema.h"
#include "compiler/cache/sqlite/small_disk.h"
#include "deploy/bazel/libs/sha256.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CacheFileTest : public CacheTest {};

TEST_F(CacheFileTest, AFileOfSchema1IsTakenOver) {
  std::ifstream dump("compiler/cache/testdata/schema1.sql");
  ASSERT_TRUE(dump.good());
  std::stringstream sql;
  sql << dump.rdbuf();
  Execute(sql.str());
  auto cache = Open();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cache->kernels().Find(TestKernelKey(i)), absl::StrCat("object ", i, " of schema 1"));
  }
  EXPECT_TRUE(cache->checks().Has(Sha256Of("passed")));
  for (const TierCase& tier : TierCases()) {
    tier.put(*cache);
    EXPECT_TRUE(tier.found(*cache)) << tier.tier;
  }
  const v1::CacheVerification found = cache->maintenance().Verify(true).value();
  EXPECT_EQ(found.bad_size(), 0);
  EXPECT_EQ(found.database(), "ok");
  EXPECT_EQ(found.rows(), 3 + 1 + 6);  // one of the kernels was put again
  EXPECT_EQ(cache->Stat().schema(), CacheSchema().version());
  EXPECT_THAT(reports(), IsEmpty());
}

TEST_F(CacheFileTest, ANewerSchemaIsLeftAlone) {
  {
    auto cache = Open();
    for (const TierCase& tier : TierCases()) tier.put(*cache);
  }
  Execute("PRAGMA user_version=1000");
  {
    auto cache = Open();
    EXPECT_EQ(cache->Stat().state(), v1::CacheStat::NEWER_SCHEMA);
    EXPECT_THAT(cache->Stat().reason(), HasSubstr("schema 1000"));
    EXPECT_THAT(reports(), ElementsAre(HasSubstr("newer version")));
    for (const TierCase& tier : TierCases()) {
      tier.put(*cache);
      EXPECT_FALSE(tier.found(*cache)) << tier.tier;
    }
    MissReason why = MissReason::kAbsent;
    EXPECT_FALSE(cache->kernels().Find(TestKernelKey(1), &why).has_value());
    EXPECT_EQ(why, MissReason::kNoCache);
    EXPECT_EQ(cache->maintenance().Verify(true).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(cache->maintenance().CollectGarbage({}).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(cache->Flush(kLong).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(cache->data_version(), -1);
  }
  Execute(absl::StrCat("PRAGMA user_version=", CacheSchema().version()));
  auto cache = Open();
  for (const TierCase& tier : TierCases()) EXPECT_TRUE(tier.found(*cache)) << tier.tier;
}

TEST_F(CacheFileTest, WithoutAFileItOnlyMisses) {
  for (const std::string& path : {std::string("/proc/nowhere/cache.db"), folder_, std::string()}) {
    SCOPED_TRACE(path);
    path_ = path;
    const size_t before = reports().size();
    auto cache = Open();
    EXPECT_EQ(reports().size(), before + (path.empty() ? 0 : 1));
    for (const TierCase& tier : TierCases()) {
      tier.put(*cache);
      EXPECT_FALSE(tier.found(*cache)) << tier.tier;
    }
    cache->checks().Put("x");
    EXPECT_FALSE(cache->checks().Has("x"));
    EXPECT_EQ(cache->Stat().state(), v1::CacheStat::UNUSABLE);
    EXPECT_GT(cache->Stat().writes_dropped(), 0);
    EXPECT_EQ(reports().size(), before + (path.empty() ? 0 : 1));
  }
}

TEST_F(CacheFileTest, AFullQueueDropsAndCounts) {
  auto cache = Open();
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const std::string object(std::size_t{30} << 20, 'x');
  // Some are being written, some are queued; the others do not fit.
  for (int i = 0; i < 5; ++i) cache->kernels().Put(TestKernelKey(i), object);
  ASSERT_EQ(sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  EXPECT_EQ(cache->Flush(kLong).code(), absl::StatusCode::kResourceExhausted);
  const int64_t dropped = cache->Stat().writes_dropped();
  EXPECT_GE(dropped, 1);
  EXPECT_EQ(TierOf(*cache, "kernels").rows(), 5 - dropped);
  EXPECT_EQ(cache->kernels().Find(TestKernelKey(0)), object);
}

TEST_F(CacheFileTest, ARowThatCannotBeWrittenCostsNoOther) {
  {
    Open()->kernels().Put(TestKernelKey(1), TestObject(1));
  }
  Execute("CREATE TRIGGER never BEFORE INSERT ON kernels BEGIN SELECT RAISE(ABORT, 'no'); END");
  auto cache = Open();
  cache->kernels().Put(TestKernelKey(2), TestObject(2));
  cache->checks().Put(std::string(32, 'c'));
  cache->timings().Put(TestTimingKey(1), {{1}, {1}, {1}, 1, true});
  EXPECT_EQ(cache->Flush(kLong).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(cache->Flush(kLong).ok());  // nothing was lost since then
  EXPECT_EQ(cache->Stat().writes_dropped(), 1);
  EXPECT_EQ(cache->kernels().Find(TestKernelKey(1)), TestObject(1));
  EXPECT_EQ(cache->kernels().Find(TestKernelKey(2)), std::nullopt);
  EXPECT_EQ(Number("SELECT count(*) FROM checks"), 1);
  EXPECT_EQ(Number("SELECT count(*) FROM timings"), 1);
}

// Damage of every kind, found when the file is opened or later: never a crash or a wrong object.
TEST_F(CacheFileTest, DamageAnywhere) {
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    {
      auto cache = Open();
      for (int i = 0; i < 20; ++i) cache->kernels().Put(TestKernelKey(i), TestObject(i));
      for (const TierCase& tier : TierCases()) tier.put(*cache);
    }
    const auto size = std::filesystem::file_size(path_);
    {
      std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
      const std::string noise = TestObject(1000 + round).substr(0, 600);
      file.seekp(round < 20 ? round * 5 : (size / 40) * (round - 20));
      file.write(noise.data(), static_cast<std::streamsize>(noise.size()));
    }
    if (round % 7 == 3) std::filesystem::resize_file(path_, size * (round % 5) / 5 + 13);
    auto cache = Open();
    const auto look = [&] {
      for (int i = 0; i < 20; ++i) {
        const std::optional<std::string> object = cache->kernels().Find(TestKernelKey(i));
        if (object) EXPECT_EQ(*object, TestObject(i));
      }
      // The plan is found as it was put, or not at all.
      const std::optional<PlanRow> plan = cache->plans().Find(TestPlanKey(1));
      if (plan) EXPECT_EQ(plan->stored.plan().plan_id(), "p-1");
    };
    look();
    for (int i = 0; i < 20; ++i) cache->kernels().Put(TestKernelKey(i), TestObject(i));
    cache->Flush(kLong).IgnoreError();
    look();
    const auto found = cache->maintenance().Verify(true);
    EXPECT_TRUE(found.ok() || cache->Stat().state() != v1::CacheStat::USABLE) << found.status();
    const auto mended = cache->maintenance().Verify(false);
    if (mended.ok()) {
      EXPECT_EQ(mended->database(), "ok");
      EXPECT_EQ(mended->bad_size(), 0) << mended->ShortDebugString();
    } else {  // the file is no cache any more
      EXPECT_NE(cache->Stat().state(), v1::CacheStat::USABLE) << mended.status();
    }
  }
}

TEST_F(CacheFileTest, AFileThatIsDeletedIsBegunAnew) {
  auto cache = Open();
  cache->kernels().Put(TestKernelKey(1), TestObject(1));
  ASSERT_TRUE(cache->Flush(kLong).ok());
  for (const char* suffix : {"-wal", "-shm", ""}) std::filesystem::remove(path_ + suffix);
  EXPECT_EQ(cache->kernels().Find(TestKernelKey(1)), std::nullopt);
  cache->kernels().Put(TestKernelKey(2), TestObject(2));
  ASSERT_TRUE(cache->Flush(kLong).ok());
  EXPECT_EQ(Open()->kernels().Find(TestKernelKey(2)), TestObject(2));
}

TEST_F(CacheFileTest, AFullDiskLosesNoRowThatWasWritten) {
  EXPECT_EQ(OnASmallDisk(folder_,
                         [this]() -> std::string {
                           auto cache = Open();
                           int kept = 0;
                           absl::Status status;
                           for (; kept < 300; ++kept) {
                             cache->kernels().Put(TestKernelKey(kept), TestObject(kept));
                             status = cache->Flush(kLong);
                             if (!status.ok()) break;
                           }
                           if (!absl::IsResourceExhausted(status))
                             return "not full: " + status.ToString();
                           if (kept < 10) return absl::StrCat("full after ", kept, " kernels");
                           if (cache->Stat().state() != v1::CacheStat::FULL)
                             return "full is not its state";
                           if (reports().size() != 1)
                             return absl::StrCat(reports().size(), " reports");
                           for (int i = 0; i < kept; ++i) {
                             if (cache->kernels().Find(TestKernelKey(i)) != TestObject(i)) {
                               return absl::StrCat("kernel ", i, " of ", kept, " is lost");
                             }
                           }
                           const auto found = cache->maintenance().Verify(false);
                           if (!found.ok()) return found.status().ToString();
                           if (found->bad_size() != 0 || found->database() != "ok")
                             return found->DebugString();
                           return "";
                         }),
            "");
}

// Looks until the kernel is found; a file that cannot be read is tried again every two seconds.
bool FindsAgain(Cache& cache, int i) {
  for (int tries = 0; tries < 3000; ++tries) {
    if (cache.kernels().Find(TestKernelKey(i)) == TestObject(i)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_F(CacheFileTest, ADiskThatIsFullAtFirstIsTriedAgain) {
  EXPECT_EQ(OnASmallDisk(folder_,
                         [this]() -> std::string {
                           {
                             auto cache = Open();
                             cache->kernels().Put(TestKernelKey(1), TestObject(1));
                           }
                           const std::string filler = folder_ + "/filler";
                           {
                             std::ofstream file(filler, std::ios::binary);
                             while (file.put('x').flush()) {
                             }
                           }
                           auto cache = Open();
                           if (cache->Stat().state() == v1::CacheStat::USABLE) return "it fits";
                           std::filesystem::remove(filler);
                           if (!FindsAgain(*cache, 1)) return "not found again";
                           cache->kernels().Put(TestKernelKey(2), TestObject(2));
                           if (const absl::Status s = cache->Flush(kLong); !s.ok()) {
                             return s.ToString();
                           }
                           if (cache->Stat().state() != v1::CacheStat::USABLE) return "not usable";
                           return reports().size() == 1 ? "" : "not reported once";
                         }),
            "");
}

TEST_F(CacheFileTest, OnAReadOnlyDiskItIsRead) {
  EXPECT_EQ(
      OnASmallDisk(folder_,
                   [this]() -> std::string {
                     {
                       auto cache = Open();
                       cache->kernels().Put(TestKernelKey(1), TestObject(1));
                     }
                     if (mount("none", folder_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) !=
                         0) {
                       return "cannot be made read-only";
                     }
                     auto cache = Open();
                     if (cache->Stat().state() != v1::CacheStat::READ_ONLY) {
                       return cache->Stat().DebugString();
                     }
                     if (cache->kernels().Find(TestKernelKey(1)) != TestObject(1))
                       return "not read";
                     cache->kernels().Put(TestKernelKey(2), TestObject(2));
                     if (cache->Flush(kLong).ok()) return "written";
                     if (mount("none", folder_.c_str(), nullptr, MS_REMOUNT, nullptr) != 0) {
                       return "cannot be made writable";
                     }
                     for (int tries = 0; cache->Stat().state() != v1::CacheStat::USABLE; ++tries) {
                       if (tries == 3000) return cache->Stat().DebugString();
                       std::this_thread::sleep_for(std::chrono::milliseconds(10));
                     }
                     cache->kernels().Put(TestKernelKey(3), TestObject(3));
                     if (const absl::Status s = cache->Flush(kLong); !s.ok()) return s.ToString();
                     for (int i : {1, 3}) {
                       if (!FindsAgain(*cache, i))
                         return absl::StrCat("kernel ", i, " is not there");
                     }
                     return "";
                   }),
      "");
}

TEST_F(CacheFileTest, AFileOfAnotherProgramIsLeftAlone) {
  Execute("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)");
  for (const char* version : {"0", "2"}) {
    SCOPED_TRACE(version);
    Execute(absl::StrCat("PRAGMA user_version=", version));
    const size_t before = reports().size();
    auto cache = Open();
    EXPECT_EQ(cache->Stat().state(), v1::CacheStat::UNUSABLE);
    EXPECT_THAT(cache->Stat().reason(), HasSubstr("another program"));
    EXPECT_EQ(reports().size(), before + 1);
    EXPECT_EQ(Number("SELECT count(*) FROM sqlite_schema"), 1);
    EXPECT_EQ(Number("SELECT a FROM mine"), 1);
  }
  Execute("DROP TABLE mine; PRAGMA user_version=0; PRAGMA application_id=7");
  EXPECT_EQ(Open()->Stat().state(), v1::CacheStat::UNUSABLE);
  Execute("PRAGMA application_id=0");
  EXPECT_EQ(Open()->Stat().state(), v1::CacheStat::USABLE);
  EXPECT_GT(Number("PRAGMA application_id"), 0);
  // A file made before files had ids.
  Execute("PRAGMA application_id=0");
  EXPECT_EQ(Open()->Stat().state(), v1::CacheStat::USABLE);
}

}  // namespace
}  // namespace athanor
