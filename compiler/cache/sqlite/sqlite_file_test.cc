#include "compiler/cache/sqlite/sqlite_file.h"

#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "compiler/cache/sqlite/small_disk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kSteps[] = {
    "CREATE TABLE items (name TEXT PRIMARY KEY NOT NULL)",
    "ALTER TABLE items ADD COLUMN weight INTEGER NOT NULL DEFAULT 7",
};

class SqliteFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    path_ = folder_ + "/items.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  SqliteSchema Schema(size_t steps = 2) {
    return {.what = "item file", .steps = absl::MakeConstSpan(kSteps).first(steps)};
  }
  SqliteFile::Report Report() {
    return [this](absl::string_view message) { reports_.emplace_back(message); };
  }

  static int64_t Number(SqliteFile& file, absl::string_view sql) {
    Statement statement(file.db(), sql);
    EXPECT_EQ(statement.Step(), SQLITE_ROW) << sql;
    return statement.IntAt(0);
  }
  static absl::Status Insert(SqliteFile& file, absl::string_view name) {
    return file.Transaction([&] {
      Statement insert(file.db(), "INSERT INTO items (name) VALUES (?)");
      const int code = insert.Text(name).Step();
      return code == SQLITE_DONE ? absl::OkStatus() : file.Failed(code, "insert");
    });
  }
  int Damaged() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (absl::StrContains(entry.path().string(), "items.db.damaged-")) ++count;
    }
    return count;
  }

  std::string folder_, path_;
  std::vector<std::string> reports_;
};

TEST_F(SqliteFileTest, StatementsBindInOrderAndReadWhatWasBound) {
  SqliteFile file(path_, Schema(), Report());
  ASSERT_EQ(file.Open(), FileState::kUsable) << file.reason();
  ASSERT_TRUE(file.Execute("CREATE TABLE t (a BLOB, b TEXT, c INTEGER, d REAL, e TEXT)").ok());
  const std::string bytes("\0\xff", 2);
  Statement insert(file.db(), "INSERT INTO t VALUES (?, ?, ?, ?, ?)");
  ASSERT_EQ(insert.Blob(bytes).Text("word").Int(-3).Real(0.5).Null().Step(), SQLITE_DONE);
  insert.Reset();
  ASSERT_EQ(insert.Blob("").Text("").Int(4).Real(1).Text("x").Step(), SQLITE_DONE);
  Statement read(file.db(), "SELECT a, b, c, d, e FROM t ORDER BY rowid");
  ASSERT_EQ(read.Step(), SQLITE_ROW);
  EXPECT_EQ(read.BytesAt(0), bytes);
  EXPECT_EQ(read.BytesAt(1), "word");
  EXPECT_EQ(read.IntAt(2), -3);
  EXPECT_EQ(read.RealAt(3), 0.5);
  EXPECT_TRUE(read.IsNull(4));
  ASSERT_EQ(read.Step(), SQLITE_ROW);
  EXPECT_FALSE(read.IsNull(0));  // an empty value is a value
  EXPECT_EQ(read.BytesAt(0), "");
  EXPECT_EQ(read.Step(), SQLITE_DONE);
  EXPECT_EQ(Statement(file.db(), "SELECT nothing").Step(), SQLITE_ERROR);
  EXPECT_EQ(Statement(nullptr, "SELECT 1").Step(), SQLITE_MISUSE);
}

