#include "runtime/cpu/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/cpu/cpus.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

// Loops that can be open at once.
constexpr int kMaxSlots = 16;
// Pieces in which a thread's part of a loop is taken: the last piece taken bounds how long the
// others wait.
constexpr int64_t kPieces = 8;
constexpr int64_t kMinSpin = 2'000;    // nanoseconds
constexpr int64_t kMaxSpin = 100'000;  // nanoseconds; about a step that is not shared out
// Nanoseconds that a caller spins until its helpers have left, before it sleeps.
constexpr int64_t kFinishSpin = 50'000;

// Slot::state: flags above the number of workers inside.
constexpr uint32_t kTaken = 1u << 31;  // belongs to a caller
constexpr uint32_t kOpen = 1u << 30;   // workers may enter

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <typename Condition>
bool SpinUntil(int64_t nanoseconds, Condition condition) {
  if (condition()) return true;
  const Clock::time_point end = Clock::now() + std::chrono::nanoseconds(nanoseconds);
  do {
    for (int i = 0; i < 16; ++i) {
      Pause();
      if (condition()) return true;
    }
  } while (Clock::now() < end);
  return false;
}

}  // namespace

// An open loop. The caller writes the plain members before it sets kOpen; workers that entered
// while it was set read them.
struct ThreadPool::Slot {
  struct alignas(64) Cursor {
    std::atomic<int64_t> next{0};  // first item of the part not yet taken
  };

  alignas(64) std::atomic<uint32_t> state{0};
  const Body* body = nullptr;
  int64_t grid = 0;
  int64_t parts = 0;
  int64_t piece = 0;
  std::vector<Cursor> cursors;  // one per thread

  int64_t PartBegin(int64_t part) const {
    // The first `rest` parts have one item more than the others.
    const int64_t base = grid / parts, rest = grid % parts;
    return part * base + std::min(part, rest);
  }
};

absl::StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(const ThreadPoolOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, ", must be between 1 and ", kMaxThreads));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(options.threads));
  absl::Status status = pool->Start(options);
  if (!status.ok()) return status;
  return pool;
}

ThreadPool::ThreadPool(int threads) : threads_(threads), slots_(std::min(threads, kMaxSlots)) {
  for (Slot& slot : slots_) slot.cursors = std::vector<Slot::Cursor>(threads);
}

absl::Status ThreadPool::Start(const ThreadPoolOptions& options) {
  std::vector<int> cpus = options.pin ? UsableCpus() : std::vector<int>();
  if (static_cast<int>(cpus.size()) < threads_) cpus.clear();
  workers_.reserve(threads_ - 1);
  for (int thread = 1; thread < threads_; ++thread) {
    const std::optional<int> cpu =
        cpus.empty() ? std::nullopt : std::optional(cpus[cpus.size() - thread]);
    try {
      // The worker names and places itself: a sandbox allows no thread to do that for another.
      workers_.emplace_back([this, thread, cpu] {
        pthread_setname_np(pthread_self(), absl::StrCat("athanor-", thread).c_str());
        // A refusal costs speed, not correctness.
        if (cpu.has_value()) UseCpus({*cpu});
        WorkerLoop(thread);
      });
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("thread ", thread, " of ", threads_, ": ", error.what()));
    }
  }
  return absl::OkStatus();
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t grid, Body body) {
  if (grid <= 0) return;
  // With as many callers as threads every core is busy already, so each computes its loop alone.
  const int callers = callers_.fetch_add(1) + 1;
  Slot* slot = grid > 1 && callers < threads_ ? Open(grid, body) : nullptr;
  if (slot == nullptr) {
    body(0, 0, grid);
  } else {
    Wake(slot->parts - 1);
    Work(*slot, body, 0);
    Close(*slot);
  }
  callers_.fetch_sub(1);
}

