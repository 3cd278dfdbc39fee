// Fixture for the tests of Cache: a cache in a folder of its own, and a row of each tier.
#ifndef ATHANOR_COMPILER_CACHE_CACHE_FIXTURE_H_
#define ATHANOR_COMPILER_CACHE_CACHE_FIXTURE_H_

#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/cache/cache.h"
#include "compiler/cache/cache_testing.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "deploy/bazel/libs/mutex.h"
#include "gtest/gtest.h"

namespace athanor {

inline constexpr std::chrono::seconds kLong{60};  // for a Flush that nothing delays

class CacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    path_ = folder_ + "/cache.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Cache> Open(int64_t limit_bytes = 0) {
    return Cache::Open({.path = path_, .limit_bytes = limit_bytes}, [this](absl::string_view m) {
      MutexLock lock(mu_);
      reports_.emplace_back(m);
    });
  }
  std::vector<std::string> reports() {
    MutexLock lock(mu_);
    return reports_;
  }
  // Runs SQL on the file through a connection of its own.
  void Execute(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sql << ": " << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
  int64_t Number(const std::string& sql) {
    sqlite3* db = nullptr;
    EXPECT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    int64_t number = -1;
    {
      Statement statement(db, sql);
      EXPECT_EQ(statement.Step(), SQLITE_ROW) << sql;
      number = statement.IntAt(0);
    }
    sqlite3_close(db);
    return number;
  }
  static v1::CacheStat::TierStat TierOf(Cache& cache, absl::string_view name) {
    const v1::CacheStat stat = cache.Stat();
    for (const auto& tier : stat.tiers()) {
      if (tier.tier() == name) return tier;
    }
    ADD_FAILURE() << name;
    return {};
  }

  std::string folder_, path_;
  Mutex mu_;
  std::vector<std::string> reports_ ABSL_GUARDED_BY(mu_);
};

inline v1::SearchOptions TestOptions(const std::string& budget) {
  v1::SearchOptions options;
  options.set_budget(budget);
  return options;
}

inline internal::TargetReply TestReply() {
  internal::TargetReply reply;
  *reply.mutable_target() = TestTarget();
  reply.set_compiler_version("19.1.7");
  return reply;
}

// A row of each tier: how to put it, whether it is found as it was put, and damages to it.
struct TierCase {
  std::string tier;
  std::function<void(Cache&)> put;
  std::function<bool(Cache&)> found;
  std::vector<std::string> damages;  // SET clauses, each of which makes the row bad
};

inline const std::vector<TierCase>& TierCases() {
  static const std::vector<TierCase>& cases = *new std::vector<TierCase>{
      {"plans",
       [](Cache& c) { c.plans().Put(TestPlanKey(1), TestPlan("p-1")); },
       [](Cache& c) {
         const std::optional<PlanRow> row = c.plans().Find(TestPlanKey(1));
         return row &&
                row->stored.SerializeAsString() == TestPlan("p-1").stored.SerializeAsString() &&
                row->share_of_baseline == 0.5 && row->low == 0.25 && row->high == 0.75 &&
                row->compared_with == "f64 plan" && row->conditions_equal;
       },
       {"body = CAST(x'00' || substr(body, 2) AS BLOB)", "share_of_baseline = 0.1",
        "cpu = 'znver9'", "kernel_keys = x''", "checksum = x'00'", "plan_id = 'p-2'"}},
      {"recipes",
       [](Cache& c) { c.recipes().Put(TestRecipeKey(1), TestRecipe("tile 4")); },
       [](Cache& c) {
         const auto found = c.recipes().Find(TestRecipeKey(1), TestTarget(), 4);
         return found.size() == 1 && found[0].genome() == "tile 4" &&
                found[0].share_of_baseline() == 0.5 && found[0].format() == 1 &&
                found[0].dim_box() == "d0=1..64";
       },
       {"genome = 'tile 5'", "share_of_baseline = 0.1", "checksum = x'00'"}},
      {"timings",
       [](Cache& c) {
         c.timings().Put(TestTimingKey(1), {{1e-3, 2e-3}, {0.5e-3, 1e-3}, {2e-3, 3e-3}, 7, true});
       },
       [](Cache& c) {
         const std::optional<TimingRow> row = c.timings().Find(TestTimingKey(1));
         return row && row->seconds == std::vector<double>{1e-3, 2e-3} && row->rounds == 7 &&
                row->low == std::vector<double>{0.5e-3, 1e-3} &&
                row->high == std::vector<double>{2e-3, 3e-3} && row->checked;
       },
       {"seconds = CAST(x'0000000000000000' || substr(seconds, 9) AS BLOB)", "checked = 0",
        "checksum = x'00'"}},
      {"kernels",
       [](Cache& c) { c.kernels().Put(TestKernelKey(1), TestObject(1)); },
       [](Cache& c) { return c.kernels().Find(TestKernelKey(1)) == TestObject(1); },
       {"object = CAST(x'00' || substr(object, 2) AS BLOB)",
        "object = substr(object, 1, length(object) - 1)", "object = CAST(zeroblob(100) AS BLOB)",
        "cpu = 'znver9'", "checksum = x'00'"}},
      {"failures",
       [](Cache& c) {
         c.failures().Put("k", FailureKind::kCompile, {absl::InternalError("crashed"), "kernel 1"});
       },
       [](Cache& c) {
         const auto row = c.failures().Find("k", FailureKind::kCompile);
         return row && row->status == absl::InternalError("crashed") && row->about == "kernel 1";
       },
       {"message = 'fine'", "code = 3", "expires_us = expires_us + 1", "checksum = x'00'"}},
      {"searches",
       [](Cache& c) {
         c.searches().Put(TestPlanKey(1), TestOptions("30s"),
                          {v1::CompileJob::STOP_STAGNATION, 1.5, 9});
       },
       [](Cache& c) {
         const auto state = c.searches().Find(TestPlanKey(1), TestOptions("30s"));
         return state && state->stop == v1::CompileJob::STOP_STAGNATION && state->seconds == 1.5 &&
                state->candidates == 9;
       },
       {"stop = 9", "candidates = 10", "checksum = x'00'"}},
      {"targets",
       [](Cache& c) { c.targets().Put("zen4", "build 1", TestReply()); },
       [](Cache& c) {
         const auto reply = c.targets().Find("zen4", "build 1");
         return reply && reply->SerializeAsString() == TestReply().SerializeAsString();
       },
       {"reply = substr(reply, 2)", "checksum = x'00'"}},
  };
  return cases;
}

}  // namespace athanor

#endif  // ATHANOR_COMPILER_CACHE_CACHE_FIXTURE_H_
