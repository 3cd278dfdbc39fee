#include "compiler/cache/kernel_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Target TestTarget() {
  v1::Target target;
  target.set_triple("x86_64-pc-linux-gnu");
  target.set_cpu("znver4");
  target.add_features("+avx512f");
  target.add_features("+fma");
  return target;
}

KernelKey Key(int i) {
  return MakeKernelKey(absl::StrCat("void k", i, "(void) {}"), TestTarget(), "-O3", "clang 19.1.7");
}

// Bytes that follow from i, of a size that spreads over several pages.
std::string Object(int i) {
  std::string object(5000 + 777 * (i % 40), '\0');
  uint32_t state = static_cast<uint32_t>(i) * 2654435761u + 1;
  for (char& c : object) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return object;
}

class KernelStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = absl::StrCat(::testing::TempDir(), "/", info->name(), getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/cache.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<KernelStore> Open() {
    return KernelStore::Open(path_, [this](absl::string_view m) { reports_.emplace_back(m); });
  }

  std::string folder_, path_;
  std::vector<std::string> reports_;
};

TEST_F(KernelStoreTest, KeepsKernelsAcrossOpens) {
  {
    auto store = Open();
    EXPECT_EQ(store->Get(Key(1)), std::nullopt);
    ASSERT_TRUE(store->Put(Key(1), Object(1)).ok());
    EXPECT_EQ(store->Get(Key(1)), Object(1));
  }
  auto store = Open();
  EXPECT_EQ(store->Get(Key(1)), Object(1));
  EXPECT_EQ(store->Get(Key(2)), std::nullopt);
  const KernelStore::Stats stats = store->GetStats();
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.kernels, 1);
  EXPECT_EQ(stats.bytes, static_cast<int64_t>(Object(1).size()));
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(KernelStoreTest, EveryComponentIsPartOfTheKey) {
  const KernelKey base = Key(0);
  std::vector<KernelKey> keys(8, base);
  keys[1].source_hash = std::string(64, '0');
  keys[2].flags = "-O2";
  keys[3].triple = "aarch64-linux-gnu";
  keys[4].cpu = "znver5";
  keys[5].features = "+avx512f";
  keys[6].compiler_version = "clang 19.1.8";
  keys[7].codegen_version = 99;
  std::set<std::string> hashes;
  for (const KernelKey& key : keys) hashes.insert(key.Hash());
  EXPECT_EQ(hashes.size(), keys.size());
  // Where one component ends and the next begins matters.
  KernelKey moved = base;
  moved.flags = base.flags + base.triple[0];
  moved.triple = base.triple.substr(1);
  EXPECT_NE(moved.Hash(), base.Hash());
  EXPECT_EQ(Key(0).Hash(), base.Hash());
  EXPECT_EQ(base.Hash().size(), 32u);
}

TEST_F(KernelStoreTest, PassedChecksAreRemembered) {
  internal::CheckRequest request;
  request.set_graph_text("graph");
  request.add_objects("object");
  const std::string key = CheckKey(request);
  request.set_objects(0, "another");
  EXPECT_NE(CheckKey(request), key);
  EXPECT_FALSE(Open()->HasPassed(key));
  ASSERT_TRUE(Open()->PutPassed(key).ok());
  ASSERT_TRUE(Open()->PutPassed(key).ok());
  EXPECT_TRUE(Open()->HasPassed(key));
  EXPECT_FALSE(Open()->HasPassed(CheckKey(request)));
}