TEST_F(SqliteFileTest, MigratesStepByStepAndKeepsRows) {
  {
    SqliteFile file(path_, Schema(1), Report());
    ASSERT_EQ(file.Open(), FileState::kUsable);
    ASSERT_TRUE(Insert(file, "old").ok());
  }
  SqliteFile file(path_, Schema(2), Report());
  ASSERT_EQ(file.Open(), FileState::kUsable);
  EXPECT_EQ(Number(file, "PRAGMA user_version"), 2);
  EXPECT_EQ(Number(file, "SELECT weight FROM items WHERE name = 'old'"), 7);
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(SqliteFileTest, AFailedStepLeavesTheFileAsItWas) {
  {
    SqliteFile file(path_, Schema(1), Report());
    ASSERT_EQ(file.Open(), FileState::kUsable);
    ASSERT_TRUE(Insert(file, "old").ok());
  }
  const char* const broken[] = {kSteps[0], "CREATE TABLE more (x INTEGER); DROP TABLE nowhere"};
  {
    SqliteFile file(path_, {.what = "item file", .steps = broken, .begin_anew = false}, Report());
    EXPECT_EQ(file.Open(), FileState::kUnusable);
    EXPECT_EQ(file.db(), nullptr);
    EXPECT_THAT(reports_, ElementsAre(HasSubstr("nowhere")));
    EXPECT_EQ(file.Failed(0, "read").code(), absl::StatusCode::kUnavailable);
  }
  SqliteFile file(path_, Schema(1), Report());
  ASSERT_EQ(file.Open(), FileState::kUsable);
  EXPECT_EQ(Number(file, "SELECT count(*) FROM sqlite_schema WHERE name = 'more'"), 0);
  EXPECT_EQ(Number(file, "SELECT count(*) FROM items"), 1);
}

TEST_F(SqliteFileTest, ANewerSchemaIsLeftAlone) {
  {
    SqliteFile file(path_, Schema(2), Report());
    ASSERT_EQ(file.Open(), FileState::kUsable);
  }
  SqliteFile file(path_, Schema(1), Report());
  EXPECT_EQ(file.Open(), FileState::kNewerSchema);
  EXPECT_EQ(file.db(), nullptr);
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("it has schema 2, this program knows up to 1")));
  SqliteFile again(path_, Schema(2), Report());
  EXPECT_EQ(again.Open(), FileState::kUsable);
  EXPECT_EQ(Damaged(), 0);
}

// Returns file contents by name, without the memory that connections share.
std::map<std::string, std::string> FilesOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (absl::EndsWith(name, "-shm")) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files[name] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

