#include "compiler/cache/lease.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// The wall clock of this program, SQLite included: the system's, and a jump. Every other clock is
// the system's.
static std::atomic<int64_t> wall_clock_jump_seconds{0};

extern "C" int clock_gettime(clockid_t id, timespec* now) {
  const auto status = static_cast<int>(syscall(SYS_clock_gettime, id, now));
  if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) now->tv_sec += wall_clock_jump_seconds;
  return status;
}

extern "C" int gettimeofday(timeval* __restrict now, void* __restrict) {
  timespec time;
  const int status = clock_gettime(CLOCK_REALTIME, &time);
  *now = {.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000};
  return status;
}

extern "C" time_t time(time_t* out) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

namespace athanor {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr milliseconds kHour{3600 * 1000};
constexpr int64_t kSecond = 1000000;

// One connection to the cache's file, as its owner gives it to a LeaseTable.
class File {
 public:
  explicit File(const std::string& path) : file_(path, CacheSchema(), nullptr) { file_.Open(); }

  LeaseFile Access() {
    return [this](absl::FunctionRef<absl::Status(SqliteFile&)> body) -> absl::Status {
      MutexLock lock(mu_);
      if (file_.db() == nullptr || cut_off_) return absl::UnavailableError("no file");
      return body(file_);
    };
  }
  absl::Status Execute(const std::string& sql) {
    MutexLock lock(mu_);
    return file_.Execute(sql);
  }
  int64_t Rows() {
    MutexLock lock(mu_);
    Statement count(file_.db(), "SELECT COUNT(*) FROM leases");
    return count.Step() == SQLITE_ROW ? count.IntAt(0) : -1;
  }
  int64_t Changes() {
    MutexLock lock(mu_);
    return sqlite3_total_changes(file_.db());
  }
  FileState state() {
    MutexLock lock(mu_);
    return file_.state();
  }
  void CutOff(bool cut_off) { cut_off_ = cut_off; }

 private:
  Mutex mu_;
  SqliteFile file_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> cut_off_{false};
};

// A boot clock that only moves when told.
struct FakeClock {
  std::atomic<int64_t> now{1000 * kSecond};
  std::function<int64_t()> Function() {
    return [this] { return now.load(); };
  }
};

// A process of a machine on which `alive` says who runs.
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
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = absl::StrCat(::testing::TempDir(), "/", info->name(), getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/cache.db";
  }
  void TearDown() override {
    wall_clock_jump_seconds = 0;
    std::filesystem::remove_all(folder_);
  }

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
  File file(path_);
  LeaseTable first(file.Access(), FakeOptions(71)), second(file.Access(), FakeOptions(72));
  absl::StatusOr<Lease> lease = first.Take("k", "plan", "model bert");
  ASSERT_TRUE(lease.ok());
  EXPECT_TRUE(lease->valid());
  clock_.now += 1500 * 1000;
  const absl::Status refused = second.Take("k", "plan", "model other").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()),
              Eq("process 71 has held the plan lease of model bert for 1.5 s"));
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
  File file(path_);
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
  File file(path_);
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
  EXPECT_TRUE(other.valid());  // nobody took that one
  lease.Release();             // is the other's now
  EXPECT_TRUE(taken.valid());
  EXPECT_EQ(CodeOfTake(first, "k"), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.Beat(), Optional(milliseconds(2000)));
  EXPECT_TRUE(taken.valid());
}

// Even where the same process took it again in between.
TEST_F(LeaseTest, ALateReleaseOfALostLeaseTouchesNoOther) {
  File file(path_);
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
  File file(path_);
  LeaseTable second(file.Access(), FakeOptions(72));
  const auto left_by_71 = [&](absl::string_view sql) {
    LeaseTable first(file.Access(), FakeOptions(71));
    Lease lease = first.Take("k", "plan", "k").value();
    file.CutOff(true);  // it dies without a release
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

  // Of another pid namespace the pid says nothing: that one has its time.
  left_by_71("UPDATE leases SET pid_namespace = 1");
  alive_.erase(71);
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  clock_.now += 10 * kSecond;
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);

  // A beat of the future is of a boot that had no id.
  alive_[71] = 500;
  left_by_71("UPDATE leases SET beat_boot_us = beat_boot_us + 1000000000");
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);
}

TEST_F(LeaseTest, AProcessThatCannotBeSeenHasItsTime) {
  File file(path_);
  LeaseOptions blind = FakeOptions(72);
  blind.processes->start_of = [](int) { return std::nullopt; };
  LeaseTable first(file.Access(), FakeOptions(71)), second(file.Access(), std::move(blind));
  const Lease lease = first.Take("k", "plan", "k").value();
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  clock_.now += 10 * kSecond;
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kOk);
}

