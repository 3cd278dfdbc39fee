// Tests of leases between real processes, under the real clocks.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/cache/lease.h"
#include "compiler/cache/lease_testing.h"
#include "compiler/cache/sqlite/fresh_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// Replaces the wall clock of this program, SQLite included, by the system's plus a jump. Every
// other clock is the system's.
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
using ::testing::HasSubstr;
using ::testing::Optional;

constexpr milliseconds kHour{3600 * 1000};
constexpr int64_t kSecond = 1000000;

class LeaseProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = FreshFolder();
    path_ = folder_ + "/cache.db";
  }
  void TearDown() override {
    wall_clock_jump_seconds = 0;
    std::filesystem::remove_all(folder_);
  }

  std::string folder_, path_;
};

absl::StatusCode CodeOfTake(LeaseTable& table, absl::string_view key) {
  return table.Take(key, "plan", "it").status().code();
}

TEST_F(LeaseProcessTest, JumpsOfTheWallClockDoNothing) {
  LeaseTestFile file(path_);
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
    lease = second.Take("k", "plan", "k").value();  // a free lease can be taken
    lease = Lease();
    lease = first.Take("k", "plan", "k").value();
  }
}

// Takes four keys from many threads, with a thread that beats: no key ever has two holders.
TEST_F(LeaseProcessTest, ManyThreads) {
  LeaseTestFile files[2] = {LeaseTestFile(path_), LeaseTestFile(path_)};
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

// A process that takes the lease of "k" and tells the result by a byte. It then answers each byte
// of its input: 'b' beats and tells whether the lease is still valid, 'r' releases it.
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
  // Waits for the child's end, but leaves it a zombie.
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
    LeaseTestFile file(path);
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

TEST_F(LeaseProcessTest, AKilledHolderLosesItAtOnce) {
  for (const bool reaped : {false, true}) {
    Child child(path_);
    ASSERT_EQ(child.Hear(), 'y');
    LeaseTestFile file(path_);
    LeaseTable table(file.Access(), {.timeout = kHour});
    const absl::Status refused = table.Take("k", "plan", "mine").status();
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(absl::StrCat("process ", child.pid(),
                                       " has held the plan lease of an "
                                       "equal graph for ")));
    kill(child.pid(), SIGKILL);
    child.WaitForEnd();
    if (reaped) child.Reap();
    EXPECT_EQ(CodeOfTake(table, "k"), absl::StatusCode::kOk) << reaped;
  }
}

TEST_F(LeaseProcessTest, AStoppedHolderLosesItAfterTheTimeout) {
  Child child(path_);
  ASSERT_EQ(child.Hear(), 'y');
  ASSERT_EQ(child.Ask('b'), 'y');
  kill(child.pid(), SIGSTOP);
  child.WaitForStop();

  std::atomic<int64_t> ahead{0};
  LeaseTestFile file(path_);
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
  EXPECT_EQ(child.Ask('b'), 'n');  // it notices
  EXPECT_EQ(child.Ask('r'), 'r');  // and its late release
  table.Beat();
  EXPECT_TRUE(taken.valid());  // does no harm
  EXPECT_EQ(table.HolderOf("k", "plan")->about, "mine");
}

TEST_F(LeaseProcessTest, OneOfManyProcesses) {
  {
    LeaseTestFile create(path_);
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