ThreadPool::Slot* ThreadPool::Open(int64_t grid, const Body& body) {
  for (Slot& slot : slots_) {
    uint32_t free = 0;
    if (!slot.state.compare_exchange_strong(free, kTaken)) continue;
    slot.body = &body;
    slot.grid = grid;
    slot.parts = std::min<int64_t>(threads_, grid);
    slot.piece = std::max<int64_t>(1, grid / (slot.parts * kPieces));
    for (int64_t part = 0; part < slot.parts; ++part) {
      slot.cursors[part].next.store(slot.PartBegin(part), std::memory_order_relaxed);
    }
    slot.state.store(kTaken | kOpen);
    return &slot;
  }
  return nullptr;
}

void ThreadPool::Close(Slot& slot) {
  // Lets no more workers in. Those inside still use `body`, which lives on the caller's stack.
  slot.state.fetch_and(~kOpen);
  const auto empty = [&] { return slot.state.load() == kTaken; };
  if (!SpinUntil(kFinishSpin, empty)) {
    for (uint32_t now = slot.state.load(); now != kTaken; now = slot.state.load()) {
      slot.state.wait(now);
    }
  }
  slot.state.store(0);
}

void ThreadPool::Work(Slot& slot, const Body& body, int thread) {
  // Begins with the thread's own part and then helps with the others'. Relaxed order is enough: a
  // cursor only divides items, and kOpen published everything else.
  for (int64_t i = 0; i < slot.parts; ++i) {
    const int64_t part = (thread + i) % slot.parts;
    std::atomic<int64_t>& next = slot.cursors[part].next;
    const int64_t end = slot.PartBegin(part + 1);
    while (next.load(std::memory_order_relaxed) < end) {
      const int64_t begin = next.fetch_add(slot.piece, std::memory_order_relaxed);
      if (begin >= end) break;
      body(thread, begin, std::min(begin + slot.piece, end));
    }
  }
}

void ThreadPool::Help(Slot& slot, int thread) {
  uint32_t state = slot.state.load();
  do {
    if ((state & kOpen) == 0) return;
  } while (!slot.state.compare_exchange_weak(state, state + 1));
  Work(slot, *slot.body, thread);
  // The caller may have stopped spinning and sleep until the last worker leaves.
  if (slot.state.fetch_sub(1) == kTaken + 1) slot.state.notify_all();
}

void ThreadPool::HelpAny(int thread) {
  // Helpers and callers together are no more than the threads, so that no helper takes a caller's
  // core.
  if (helpers_.fetch_add(1) + 1 + callers_.load() <= threads_) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      Help(slots_[(thread + i) % slots_.size()], thread);
    }
  }
  helpers_.fetch_sub(1);
}

void ThreadPool::Wake(int64_t helpers) {
  epoch_.fetch_add(1);
  // A worker that is not counted as sleeping yet sees the new epoch before it sleeps.
  const int64_t sleeping = sleeping_.load();
  if (sleeping == 0) return;
  if (helpers >= sleeping) {
    epoch_.notify_all();
    return;
  }
  for (int64_t i = 0; i < helpers; ++i) epoch_.notify_one();
}

bool ThreadPool::SpinForWork(uint32_t seen, int64_t nanoseconds) const {
  return SpinUntil(nanoseconds,
                   [&] {
                     return epoch_.load() != seen ||
                            callers_.load(std::memory_order_relaxed) >= threads_;
                   }) &&
         epoch_.load() != seen;
}

void ThreadPool::WorkerLoop(int thread) {
  int64_t spin = kMaxSpin;
  while (true) {
    // A loop that opens after this line advances the epoch.
    const uint32_t seen = epoch_.load();
    if (stop_.load()) return;
    HelpAny(thread);
    const Clock::time_point idle = Clock::now();
    if (SpinForWork(seen, spin)) continue;
    sleeping_.fetch_add(1);
    epoch_.wait(seen);
    sleeping_.fetch_sub(1);
    // The next loop usually opens soon, and spinning saves the time of a wake-up. A worker that
    // waits longer spins half as long each time, so that an idle server costs little processor
    // time.
    const bool short_gap = Clock::now() - idle < std::chrono::nanoseconds(kMaxSpin);
    spin = short_gap ? kMaxSpin : std::max(spin / 2, kMinSpin);
  }
}

}  // namespace athanor
