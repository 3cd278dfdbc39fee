#include "compiler/cache/schema.h"

#include <sqlite3.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "compiler/cache/sqlite/sqlite_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::IsEmpty;

int64_t Number(SqliteFile& file, absl::string_view sql) {
  Statement statement(file.db(), sql);
  EXPECT_EQ(statement.Step(), SQLITE_ROW) << sql;
  return statement.IntAt(0);
}

TEST(SchemaTest, ACacheOfSchema1BecomesOneOfToday) {
  const std::string path = FreshFolder() + "/cache.db";
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  std::ifstream dump("compiler/cache/testdata/schema1.sql");
  ASSERT_TRUE(dump.good());
  std::stringstream sql;
  sql << dump.rdbuf();
  EXPECT_EQ(sqlite3_exec(db, sql.str().c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(db);
  sqlite3_close(db);
  std::vector<std::string> reports;
  SqliteFile file(path, CacheSchema(),
                  [&](absl::string_view message) { reports.emplace_back(message); });
  ASSERT_EQ(file.Open(), FileState::kUsable) << file.reason();
  EXPECT_EQ(Number(file, "PRAGMA user_version"), CacheSchema().version());
  EXPECT_EQ(Number(file, "PRAGMA auto_vacuum"), 2);
  EXPECT_EQ(Number(file, "SELECT count(*) FROM kernels WHERE used_us = created_us"), 3);
  EXPECT_EQ(Number(file, "SELECT count(*) FROM checks WHERE used_us = created_us"), 1);
  for (int tier = 0; tier < kTierCount; ++tier) {
    const absl::string_view name = TierName(static_cast<Tier>(tier));
    EXPECT_GE(Number(file, absl::StrCat("SELECT count(*) FROM ", name)), 0) << name;
  }
  EXPECT_THAT(reports, IsEmpty());
}

}  // namespace
}  // namespace athanor