TEST_F(SqliteFileTest, ANewerFileStaysByteForByte) {
  SqliteSchema schema = Schema(2);
  schema.gives_back = true;
  SqliteFile newer(path_, schema, Report());
  ASSERT_EQ(newer.Open(), FileState::kUsable);
  ASSERT_TRUE(Insert(newer, "theirs").ok());
  // A file as a killed server leaves it, with some rows in the log only.
  const std::string killed = folder_ + "/killed", closed = folder_ + "/closed",
                    other = folder_ + "/other";
  for (const std::string& folder : {killed, closed, other}) {
    std::filesystem::create_directory(folder);
  }
  for (const char* suffix : {"", "-wal"}) {
    std::filesystem::copy_file(path_ + suffix, killed + "/items.db" + suffix);
  }
  ASSERT_GT(std::filesystem::file_size(killed + "/items.db-wal"), 0u);
  newer.Close();
  std::filesystem::copy_file(path_, closed + "/items.db");
  std::filesystem::copy_file(path_, other + "/items.db");
  {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open((other + "/items.db").c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, "PRAGMA journal_mode=DELETE", nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }
  for (const std::string& folder : {closed, killed, other}) {
    SCOPED_TRACE(folder);
    const auto before = FilesOf(folder);
    {
      SqliteSchema older = Schema(1);
      older.gives_back = true;
      SqliteFile file(folder + "/items.db", older, Report());
      EXPECT_EQ(file.Open(), FileState::kNewerSchema);
      EXPECT_EQ(file.Open(), FileState::kNewerSchema);
    }
    EXPECT_EQ(FilesOf(folder), before);
    // The program that owns the file finds all rows.
    SqliteFile again(folder + "/items.db", schema, Report());
    ASSERT_EQ(again.Open(), FileState::kUsable);
    EXPECT_EQ(Number(again, "SELECT count(*) FROM items WHERE name = 'theirs'"), 1);
  }
}

TEST_F(SqliteFileTest, OpeningWritesNothing) {
  SqliteSchema schema = Schema(2);
  schema.gives_back = true;
  {
    SqliteFile file(path_, schema, Report());
    ASSERT_EQ(file.Open(), FileState::kUsable);
    EXPECT_EQ(Number(file, "PRAGMA auto_vacuum"), 2);
    ASSERT_TRUE(Insert(file, "one").ok());
  }
  const auto before = FilesOf(folder_);
  {
    SqliteFile file(path_, schema, Report());
    ASSERT_EQ(file.Open(), FileState::kUsable);
    EXPECT_EQ(Number(file, "SELECT count(*) FROM items"), 1);
  }
  EXPECT_EQ(FilesOf(folder_), before);
}

TEST_F(SqliteFileTest, ASchemaBelowZeroIsDamage) {
  {
    SqliteFile file(path_, Schema(2), Report());
    ASSERT_EQ(file.Open(), FileState::kUsable);
    ASSERT_TRUE(file.Execute("PRAGMA user_version=-3").ok());
  }
  SqliteFile file(path_, Schema(2), Report());
  EXPECT_EQ(file.Open(), FileState::kUsable);
  EXPECT_EQ(Number(file, "SELECT count(*) FROM items"), 0);
  EXPECT_EQ(Damaged(), 1);
}

TEST_F(SqliteFileTest, EveryByteOfTheHeaderMayBeDamaged) {
  SqliteSchema schema = Schema(2);
  schema.application_id = 0x41544841;
  {
    SqliteFile file(path_, schema, Report());
    ASSERT_EQ(file.Open(), FileState::kUsable);
    ASSERT_TRUE(Insert(file, "one").ok());
  }
  const std::string good = FilesOf(folder_).at("items.db");
  for (size_t at = 0; at < 100; ++at) {
    for (const int value : {0x00, 0x01, 0x05, 0x7f, 0x80, 0xff}) {
      SCOPED_TRACE(absl::StrCat("byte ", at, " is ", value));
      for (const auto& left : std::filesystem::directory_iterator(folder_)) {
        std::filesystem::remove(left);
      }
      std::string damaged = good;
      damaged[at] = static_cast<char>(value);
      std::ofstream(path_, std::ios::binary) << damaged;
      SqliteFile file(path_, schema, Report());
      const FileState state = file.Open();
      if (state == FileState::kUnusable) {
        EXPECT_THAT(file.reason(), HasSubstr("another program"));
      } else if (state == FileState::kUsable) {
        // The damage may show only now: then the file is begun anew.
        EXPECT_TRUE(Insert(file, "two").ok() || Insert(file, "two").ok() ||
                    file.state() == FileState::kReadOnly);
      }
    }
  }
}

TEST_F(SqliteFileTest, SpaceOfAFileMadeBeforeGoesBackToo) {
  const auto size = [this] { return std::filesystem::file_size(path_); };
  {
    SqliteFile file(path_, Schema(), Report());
    ASSERT_EQ(file.Open(), FileState::kUsable);
    EXPECT_EQ(Number(file, "PRAGMA auto_vacuum"), 0);
    ASSERT_TRUE(Insert(file, std::string(1 << 20, 'x')).ok());
  }
  SqliteSchema schema = Schema();
  schema.gives_back = true;
  SqliteFile file(path_, schema, Report());
  ASSERT_EQ(file.Open(), FileState::kUsable);
  EXPECT_EQ(Number(file, "PRAGMA auto_vacuum"), 2);
  EXPECT_GT(size(), 1u << 20);
  ASSERT_TRUE(file.Execute("DELETE FROM items; PRAGMA incremental_vacuum;"
                           "PRAGMA wal_checkpoint(TRUNCATE)")
                  .ok());
  EXPECT_LT(size(), 1u << 16);
}

TEST_F(SqliteFileTest, ADamagedFileIsMovedAsideOnlyWhereThatIsAllowed) {
  std::ofstream(path_) << std::string(10000, 'x');
  SqliteSchema keeps = Schema();
  keeps.begin_anew = false;
  {
    SqliteFile file(path_, keeps, Report());
    EXPECT_EQ(file.Open(), FileState::kUnusable);
    EXPECT_EQ(Damaged(), 0);
    EXPECT_THAT(reports_, ElementsAre(HasSubstr("not a database")));
  }
  reports_.clear();
  SqliteFile file(path_, Schema(), Report());
  EXPECT_EQ(file.Open(), FileState::kUsable);
  EXPECT_EQ(Damaged(), 1);
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("begun anew")));
}

TEST_F(SqliteFileTest, ATransactionIsAllOrNothing) {
  SqliteFile file(path_, Schema(), Report());
  ASSERT_EQ(file.Open(), FileState::kUsable);
  const absl::Status failed = file.Transaction([&] {
    EXPECT_TRUE(file.Execute("INSERT INTO items (name) VALUES ('a')").ok());
    return absl::CancelledError("changed my mind");
  });
  EXPECT_EQ(failed.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Number(file, "SELECT count(*) FROM items"), 0);
  EXPECT_TRUE(Insert(file, "a").ok());
  EXPECT_EQ(Insert(file, "a").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Insert(file, "b").ok());
  EXPECT_EQ(Number(file, "SELECT count(*) FROM items"), 2);
}

