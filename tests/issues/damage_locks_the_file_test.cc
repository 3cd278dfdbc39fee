// A statement inside a transaction found damage, and kept the old connection with its lock: for
// many seconds the same process could not write to the file.
#include <sqlite3.h>

#include <string>

#include "compiler/cache/sqlite/sqlite_file.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

constexpr const char* kSteps[] = {"CREATE TABLE items (name TEXT PRIMARY KEY NOT NULL)"};

TEST(DamageLocksTheFileTest, TheNextWriteFindsTheFileFree) {
  const std::string path = ::testing::TempDir() + "/damage_locks_the_file.db";
  // With this timeout, a lock that is never released fails the test at once.
  SqliteFile file(path, {.what = "item file", .steps = kSteps, .busy_milliseconds = 0}, nullptr);
  ASSERT_EQ(file.Open(), FileState::kUsable) << file.reason();
  const absl::Status status = file.Transaction([&]() -> absl::Status {
    Statement insert(file.db(), "INSERT INTO items VALUES ('a')");
    EXPECT_EQ(insert.Step(), SQLITE_DONE);
    Statement read(file.db(), "SELECT name FROM items");
    EXPECT_EQ(read.Step(), SQLITE_ROW);
    return file.Failed(SQLITE_CORRUPT, "read");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(file.state(), FileState::kUsable) << file.reason();
  EXPECT_TRUE(file.Execute("INSERT INTO items VALUES ('b')").ok());
  Statement count(file.db(), "SELECT count(*) FROM items");
  ASSERT_EQ(count.Step(), SQLITE_ROW);
  EXPECT_EQ(count.IntAt(0), 1);
}

}  // namespace
}  // namespace athanor