TEST_F(KernelStoreTest, BadRowsAreMissesAndGo) {
  auto store = Open();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(store->Put(Key(i), Object(i)).ok());
  // A changed byte, a lost end, and an object under another's key.
  ASSERT_TRUE(
      store
          ->ExecuteForTest(
              "UPDATE kernels SET object = CAST(zeroblob(100) AS BLOB) WHERE rowid = 1;"
              "UPDATE kernels SET object = substr(object, 1, length(object) - 1) WHERE rowid = 2;"
              "UPDATE kernels SET object = (SELECT object FROM kernels WHERE rowid = 4),"
              " checksum = (SELECT checksum FROM kernels WHERE rowid = 4) WHERE rowid = 3")
          .ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(store->Get(Key(i)), std::nullopt) << i;
  EXPECT_EQ(store->Get(Key(3)), Object(3));
  EXPECT_EQ(store->GetStats().bad_rows, 3);
  EXPECT_EQ(store->GetStats().kernels, 1);
  ASSERT_TRUE(store->Put(Key(0), Object(0)).ok());
  EXPECT_EQ(store->Get(Key(0)), Object(0));
}

TEST_F(KernelStoreTest, AHitWritesNothing) {
  auto store = Open();
  ASSERT_TRUE(store->Put(Key(1), Object(1)).ok());
  ASSERT_TRUE(store->ExecuteForTest("PRAGMA query_only=1").ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(store->Get(Key(1)), Object(1));
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(KernelStoreTest, ThreadsShareAStore) {
  auto store = Open();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store] {
      for (int i = 0; i < 30; ++i) {
        EXPECT_TRUE(store->Put(Key(i), Object(i)).ok());
        EXPECT_EQ(store->Get(Key(i)), Object(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->GetStats().kernels, 30);
}

// Puts the same keys again and again until it is killed.
[[noreturn]] void WriteForever(const std::string& path, int rounds) {
  auto store = KernelStore::Open(path, [](absl::string_view) { _exit(9); });
  for (int round = 0; round != rounds; ++round) {
    for (int i = 0; i < 20; ++i) {
      if (!store->Put(Key(i), Object(i)).ok()) _exit(8);
      const std::optional<std::string> object = store->Get(Key(i));
      if (object != Object(i)) _exit(7);
    }
  }
  _exit(0);
}

TEST_F(KernelStoreTest, TwoProcessesWriteTheSameKeys) {
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t pid = fork();
    if (pid == 0) WriteForever(path_, 10);
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  auto store = Open();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(store->Get(Key(i)), Object(i));
}

TEST_F(KernelStoreTest, KilledWhileWriting) {
  for (int round = 0; round < 25; ++round) {
    const pid_t pid = fork();
    if (pid == 0) WriteForever(path_, -1);
    usleep(3000 + 2711 * round);
    kill(pid, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    auto store = Open();
    ASSERT_TRUE(store->usable());
    for (int i = 0; i < 20; ++i) {
      const std::optional<std::string> object = store->Get(Key(i));
      if (object) EXPECT_EQ(*object, Object(i));
    }
    EXPECT_EQ(store->GetStats().bad_rows, 0);
    ASSERT_TRUE(store->Put(Key(100 + round), Object(round)).ok());
  }
  auto store = Open();
  for (int round = 0; round < 25; ++round) EXPECT_EQ(store->Get(Key(100 + round)), Object(round));
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(KernelStoreTest, NoDatabaseIsMovedAside) {
  std::ofstream(path_) << std::string(10000, 'x');
  auto store = Open();
  EXPECT_TRUE(store->usable());
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(reports_[0], HasSubstr("damaged"));
  EXPECT_THAT(reports_[0], HasSubstr(path_));
  ASSERT_TRUE(store->Put(Key(1), Object(1)).ok());
  EXPECT_EQ(Open()->Get(Key(1)), Object(1));
  int aside = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().string().find(".damaged-") != std::string::npos) ++aside;
  }
  EXPECT_EQ(aside, 1);
}

// Damage of every kind, found on opening or only on the way: never a crash, never a wrong object.
TEST_F(KernelStoreTest, DamageAnywhere) {
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    {
      auto store = Open();
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(store->Put(Key(i), Object(i)).ok());
    }
    const auto size = std::filesystem::file_size(path_);
    {
      std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
      const std::string noise = Object(1000 + round).substr(0, 600);
      file.seekp(round < 20 ? round * 5 : (size / 40) * (round - 20));
      file.write(noise.data(), static_cast<std::streamsize>(noise.size()));
    }
    if (round % 7 == 3) std::filesystem::resize_file(path_, size * (round % 5) / 5 + 13);
    auto store = Open();
    for (int i = 0; i < 20; ++i) {
      const std::optional<std::string> object = store->Get(Key(i));
      if (object) EXPECT_EQ(*object, Object(i));
    }
    for (int i = 0; i < 20; ++i) store->Put(Key(i), Object(i)).IgnoreError();
    for (int i = 0; i < 20; ++i) {
      const std::optional<std::string> object = store->Get(Key(i));
      if (object) EXPECT_EQ(*object, Object(i));
    }
  }
}

TEST_F(KernelStoreTest, FullDiskIsSaidOnce) {
  auto store = Open();
  ASSERT_TRUE(store->Put(Key(0), Object(0)).ok());
  ASSERT_TRUE(store->ExecuteForTest("PRAGMA max_page_count=1").ok());
  for (int i = 1; i < 4; ++i) {
    const absl::Status status = store->Put(Key(i), std::string(1 << 20, 'x'));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
  EXPECT_EQ(reports_.size(), 1u);
  EXPECT_EQ(store->Get(Key(0)), Object(0));
}

TEST_F(KernelStoreTest, WithoutAFileItOnlyMisses) {
  for (const std::string& path : {std::string("/proc/nowhere/cache.db"), folder_}) {
    reports_.clear();
    path_ = path;
    auto store = Open();
    EXPECT_FALSE(store->usable());
    EXPECT_EQ(reports_.size(), 1u);
    EXPECT_THAT(reports_, ElementsAre(HasSubstr(path)));
    EXPECT_EQ(store->Put(Key(1), Object(1)).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(store->Get(Key(1)), std::nullopt);
    EXPECT_FALSE(store->HasPassed("x"));
    EXPECT_EQ(reports_.size(), 1u);
  }
}

TEST_F(KernelStoreTest, ReadOnlyFileIsSaidOnce) {
  {
    ASSERT_TRUE(Open()->Put(Key(1), Object(1)).ok());
  }
  auto store = Open();
  ASSERT_TRUE(store->ExecuteForTest("PRAGMA query_only=1").ok());
  EXPECT_EQ(store->Put(Key(2), Object(2)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store->Put(Key(3), Object(3)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reports_.size(), 1u);
  EXPECT_EQ(store->Get(Key(1)), Object(1));
}

TEST_F(KernelStoreTest, NewerSchemaIsLeftAlone) {
  {
    auto store = Open();
    ASSERT_TRUE(store->Put(Key(1), Object(1)).ok());
    ASSERT_TRUE(store->ExecuteForTest("PRAGMA user_version=1000").ok());
  }
  {
    auto store = Open();
    EXPECT_FALSE(store->usable());
    EXPECT_THAT(reports_, ElementsAre(HasSubstr("newer version")));
    EXPECT_EQ(store->Get(Key(1)), std::nullopt);
  }
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, "PRAGMA user_version=2", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  EXPECT_EQ(Open()->Get(Key(1)), Object(1));
}

TEST_F(KernelStoreTest, EmptyPathIsNoCache) {
  path_.clear();
  auto store = Open();
  EXPECT_FALSE(store->usable());
  EXPECT_EQ(store->Get(Key(1)), std::nullopt);
  EXPECT_THAT(reports_, IsEmpty());
}

}  // namespace
}  // namespace athanor
