// Watches the memory of a process and its descendants.
//
//   MemoryWatch watch(tuner.pid());
//   ...
//   int64_t peak = watch.Stop();   // bytes
//
// Counts anonymous and shared memory by proportional shares (Pss of /proc/PID/smaps_rollup), so
// that pages of several processes or mappings count once. Leaves out mapped files, which are page
// cache.
#ifndef ATHANOR_TESTS_BENCH_MEMORY_WATCH_H_
#define ATHANOR_TESTS_BENCH_MEMORY_WATCH_H_

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace athanor {

// Returns 0 for a process that has ended.
inline int64_t HeldBelow(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::ifstream file(folder + "/smaps_rollup");
  int64_t held = 0;
  for (std::string row; file >> row;) {
    int64_t kilobytes = 0;
    if (row != "Pss_Anon:" && row != "Pss_Shmem:") continue;
    if (file >> kilobytes) held += kilobytes * 1024;
  }
  std::error_code gone;
  for (const auto& thread : std::filesystem::directory_iterator(folder + "/task", gone)) {
    std::ifstream children(thread.path() / "children");
    for (pid_t child = 0; children >> child;) held += HeldBelow(child);
  }
  return held;
}

// Samples in a thread of its own. Samples rarely, since one takes milliseconds for a large process.
class MemoryWatch {
 public:
  explicit MemoryWatch(pid_t pid) : pid_(pid), thread_([this] { Run(); }) {}
  ~MemoryWatch() { Stop(); }
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  // Returns the peak, in bytes.
  int64_t Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return peak_;
  }

 private:
  void Run() {
    while (!stop_) {
      peak_ = std::max(peak_, HeldBelow(pid_));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  const pid_t pid_;
  std::atomic<bool> stop_{false};
  int64_t peak_ = 0;
  std::thread thread_;
};

}  // namespace athanor

#endif  // ATHANOR_TESTS_BENCH_MEMORY_WATCH_H_
