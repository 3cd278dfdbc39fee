#include "compiler/cache/lease.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/lease_testing.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr int64_t kSecond = 1000000;

// A boot clock that moves only when told to.
struct FakeClock {
  std::atomic<int64_t> now{1000 * kSecond};
  std::function<int64_t()> Function() {
    return [this] { return now.load(); };
  }
};

// Returns a process of a machine on which the processes in `alive` run.
ProcessTable FakeProcess(int pid, const std::map<int, int64_t>* alive) {
  ProcessTable table;
  table.boot_id = "boot 1";
  table.pid_namespace = 4026531836;
  table.pid = pid;
  table.start_of = [alive](int asked) -> std::optional<int64_t> {
    const auto it = alive->find(asked);
    return it == alive->end() ? 0 : it->second;
  };
  return table;
}

class LeaseTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    path_ = folder_ + "/cache.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  LeaseOptions FakeOptions(int pid) {
    return {.timeout = milliseconds(10000),
            .boot_microseconds = clock_.Function(),
            .processes = FakeProcess(pid, &alive_)};
  }

  std::string folder_, path_;
  FakeClock clock_;
  std::map<int, int64_t> alive_ = {{71, 500}, {72, 600}};
};

absl::StatusCode CodeOfTake(LeaseTable& table, absl::string_view key,
                            absl::string_view kind = "plan") {
  return table.Take(key, kind, "it").status().code();
}

TEST_F(LeaseTest, OneHolderPerKeyAndKind) {
  LeaseTestFile file(path_);
  LeaseTable first(file.Access(), FakeOptions(71)), second(file.Access(), FakeOptions(72));
  absl::StatusOr<Lease> lease = first.Take("k", "plan", "model bert");
  ASSERT_TRUE(lease.ok());
  EXPECT_TRUE(lease->valid());
  clock_.now += 1500 * 1000;
  const absl::Status refused = second.Take("k", "plan", "model other").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()),
              Eq("process 71 has held the plan lease of an equal graph for 1.5 s"));
  // Whoever waits may not know the other's model: only HolderOf names it.
  EXPECT_THAT(std::string(first.Take("k", "plan", "").status().message()),
              HasSubstr("process 71 (this server) has held"));
  const absl::StatusOr<Lease> search = second.Take("k", "search", "a search");
  const absl::StatusOr<Lease> other = second.Take("l", "plan", "another key");
  EXPECT_TRUE(search.ok());
  EXPECT_TRUE(other.ok());

  const std::optional<LeaseTable::Holder> holder = second.HolderOf("k", "plan");
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->pid, 71);
  EXPECT_EQ(holder->about, "model bert");
  EXPECT_DOUBLE_EQ(holder->age_seconds, 1.5);
  EXPECT_FALSE(holder->ours);
  std::vector<std::string> all;
  for (const LeaseTable::Holder& one : second.Holders()) {
    all.push_back(absl::StrCat(one.kind, ", ", one.about, one.ours ? ", ours" : ""));
  }
  EXPECT_THAT(all,
              ElementsAre("plan, model bert", "search, a search, ours", "plan, another key, ours"));

  lease->Release();
  EXPECT_FALSE(lease->valid());
  EXPECT_EQ(second.HolderOf("k", "plan"), std::nullopt);
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);
  EXPECT_EQ(file.Rows(), 2);
}

TEST_F(LeaseTest, MovesAndEndsWithItsScope) {
  LeaseTestFile file(path_);
  LeaseTable table(file.Access(), FakeOptions(71));
  {
    Lease lease;
    EXPECT_FALSE(lease.valid());
    lease = table.Take("a", "plan", "a").value();
    Lease moved = std::move(lease);
    EXPECT_TRUE(moved.valid());
    EXPECT_EQ(file.Rows(), 1);
    moved = table.Take("b", "plan", "b").value();  // releases the first
    EXPECT_EQ(table.HolderOf("a", "plan"), std::nullopt);
    EXPECT_EQ(file.Rows(), 1);
  }
  EXPECT_EQ(file.Rows(), 0);
}

