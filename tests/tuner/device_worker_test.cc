// The process beside a tuner that runs what is for a GPU (server/tuner/worker): what ends it costs
// what it ran, and nothing else.
#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/child/tuner_process.h"
#include "server/child/tuner_process_testing.h"
#include "tests/tuner/gpu_tuner_test.h"

namespace athanor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Code = absl::StatusCode;
using std::chrono::milliseconds;

// Returns the processes that were forked by `parent`.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  DIR* const folder = opendir("/proc");
  while (const dirent* entry = readdir(folder)) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
    std::string text((std::istreambuf_iterator<char>(file)), {});
    // pid (name) state parent
    const size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) continue;
    if (std::atoi(text.c_str() + name_end + 4) == parent) children.push_back(pid);
  }
  closedir(folder);
  return children;
}

bool Runs(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return !text.empty() && !absl::StrContains(text, ") Z ");
}

bool EndsSoon(pid_t pid) {
  for (int i = 0; i < 500 && Runs(pid); ++i) std::this_thread::sleep_for(milliseconds(10));
  return !Runs(pid);
}

class DeviceWorkerTest : public GpuTunerTest {
 protected:
  // Returns the process that has the GPU; -1 if there is none.
  pid_t Worker(const TunerProcess& tuner) const {
    const std::vector<pid_t> children = ChildrenOf(tuner.worker_pid());
    EXPECT_LE(children.size(), 1);
    return children.empty() ? -1 : children.front();
  }
  pid_t Worker() const { return Worker(*tuner_); }

  internal::MeasureRequest MeasureOf(const internal::CheckRequest& check) {
    internal::MeasureRequest measure;
    internal::MeasuredPlan* plan = measure.add_plans();
    *plan->mutable_plan() = check.plan();
    *plan->mutable_objects() = check.objects();
    measure.set_graph_text(check.graph_text());
    measure.add_sizes()->add_values(1000);
    measure.set_threads(1);
    return measure;
  }
};

