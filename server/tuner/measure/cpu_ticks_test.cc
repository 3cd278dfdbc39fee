#include "server/tuner/measure/cpu_ticks.h"

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/cpu/cpus.h"

namespace athanor {
namespace {

using std::chrono::microseconds;

std::set<pid_t> Threads() {
  std::set<pid_t> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(std::stoi(entry.path().filename()));
  }
  return threads;
}

TEST(CpuTicksTest, EachCpuHasAThreadForAsLongAsTheyLive) {
  const std::vector<int> all = UsableCpus();
  const std::set<pid_t> before = Threads();
  std::optional<CpuTicks> ticks;
  ticks.emplace(all, microseconds(100));
  std::set<std::vector<int>> each;
  for (int cpu : all) each.insert({cpu});
  // Waits until they have begun; if this never ends, the test fails by its time limit.
  for (std::set<std::vector<int>> found; found != each;) {
    found.clear();
    for (pid_t thread : Threads()) {
      if (!before.contains(thread)) found.insert(UsableCpus(thread));
    }
    std::this_thread::yield();
  }
  ticks.reset();
  // A joined thread is listed for a moment longer.
  while (Threads() != before) std::this_thread::yield();
}

TEST(CpuTicksTest, CpusThatThereAreNotGoWithout) {
  {
    CpuTicks none({}, microseconds(1));
  }
  {
    CpuTicks absent({1023, -1}, microseconds(1));
  }
  EXPECT_EQ(UsableCpus(), UsableCpus(getpid()));
}

}  // namespace
}  // namespace athanor
