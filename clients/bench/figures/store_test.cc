#include "clients/bench/figures/store.h"

#include <sqlite3.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string Path(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name + std::to_string(getpid()) + ".db";
  unlink(path.c_str());
  return path;
}

void Execute(const std::string& path, const char* sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
}

json Summary(const char* label) {
  return {{"model_id", "m"},
          {"label", label},
          {"date", "2026-01-31T12:00:00Z"},
          {"environment", {{"host", "h"}}},
          {"metadata", {{"commit", "1a2b"}}},
          {"options", {{"seed", 3}}},
          {"p99_e2el_ms", 4.5}};
}

TEST(StoreTest, RunsAndCallsComeBackAfterTheFileIsOpenedAgain) {
  const std::string path = Path("again");
  LoadResult result;
  result.plan_ids = {"p-1"};
  result.calls = {{.due_ns = 5, .sent_ns = 6, .done_ns = 9, .queue_us = 1, .exec_us = 2, .plan = 0},
                  {.due_ns = 7, .sent_ns = 7, .done_ns = 8, .code = 14, .phase = 1}};
  {
    auto store = Store::Open(path);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ(*(*store)->Add(Summary("one"), &result), 1);
    EXPECT_EQ(*(*store)->Add(Summary("two"), nullptr), 2);
  }
  auto store = Store::Open(path);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto runs = (*store)->Runs();
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 2u);
  json expected = Summary("two");
  expected["id"] = 2;
  EXPECT_EQ((*runs)[1], expected);
  EXPECT_EQ((*(*store)->Run(1))["label"], "one");
  const auto calls = (*store)->Calls(1);
  ASSERT_TRUE(calls.ok()) << calls.status();
  ASSERT_EQ(calls->size(), 2u);
  EXPECT_EQ((*calls)[0].exec_us, 2);
  EXPECT_EQ((*calls)[0].batch_us, -1);
  EXPECT_EQ((*calls)[1].code, 14);
  EXPECT_EQ((*calls)[1].phase, 1);
  EXPECT_TRUE((*store)->Calls(2)->empty());
}

TEST(StoreTest, AnUnknownRunIsRefusedWithThoseThatThereAre) {
  auto store = Store::Open(Path("unknown"));
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_THAT(std::string((*store)->Run(1).status().message()), HasSubstr("the file has no runs"));
  ASSERT_TRUE((*store)->Add(Summary("one"), nullptr).ok());
  const absl::Status status = (*store)->Run(7).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no run 7; the file has runs 1"));
}

TEST(StoreTest, OtherFilesAreRefusedAndLeftAlone) {
  const std::string text = Path("text"), foreign = Path("foreign"), newer = Path("newer");
  std::ofstream(text) << "this is no database, but it is long enough to look like one";
  Execute(foreign, "CREATE TABLE t (x); INSERT INTO t VALUES (1)");
  ASSERT_TRUE(Store::Open(newer).ok());
  Execute(newer, "PRAGMA user_version = 99");
  EXPECT_THAT(std::string(Store::Open(text).status().message()), HasSubstr(text));
  EXPECT_THAT(std::string(Store::Open(foreign).status().message()), HasSubstr("another program"));
  const absl::Status status = Store::Open(newer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("newer athanor-bench (schema 99"));
  Execute(foreign, "INSERT INTO t VALUES (2)");
  EXPECT_THAT(std::string(Store::Open("/no/such/folder/x.db").status().message()),
              HasSubstr("/no/such/folder/x.db"));
}

TEST(StoreTest, ASummaryThatIsNoJsonIsNamed) {
  const std::string path = Path("damaged");
  {
    auto store = Store::Open(path);
    ASSERT_TRUE(store.ok() && (*store)->Add(Summary("one"), nullptr).ok());
  }
  Execute(path, "UPDATE runs SET summary = '{'");
  auto store = Store::Open(path);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Runs().status().code(), absl::StatusCode::kDataLoss);
}

// Each thread opens the new file itself: one makes the tables, and all add their runs.
TEST(StoreTest, SeveralWriteOneFile) {
  const std::string path = Path("several");
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      auto store = Store::Open(path);
      ASSERT_TRUE(store.ok()) << store.status();
      for (int run = 0; run < 5; ++run) EXPECT_TRUE((*store)->Add(Summary("x"), nullptr).ok());
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ((*Store::Open(path))->Runs()->size(), 20u);
}