TEST_F(DeviceWorkerTest, OneProcessServesJobAfterJob) {
  Start();
  const internal::CheckRequest check = CheckOf(GpuKernel(""));
  EXPECT_EQ(Worker(), -1) << "nothing is for the GPU yet";
  EXPECT_TRUE(tuner_->Check(check).ok());
  const pid_t first = Worker();
  EXPECT_GT(first, 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(tuner_->Check(check).ok());
    const auto measured = tuner_->Measure(MeasureOf(check));
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_GT(measured->plans(0).sizes(0).seconds(), 0);
  }
  // A wrong value costs no process.
  const absl::Status wrong = tuner_->Check(CheckOf(GpuKernel("if (g == 36) continue;")));
  EXPECT_EQ(wrong.code(), Code::kDataLoss) << wrong;
  EXPECT_EQ(Worker(), first);
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(DeviceWorkerTest, AKernelIsMeasuredAsLayersOfAModel) {
  Start();
  internal::MeasureRequest measure = MeasureOf(CheckOf(GpuKernel("")));
  measure.add_sizes()->add_values(10);
  // A call reads and writes 4,000 bytes each, 8,064 with their alignment; a small one 128 in all.
  measure.add_activation_bytes(5 * 8064);
  measure.add_activation_bytes(3 * 128);
  for (const bool race : {false, true}) {
    measure.set_race(race);
    measure.set_steps(!race);
    const auto measured = tuner_->Measure(measure);
    ASSERT_TRUE(measured.ok()) << measured.status();
    for (int size = 0; size < 2; ++size) {
      const internal::SizeTimes& times = measured->plans(0).sizes(size);
      EXPECT_GT(times.seconds(), 0);
      EXPECT_EQ(times.layers(), 5);
      EXPECT_EQ(times.turns(), size == 0 ? 5 : 3);
      EXPECT_EQ(times.step_seconds_size(), race ? 0 : 1);
    }
  }
}

// What the process before it left in the GPU's memory is not taken for this one's result.
TEST_F(DeviceWorkerTest, ResultsOfTheJobBeforeAreGone) {
  Start();
  const internal::CheckRequest right = CheckOf(GpuKernel(""));
  const internal::CheckRequest nothing = CheckOf(GpuKernel("if (a.items > 0) continue;"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(tuner_->Check(right).ok());
    EXPECT_EQ(tuner_->Check(nothing).code(), Code::kDataLoss);
  }
}

// Where an address is right and what lies there is another's, no GPU tells.
TEST_F(DeviceWorkerTest, AWriteIntoTheGapBehindAnArgument) {
  Start();
  const absl::Status wrong =
      tuner_->Check(CheckOf(GpuKernel("store<f32>(Buffer{a.b1.data, 1 << 20}, a.items, 1);")));
  EXPECT_EQ(wrong.code(), Code::kDataLoss) << wrong;
  EXPECT_THAT(wrong.message(), HasSubstr("writes 1 byte behind argument 1, which has 4 bytes"));
  const absl::Status before =
      tuner_->Check(CheckOf(GpuKernel("store<f32>(Buffer{a.b0.data - 8, 1 << 20}, 0, 1);")));
  EXPECT_EQ(before.code(), Code::kDataLoss) << before;
  EXPECT_THAT(before.message(), HasSubstr("8 bytes before argument 0"));
}

TEST_F(DeviceWorkerTest, AFaultEndsItAndTheNextServes) {
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  const internal::CheckRequest bad = CheckOf(GpuKernel("store<f32>(a.b1, a.items, 1);"));
  std::set<pid_t> workers;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(tuner_->Check(good).ok());
    EXPECT_TRUE(workers.insert(Worker()).second);
    const absl::Status fault = tuner_->Check(bad);
    EXPECT_EQ(fault.code(), Code::kInternal) << fault;
    EXPECT_THAT(fault.message(), HasSubstr("writes 4 bytes"));
  }
  for (const pid_t worker : workers) EXPECT_TRUE(EndsSoon(worker));
  EXPECT_EQ(tuner_->starts(), 1);
}

TEST_F(DeviceWorkerTest, AHangEndsItAndTheNextServes) {
  options_.check_timeout = milliseconds(2000);
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  EXPECT_TRUE(tuner_->Check(good).ok());
  const pid_t first = Worker();
  const internal::CheckRequest hangs = CheckOf(GpuKernel("for (volatile int go = 1; go;) {}"));
  const absl::Status late = tuner_->Check(hangs);
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late;
  EXPECT_THAT(late.message(), HasSubstr("still ran after 1000 ms"));
  EXPECT_FALSE(Runs(first));
  const auto measured = tuner_->Measure(MeasureOf(hangs));
  EXPECT_EQ(measured.status().code(), Code::kDeadlineExceeded) << measured.status();
  EXPECT_TRUE(tuner_->Check(good).ok());
  EXPECT_EQ(tuner_->starts(), 1);
}

// Somebody else's kill is no verdict about what ran.
TEST_F(DeviceWorkerTest, KilledInTheMiddleOfAJob) {
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  const internal::CheckRequest hangs = CheckOf(GpuKernel("for (volatile int go = 1; go;) {}"));
  EXPECT_TRUE(tuner_->Check(good).ok());
  const pid_t worker = Worker();
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(300));
    kill(worker, SIGKILL);
  });
  const absl::Status killed = tuner_->Check(hangs);
  killer.join();
  EXPECT_EQ(killed.code(), Code::kUnavailable) << killed;
  EXPECT_THAT(killed.message(), HasSubstr("SIGKILL"));
  EXPECT_TRUE(tuner_->Check(good).ok());
  // Between two jobs it costs none.
  const pid_t idle = Worker();
  kill(idle, SIGKILL);
  EXPECT_TRUE(EndsSoon(idle));
  EXPECT_TRUE(tuner_->Check(good).ok());
  EXPECT_EQ(tuner_->starts(), 1);
}

// Who keeps it is one with the tuner: both are started anew.
TEST_F(DeviceWorkerTest, ItsKeeperIsKilled) {
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  const internal::CheckRequest hangs = CheckOf(GpuKernel("for (volatile int go = 1; go;) {}"));
  EXPECT_TRUE(tuner_->Check(good).ok());
  const pid_t worker = Worker(), keeper = tuner_->worker_pid();
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(300));
    kill(keeper, SIGKILL);
  });
  const absl::Status killed = tuner_->Check(hangs);
  killer.join();
  EXPECT_EQ(killed.code(), Code::kUnavailable) << killed;
  EXPECT_THAT(killed.message(), HasSubstr("device worker"));
  EXPECT_TRUE(EndsSoon(worker));
  EXPECT_TRUE(tuner_->Check(good).ok());
  EXPECT_EQ(tuner_->starts(), 2);
  EXPECT_NE(tuner_->worker_pid(), keeper);
}