TEST_F(SqliteFileTest, ReadOnlyIsSaidOnceUntilItCanBeWrittenAgain) {
  SqliteFile file(path_, Schema(), Report());
  ASSERT_EQ(file.Open(), FileState::kUsable);
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(file.Execute("PRAGMA query_only=1").ok());
    EXPECT_EQ(Insert(file, "x").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Insert(file, "x").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(file.state(), FileState::kReadOnly);
    ASSERT_TRUE(file.Execute("PRAGMA query_only=0").ok());
    EXPECT_TRUE(Insert(file, name).ok());
    EXPECT_EQ(file.state(), FileState::kUsable);
  }
  EXPECT_EQ(reports_.size(), 2u);
}

TEST_F(SqliteFileTest, AnotherConnectionsCommitIsSeen) {
  SqliteFile one(path_, Schema(), Report()), two(path_, Schema(), Report());
  ASSERT_EQ(one.Open(), FileState::kUsable);
  ASSERT_EQ(two.Open(), FileState::kUsable);
  const int64_t before = one.data_version();
  EXPECT_EQ(one.data_version(), before);
  ASSERT_TRUE(Insert(one, "mine").ok());
  EXPECT_EQ(one.data_version(), before);
  ASSERT_TRUE(Insert(two, "theirs").ok());
  EXPECT_NE(one.data_version(), before);
}

TEST_F(SqliteFileTest, WritesGoToTheFileOfThePathAfterItWasMoved) {
  SqliteFile one(path_, Schema(), Report()), two(path_, Schema(), Report());
  ASSERT_EQ(one.Open(), FileState::kUsable);
  for (const char* suffix : {"-wal", "-shm", ""}) {
    std::filesystem::rename(path_ + suffix, folder_ + "/away.db" + suffix);
  }
  ASSERT_EQ(two.Open(), FileState::kUsable);
  one.Refresh();
  ASSERT_TRUE(Insert(one, "a").ok());
  EXPECT_EQ(Number(two, "SELECT count(*) FROM items"), 1);
}

TEST_F(SqliteFileTest, NetworkFileSystemsAreRefusedByName) {
  for (const char* name : {"nfs", "smb", "cifs", "smb2", "afs", "ceph", "9p", "lustre", "gfs2",
                           "ocfs2", "fuse", "coda", "gpfs"}) {
    const absl::Status status =
        CheckLocal("/data/cache.db", [&](const std::string&) { return std::string(name); });
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("/data/cache.db: on ", name, "; ")));
    EXPECT_THAT(status.message(), HasSubstr("give a local path"));
  }
  for (const char* name : {"ext4", "tmpfs", "overlay", "0x12345678"}) {
    EXPECT_TRUE(CheckLocal("/x", [&](const std::string&) { return std::string(name); }).ok());
  }
  EXPECT_EQ(FileSystemOf("/proc/self/nowhere/cache.db"), "0x9fa0");
  EXPECT_EQ(FileSystemOf("/dev/shm/not/there"), FileSystemOf("/dev/shm"));
}

// Returns the fault of a file on a full disk; empty: none.
std::string FillADisk(const std::string& folder, const SqliteSchema& schema) {
  std::vector<std::string> reports;
  SqliteFile file(folder + "/items.db", schema,
                  [&](absl::string_view message) { reports.emplace_back(message); });
  if (file.Open() != FileState::kUsable) return file.reason();
  const auto insert = [&](int i) {
    return file.Transaction([&] {
      Statement insert(file.db(), "INSERT INTO items (name) VALUES (?)");
      const std::string name = absl::StrCat(i, std::string(50000, 'x'));
      const int code = insert.Text(name).Step();
      return code == SQLITE_DONE ? absl::OkStatus() : file.Failed(code, "insert");
    });
  };
  absl::Status status;
  int kept = 0;
  while ((status = insert(kept)).ok()) ++kept;
  if (!absl::IsResourceExhausted(status)) return absl::StrCat("not full but ", status.ToString());
  if (insert(1000).ok() || file.state() != FileState::kFull) return "full is not its state";
  if (reports.size() != 1) return absl::StrCat(reports.size(), " reports");
  Statement count(file.db(), "SELECT count(*) FROM items");
  if (count.Step() != SQLITE_ROW || count.IntAt(0) != kept) return "rows were lost";
  if (kept < 3) return "the disk was full too early";
  return "";
}

TEST_F(SqliteFileTest, AFullDiskIsAStateAndLosesNothing) {
  EXPECT_EQ(OnASmallDisk(folder_, [this] { return FillADisk(folder_, Schema()); }), "");
}

}  // namespace
}  // namespace athanor