TEST_F(LeaseTest, AReleaseThatDidNotReachTheFile) {
  File file(path_);
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

TEST_F(LeaseTest, SweepDeletesWhatNobodyHolds) {
  File file(path_);
  LeaseTable first(file.Access(), FakeOptions(71)), second(file.Access(), FakeOptions(72));
  const Lease a = first.Take("a", "plan", "a").value();
  const Lease b = first.Take("b", "plan", "b").value();
  const Lease c = second.Take("c", "search", "c").value();
  EXPECT_EQ(second.Sweep(), 0);
  alive_.erase(71);
  EXPECT_EQ(second.Sweep(), 2);
  EXPECT_EQ(file.Rows(), 1);
  first.Beat();
  EXPECT_FALSE(a.valid());
  EXPECT_FALSE(b.valid());
  EXPECT_TRUE(c.valid());
}

TEST_F(LeaseTest, RowsThatWereDeletedAreLost) {
  File file(path_);
  LeaseTable table(file.Access(), FakeOptions(71));
  const Lease lease = table.Take("k", "plan", "k").value();
  ASSERT_TRUE(file.Execute("DELETE FROM leases").ok());
  table.Beat();
  EXPECT_FALSE(lease.valid());
  EXPECT_EQ(table.Beat(), std::nullopt);
}

TEST_F(LeaseTest, AFailedBeatIsTriedAgainSoon) {
  File file(path_);
  LeaseTable table(file.Access(), FakeOptions(71));
  const Lease lease = table.Take("k", "plan", "k").value();
  file.CutOff(true);
  EXPECT_THAT(table.Beat(), Optional(milliseconds(500)));
  EXPECT_TRUE(lease.valid());
  file.CutOff(false);
  EXPECT_THAT(table.Beat(), Optional(milliseconds(2000)));
  EXPECT_TRUE(lease.valid());
}

// Without a file to share, nobody is kept from his work.
TEST_F(LeaseTest, NoFile) {
  File file(folder_);  // a folder: no database
  ASSERT_NE(file.state(), FileState::kUsable);
  LeaseTable table(file.Access(), FakeOptions(71));
  const Lease lease = table.Take("k", "plan", "k").value();
  const Lease same = table.Take("k", "plan", "k").value();
  EXPECT_TRUE(lease.valid());
  EXPECT_TRUE(same.valid());
  EXPECT_EQ(table.Beat(), std::nullopt);
  EXPECT_EQ(table.HolderOf("k", "plan"), std::nullopt);
  EXPECT_THAT(table.Holders(), IsEmpty());
  EXPECT_EQ(table.Sweep(), 0);
}

TEST_F(LeaseTest, ReadOnlyFile) {
  File file(path_), writer(path_);
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

// Looking writes nothing, and neither does a Take that is refused.
TEST_F(LeaseTest, RefusalsWriteNothing) {
  File file(path_);
  LeaseTable first(file.Access(), FakeOptions(71)), second(file.Access(), FakeOptions(72));
  const Lease lease = first.Take("k", "plan", "k").value();
  const int64_t before = file.Changes();
  EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(second.HolderOf("k", "plan"));
  EXPECT_EQ(second.Holders().size(), 1u);
  EXPECT_EQ(file.Changes(), before);
}

TEST_F(LeaseTest, JumpsOfTheWallClockDoNothing) {
  File file(path_);
  LeaseTable first(file.Access(), {}), second(file.Access(), {});
  Lease lease = first.Take("k", "plan", "k").value();
  const time_t before = time(nullptr);
  for (const int days : {400, -400, 0, -400, 400}) {
    wall_clock_jump_seconds = int64_t{days} * 86400;
    ASSERT_NEAR(static_cast<double>(time(nullptr) - before), 86400.0 * days, 3600);
    EXPECT_EQ(CodeOfTake(second, "k"), absl::StatusCode::kUnavailable) << days;
    EXPECT_LT(second.HolderOf("k", "plan")->age_seconds, 3600) << days;
    EXPECT_THAT(first.Beat(), Optional(milliseconds(2000)));
    EXPECT_TRUE(lease.valid()) << days;
    lease.Release();
    lease = second.Take("k", "plan", "k").value();  // and once it is free, it can be had
    lease = Lease();
    lease = first.Take("k", "plan", "k").value();
  }
}

// On four keys, with somebody who beats: never two holders of one.
TEST_F(LeaseTest, ManyThreads) {
  File files[2] = {File(path_), File(path_)};
  LeaseTable tables[2] = {{files[0].Access(), {.timeout = kHour}},
                          {files[1].Access(), {.timeout = kHour}}};
  std::atomic<int> inside[4] = {};
  std::atomic<int> taken{0}, wrong{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        const int key = (t + i) % 4;
        const absl::StatusOr<Lease> lease =
            tables[t % 2].Take(absl::StrCat("key ", key), "plan", "k");
        if (!lease.ok()) continue;
        ++taken;
        if (inside[key].fetch_add(1) != 0 || !lease->valid()) ++wrong;
        std::this_thread::yield();
        inside[key].fetch_sub(1);
      }
    });
  }
  std::thread beating([&] {
    while (!done) {
      for (LeaseTable& table : tables) {
        table.Beat();
        table.Holders();
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  beating.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(taken, 8);
  EXPECT_EQ(files[0].Rows(), 0);
}

// A process that takes the lease of "k", says by a byte how that went, and then answers each byte
// of its input: 'b' beats and says whether the lease is still valid, 'r' releases it.
class Child {
 public:
  explicit Child(const std::string& path) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(to[1]);
      Serve(path, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  ~Child() {
    kill(pid_, SIGKILL);
    Reap();
    close(to_);
    close(from_);
  }

  int pid() const { return pid_; }
  char Hear() {
    char c = 0;
    return read(from_, &c, 1) == 1 ? c : '!';
  }
  char Ask(char c) { return write(to_, &c, 1) == 1 ? Hear() : '!'; }
  // Waits for the end, but leaves a zombie.
  void WaitForEnd() {
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void WaitForStop() { waitpid(pid_, nullptr, WUNTRACED); }
  void Reap() {
    if (!reaped_) waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }

 private:
  [[noreturn]] static void Serve(const std::string& path, int in, int out) {
    File file(path);
    LeaseTable table(file.Access(), {.timeout = kHour});
    absl::StatusOr<Lease> lease = table.Take("k", "plan", "the child's");
    char c = lease.ok() ? 'y' : 'n';
    while (write(out, &c, 1) == 1 && read(in, &c, 1) == 1) {
      if (c == 'r') lease->Release();
      if (c == 'b') {
        table.Beat();
        c = lease->valid() ? 'y' : 'n';
      }
    }
    _exit(0);
  }

  pid_t pid_;
  int to_ = -1, from_ = -1;
  bool reaped_ = false;
};

TEST_F(LeaseTest, AKilledHolderLosesItAtOnce) {
  for (const bool reaped : {false, true}) {
    Child child(path_);
    ASSERT_EQ(child.Hear(), 'y');
    File file(path_);
    LeaseTable table(file.Access(), {.timeout = kHour});
    const absl::Status refused = table.Take("k", "plan", "mine").status();
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("process ", child.pid(),
                                       " has held the plan lease of the "
                                       "child's for ")));
    kill(child.pid(), SIGKILL);
    child.WaitForEnd();
    if (reaped) child.Reap();
    EXPECT_EQ(CodeOfTake(table, "k"), absl::StatusCode::kOk) << reaped;
  }
}

TEST_F(LeaseTest, AStoppedHolderLosesItAfterTheTimeout) {
  Child child(path_);
  ASSERT_EQ(child.Hear(), 'y');
  ASSERT_EQ(child.Ask('b'), 'y');
  kill(child.pid(), SIGSTOP);
  child.WaitForStop();

  std::atomic<int64_t> ahead{0};
  File file(path_);
  LeaseTable table(file.Access(), {.timeout = kHour, .boot_microseconds = [&ahead] {
                                     timespec now;
                                     clock_gettime(CLOCK_BOOTTIME, &now);
                                     return int64_t{now.tv_sec} * kSecond + now.tv_nsec / 1000 +
                                            ahead;
                                   }});
  EXPECT_EQ(CodeOfTake(table, "k"), absl::StatusCode::kUnavailable);
  ahead = 3600 * kSecond;
  Lease taken = table.Take("k", "plan", "mine").value();
  ahead = 0;

  kill(child.pid(), SIGCONT);
  EXPECT_EQ(child.Ask('b'), 'n');  // it finds out
  EXPECT_EQ(child.Ask('r'), 'r');  // and its late release
  table.Beat();
  EXPECT_TRUE(taken.valid());  // is harmless
  EXPECT_EQ(table.HolderOf("k", "plan")->about, "mine");
}

TEST_F(LeaseTest, OneOfManyProcesses) {
  {
    File create(path_);
  }
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 6; ++i) children.push_back(std::make_unique<Child>(path_));
  int took = 0;
  for (const auto& child : children) {
    const char heard = child->Hear();
    EXPECT_TRUE(heard == 'y' || heard == 'n') << heard;
    took += heard == 'y';
  }
  EXPECT_EQ(took, 1);
}

TEST(ProcessTableTest, OfThisMachine) {
  const ProcessTable table = ProcessTable::OfThisMachine();
  EXPECT_EQ(table.boot_id.size(), 36u) << table.boot_id;
  EXPECT_NE(table.pid_namespace, 0);
  EXPECT_EQ(table.pid, getpid());
  const std::optional<int64_t> own = table.start_of(getpid());
  ASSERT_TRUE(own);
  EXPECT_GT(*own, 0);
  EXPECT_EQ(table.start_of(getpid()), own);

  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  EXPECT_GE(table.start_of(child).value_or(0), *own);
  kill(child, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_THAT(table.start_of(child), Optional(0));  // a zombie holds nothing
  waitpid(child, nullptr, 0);
  EXPECT_THAT(table.start_of(child), Optional(0));
}

}  // namespace
}  // namespace athanor