TEST_F(DeviceWorkerTest, ATunersEndEndsIt) {
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  for (const bool killed : {true, false}) {
    EXPECT_TRUE(tuner_->Check(good).ok());
    const pid_t worker = Worker(), keeper = tuner_->worker_pid(), tuner = tuner_->pid();
    if (killed) {
      kill(tuner, SIGKILL);
    } else {
      tuner_.reset();
    }
    for (const pid_t pid : {worker, keeper, tuner}) EXPECT_TRUE(EndsSoon(pid)) << pid;
    // The call finds the tuner gone, which says nothing of the kernel.
    if (killed) {
      EXPECT_EQ(tuner_->Check(good).code(), Code::kUnavailable);
    }
  }
}

TEST_F(DeviceWorkerTest, TwoTunersShareAGpu) {
  std::vector<std::thread> threads;
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  const internal::CheckRequest bad = CheckOf(GpuKernel("store<f32>(a.b1, a.items, 1);"));
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::unique_ptr<TunerProcess> tuner = TunerProcess::Start(options_).value();
      for (int i = 0; i < 5; ++i) {
        const absl::Status one = tuner->Check(t == 0 ? bad : good);
        EXPECT_EQ(one.code(), t == 0 ? Code::kInternal : Code::kOk) << one;
      }
      EXPECT_EQ(tuner->starts(), 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Nothing is for a driver to forbid in the tuner: it has none.
TEST_F(DeviceWorkerTest, TheTunerHasAllWallsAndNoDriver) {
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  EXPECT_TRUE(tuner_->Check(good).ok());
  EXPECT_THAT(tuner_->walls(), HasSubstr("system calls of a list"));
  const auto maps = [](pid_t pid) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/maps"));
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  const std::string mapped = maps(tuner_->pid());
  if (mapped.empty()) GTEST_SKIP() << "this user may not look at the tuner's memory";
  EXPECT_THAT(mapped, HasSubstr("athanor-tuner"));
  EXPECT_THAT(mapped, Not(HasSubstr("libcuda.so")));
  EXPECT_THAT(maps(tuner_->worker_pid()), HasSubstr("libcuda.so"));
}

// A driver that is not known as the emulator is taken for a real one: its worker has few walls.
TEST_F(DeviceWorkerTest, ADriverThatNeedsMoreThanTheWallsAllow) {
  std::ifstream file("tests/emulator/libcuda.so.1", std::ios::binary);
  std::string library((std::istreambuf_iterator<char>(file)), {});
  const std::string symbol("\0athanor_emulator\0", 18);
  const size_t at = library.find(symbol);
  ASSERT_NE(at, std::string::npos);
  library.replace(at, symbol.size(), std::string("\0athanor_unknowns\0", 18));
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/libcuda.so.1", std::ios::binary) << library;
  setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
  options_.check_timeout = milliseconds(2000);
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  const internal::CheckRequest hangs = CheckOf(GpuKernel("for (volatile int go = 1; go;) {}"));
  const internal::CheckRequest bad = CheckOf(GpuKernel("store<f32>(a.b1, a.items, 1);"));
  for (int i = 0; i < 2; ++i) {
    const absl::Status right = tuner_->Check(good);
    EXPECT_TRUE(right.ok()) << right;
    EXPECT_EQ(tuner_->Check(bad).code(), Code::kInternal);
    EXPECT_EQ(tuner_->Check(hangs).code(), Code::kDeadlineExceeded);
  }
  EXPECT_TRUE(tuner_->Check(good).ok());
  EXPECT_EQ(tuner_->starts(), 1);
  EXPECT_THAT(tuner_->walls(), HasSubstr("system calls of a list"));
  const auto filter = [](pid_t pid) {
    std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
    std::string text((std::istreambuf_iterator<char>(status)), {});
    return absl::StrContains(text, "Seccomp:\t2");
  };
  EXPECT_TRUE(filter(tuner_->pid()));
  EXPECT_FALSE(filter(tuner_->worker_pid()));
  EXPECT_FALSE(filter(Worker()));
}

TEST_F(DeviceWorkerTest, AGpuThatIsNotThere) {
  Start();
  const internal::CheckRequest good = CheckOf(GpuKernel(""));
  options_.gpu = 7;
  Start();
  const absl::Status none = tuner_->Check(good);
  EXPECT_EQ(none.code(), Code::kFailedPrecondition) << none;
  EXPECT_THAT(none.message(), HasSubstr("cuda:7: there is no such GPU"));
  EXPECT_EQ(tuner_->Check(good).code(), Code::kFailedPrecondition);
  EXPECT_EQ(tuner_->starts(), 1);
}

}  // namespace
}  // namespace athanor