TEST(StoreTest, LabelsOfAnotherEncodingAreKept) {
  auto store = Store::Open(Path("encoding"));
  ASSERT_TRUE(store.ok()) << store.status();
  json summary = Summary("caf\xe9");
  ASSERT_TRUE((*store)->Add(summary, nullptr).ok());
  EXPECT_EQ((*(*store)->Run(1))["label"], "caf\xef\xbf\xbd");
}

// Both runs are unchanged, and neither is stored without the other.
TEST(StoreTest, TwoRunsAndTheirComparisonAreKeptTogether) {
  const std::string path = Path("compared");
  const json one = Summary("one"), two = Summary("two");
  {
    auto store = Store::Open(path);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE((*store)->Add(Summary("alone"), nullptr).ok());
    const auto ids = (*store)->AddAll({{&one, nullptr}, {&two, nullptr}}, {{"ratios", {1, 2}}});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, (std::vector<int64_t>{2, 3}));
  }
  {
    auto store = Store::Open(path, Access::kRead);
    ASSERT_TRUE(store.ok()) << store.status();
    const auto comparisons = (*store)->Comparisons();
    ASSERT_TRUE(comparisons.ok()) << comparisons.status();
    ASSERT_EQ(comparisons->size(), 1u);
    EXPECT_EQ((*comparisons)[0], json({{"ratios", {1, 2}}, {"first", 2}, {"second", 3}}));
  }
  Execute(path,
          "CREATE TRIGGER full BEFORE INSERT ON comparisons BEGIN SELECT RAISE(FAIL, 'full'); END");
  auto store = Store::Open(path);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto ids = (*store)->AddAll({{&one, nullptr}, {&two, nullptr}}, json::object());
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("full"));
  EXPECT_EQ((*store)->Runs()->size(), 3u);
}

// Reading a file of the first schema leaves it unchanged; writing adds the missing tables.
TEST(StoreTest, AnOlderFileIsReadAsItIsAndTakenOverByAWriter) {
  const std::string path = Path("older");
  ASSERT_TRUE((*Store::Open(path))->Add(Summary("old"), nullptr).ok());
  Execute(path, "DROP TABLE comparisons; PRAGMA user_version = 1");
  {
    auto store = Store::Open(path, Access::kRead);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*(*store)->Run(1))["label"], "old");
    EXPECT_TRUE((*store)->Comparisons()->empty());
    EXPECT_FALSE((*store)->Add(Summary("new"), nullptr).ok());
    EXPECT_FALSE((*store)->CheckWritable().ok());
  }
  Execute(path, "CREATE TABLE comparisons (x); DROP TABLE comparisons");  // this program did not
                                                                          // make the table above
  auto store = Store::Open(path);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->CheckWritable().ok());
  const json one = Summary("one"), two = Summary("two");
  ASSERT_TRUE((*store)->AddAll({{&one, nullptr}, {&two, nullptr}}, json::object()).ok());
  EXPECT_EQ((*store)->Comparisons()->size(), 1u);
  EXPECT_EQ((*store)->Runs()->size(), 3u);
}

TEST(StoreTest, OneRunIsReadWithoutTheOthers) {
  const std::string path = Path("one");
  for (const char* label : {"one", "two"}) {
    ASSERT_TRUE((*Store::Open(path))->Add(Summary(label), nullptr).ok());
  }
  Execute(path, "UPDATE runs SET summary = '{' WHERE id = 1");
  auto store = Store::Open(path, Access::kRead);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*(*store)->Run(2))["label"], "two");
  EXPECT_EQ((*store)->Run(1).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string((*store)->Run(3).status().message()),
              HasSubstr("the file has runs 1, 2"));
}

TEST(StoreTest, StoresAreToldByTheirFirstBytes) {
  const std::string path = Path("bytes");
  EXPECT_FALSE(IsStore(path));
  EXPECT_FALSE(IsStore(testing::TempDir()));
  std::ofstream(path) << "SQLite";
  EXPECT_FALSE(IsStore(path));
  std::ofstream(path) << "{\"model_id\": 1, \"label\": \"long\"}";
  EXPECT_FALSE(IsStore(path));
  // The file is larger than memory, and only its first bytes are read.
  std::ofstream(path) << std::string("SQLite format 3\0", 16);
  ASSERT_EQ(truncate(path.c_str(), int64_t{1} << 40), 0);
  EXPECT_TRUE(IsStore(path));
  unlink(path.c_str());
}

}  // namespace
}  // namespace athanor::bench