TEST_F(LeaseTest, ABeatKeepsItAndSilenceLosesIt) {
  LeaseTestFile file(path_);
  int woken = 0;
  LeaseOptions options = FakeOptions(71);
  options.wake = [&woken] { ++woken; };
  LeaseTable first(file.Access(), std::move(options)), second(file.Access(), FakeOptions(72));
  EXPECT_EQ(first.Beat(), std::nullopt);
  Lease lease = first.Take("k", "plan", "k").value();
  const Lease other = first.Take("l", "plan", "l").value();
  EXPECT_EQ(woken, 1);
  for (int i = 0; i < 100; ++i) {
    const std::optional<milliseconds> due = first.Beat();
    ASSERT_THAT(due, Optional(milliseconds(2000)));
    clock_.now += 1000 * due->count();
    ASSERT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  }
  first.Beat();
  clock_.now += 10 * kSecond - 1;
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  clock_.now += 1;
  const Lease taken = second.Take("k", "plan", "k").value();
  EXPECT_TRUE(lease.valid());  // it does not know yet
  first.Beat();
  EXPECT_FALSE(lease.valid());
  EXPECT_TRUE(other.valid());  // nobody took it
  lease.Release();             // now belongs to the other
  EXPECT_TRUE(taken.valid());
  EXPECT_EQ(CodeOfTake(first, "k"), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.Beat(), Optional(milliseconds(2000)));
  EXPECT_TRUE(taken.valid());
}

// This holds even if the same process took the lease again meanwhile.
TEST_F(LeaseTest, ALateReleaseOfALostLeaseTouchesNoOther) {
  LeaseTestFile file(path_);
  LeaseTable first(file.Access(), FakeOptions(71)), second(file.Access(), FakeOptions(72));
  Lease lost = first.Take("k", "plan", "k").value();
  clock_.now += 11 * kSecond;
  second.Take("k", "plan", "k").value().Release();
  const Lease again = first.Take("k", "plan", "k").value();
  lost.Release();
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  first.Beat();
  EXPECT_TRUE(again.valid());
}

TEST_F(LeaseTest, WhoIsGoneLosesItAtOnce) {
  LeaseTestFile file(path_);
  LeaseTable second(file.Access(), FakeOptions(72));
  const auto left_by_71 = [&](absl::string_view sql) {
    LeaseTable first(file.Access(), FakeOptions(71));
    Lease lease = first.Take("k", "plan", "k").value();
    file.CutOff(true);  // it ends without a release
    lease.Release();
    file.CutOff(false);
    if (!sql.empty()) ASSERT_TRUE(file.Execute(std::string(sql)).ok());
  };
  left_by_71("");
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  alive_.erase(71);
  EXPECT_EQ(second.HolderOf("k", "plan"), std::nullopt);
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);

  alive_[71] = 500;
  left_by_71("");
  alive_[71] = 501;  // another process got its pid
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);

  left_by_71("UPDATE leases SET boot_id = 'boot 0'");
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);

  // In another pid namespace the pid tells nothing: such a lease is free only after the timeout.
  left_by_71("UPDATE leases SET pid_namespace = 1");
  alive_.erase(71);
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  clock_.now += 10 * kSecond;
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);

  // A beat in the future belongs to a boot without an id.
  alive_[71] = 500;
  left_by_71("UPDATE leases SET beat_boot_us = beat_boot_us + 1000000000");
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);
}

TEST_F(LeaseTest, AProcessThatCannotBeSeenHasItsTime) {
  LeaseTestFile file(path_);
  LeaseOptions blind = FakeOptions(72);
  blind.processes->start_of = [](int) { return std::nullopt; };
  LeaseTable first(file.Access(), FakeOptions(71)), second(file.Access(), std::move(blind));
  const Lease lease = first.Take("k", "plan", "k").value();
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  clock_.now += 10 * kSecond;
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);
}

