// A persistent pool of threads that share out the work items of kernels.
//
//   auto pool = ThreadPool::Create({.threads = 2}).value();
//   pool->ParallelFor(grid, [&](int thread, int64_t begin, int64_t end) {
//     kernel(buffers, sizes, begin, end, scratch[thread], &error);
//   });
//
// Sharing out a loop costs 0.6 microseconds when a worker spins; README.md has
// the measurements.
#ifndef ATHANOR_RUNTIME_CPU_THREAD_POOL_H_
#define ATHANOR_RUNTIME_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace athanor {

struct ThreadPoolOptions {
  int threads = 1;  // in all: the calling thread and threads - 1 workers
  // Binds each worker to one CPU of those the process may use, the last ones first. Has no effect
  // if there are fewer CPUs than threads.
  bool pin = true;
};

// Thread-safe: several threads may call ParallelFor at once. A caller always works on its own loop,
// so it never waits for another's. Workers help whichever loop is open as long as no more than
// `threads` threads work in all. Destroyed by one thread when no call is running.
//
// An idle worker spins for some microseconds, longer if that used to pay, and then sleeps: an idle
// pool uses no CPU time.
class ThreadPool {
 public:
  // INVALID_ARGUMENT unless 1 <= threads <= kMaxThreads; RESOURCE_EXHAUSTED if
  // the system refuses a thread.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> Create(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls `body` for disjoint ranges that make up [0, grid) and returns when all calls have
  // returned. `thread` is 0 for the calling thread and below threads() for all; within one call no
  // two bodies run with the same `thread` at once. Every thread starts in a part of its own, so
  // that loops over the same rows find them in the same cache, and then helps the others. Allocates
  // nothing.
  using Body = absl::FunctionRef<void(int thread, int64_t begin, int64_t end)>;
  void ParallelFor(int64_t grid, Body body);

  static constexpr int kMaxThreads = 1024;

 private:
  struct Slot;

  explicit ThreadPool(int threads);
  absl::Status Start(const ThreadPoolOptions& options);
  void WorkerLoop(int thread);
  void HelpAny(int thread);
  void Help(Slot& slot, int thread);
  void Work(Slot& slot, const Body& body, int thread);
  Slot* Open(int64_t grid, const Body& body);
  void Close(Slot& slot);
  void Wake(int64_t helpers);
  // Returns true if `epoch_` moved on from `seen` within `nanoseconds`.
  bool SpinForWork(uint32_t seen, int64_t nanoseconds) const;

  const int threads_;
  std::vector<Slot> slots_;  // open loops; if all are taken, callers work alone
  std::vector<std::thread> workers_;
  alignas(64) std::atomic<uint32_t> epoch_{0};  // moves when a loop opens
  alignas(64) std::atomic<int> sleeping_{0};    // workers asleep or about to be
  alignas(64) std::atomic<int> callers_{0};     // threads inside ParallelFor
  std::atomic<int> helpers_{0};                 // workers that are looking for work
  std::atomic<bool> stop_{false};
};

}  // namespace athanor

#endif  // ATHANOR_RUNTIME_CPU_THREAD_POOL_H_