TEST_F(LeaseTest, AReleaseThatDidNotReachTheFile) {
  LeaseTestFile file(path_);
  LeaseTable table(file.Access(), FakeOptions(71));
  {
    const Lease lease = table.Take("k", "plan", "k").value();
    file.CutOff(true);
  }
  file.CutOff(false);
  EXPECT_EQ(file.Rows(), 1);
  EXPECT_EQ(table.HolderOf("k", "plan"), std::nullopt);
  EXPECT_EQ(CodeOfTake(table, "k"), absl::StatusCode::kOk);
  EXPECT_EQ(file.Rows(), 0);
}

TEST_F(LeaseTest, RowsThatWereDeletedAreLost) {
  LeaseTestFile file(path_);
  LeaseTable table(file.Access(), FakeOptions(71));
  const Lease lease = table.Take("k", "plan", "k").value();
  ASSERT_TRUE(file.Execute("DELETE FROM leases").ok());
  table.Beat();
  EXPECT_FALSE(lease.valid());
  EXPECT_EQ(table.Beat(), std::nullopt);
}

TEST_F(LeaseTest, AFailedBeatIsTriedAgainSoon) {
  LeaseTestFile file(path_);
  LeaseTable table(file.Access(), FakeOptions(71));
  const Lease lease = table.Take("k", "plan", "k").value();
  file.CutOff(true);
  EXPECT_THAT(table.Beat(), Optional(milliseconds(500)));
  EXPECT_TRUE(lease.valid());
  file.CutOff(false);
  EXPECT_THAT(table.Beat(), Optional(milliseconds(2000)));
  EXPECT_TRUE(lease.valid());
}

// Without a file to share, every Take succeeds.
TEST_F(LeaseTest, NoFile) {
  LeaseTestFile file(folder_);  // a folder: no database
  ASSERT_NE(file.state(), FileState::kUsable);
  LeaseTable table(file.Access(), FakeOptions(71));
  const Lease lease = table.Take("k", "plan", "k").value();
  const Lease same = table.Take("k", "plan", "k").value();
  EXPECT_TRUE(lease.valid());
  EXPECT_TRUE(same.valid());
  EXPECT_EQ(table.Beat(), std::nullopt);
  EXPECT_EQ(table.HolderOf("k", "plan"), std::nullopt);
  EXPECT_THAT(table.Holders(), IsEmpty());
}

TEST_F(LeaseTest, ReadOnlyFile) {
  LeaseTestFile file(path_), writer(path_);
  LeaseTable other(writer.Access(), FakeOptions(72));
  const Lease held = other.Take("other", "plan", "other").value();
  ASSERT_TRUE(file.Execute("PRAGMA query_only = ON").ok());
  LeaseTable table(file.Access(), FakeOptions(71));
  const Lease lease = table.Take("k", "plan", "k").value();
  EXPECT_TRUE(lease.valid());
  EXPECT_EQ(file.state(), FileState::kReadOnly);
  EXPECT_EQ(table.Beat(), std::nullopt);
  EXPECT_THAT(table.HolderOf("other", "plan")->pid, 72);
  EXPECT_EQ(writer.Rows(), 1);
}

// Looking at leases writes nothing, and neither does a refused Take.
TEST_F(LeaseTest, RefusalsWriteNothing) {
  LeaseTestFile file(path_);
  LeaseTable first(file.Access(), FakeOptions(71)), second(file.Access(), FakeOptions(72));
  const Lease lease = first.Take("k", "plan", "k").value();
  const int64_t before = file.Changes();
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(second.HolderOf("k", "plan"));
  EXPECT_EQ(second.Holders().size(), 1u);
  EXPECT_EQ(file.Changes(), before);
}

}  // namespace
}  // namespace athanor
