#include "server/memory/memory_return.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <utility>

namespace athanor {

MemoryReturn::MemoryReturn(const MemoryReturnOptions& options, std::function<void()> trim)
    : options_(options), trim_(std::move(trim)), thread_([this] { Loop(); }) {}

MemoryReturn::~MemoryReturn() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  cv_.NotifyAll();
  thread_.join();
}

void MemoryReturn::Freed(int64_t bytes) {
  const int64_t before = freed_.fetch_add(bytes, std::memory_order_relaxed);
  if (before >= options_.least_bytes || before + bytes < options_.least_bytes) return;
  MutexLock lock(mu_);
  wanted_ = true;
  cv_.NotifyAll();
}

void MemoryReturn::Loop() {
  MutexLock lock(mu_);
  while (true) {
    while (!wanted_ && !stopping_) cv_.Wait(lock);
    const auto settled = std::chrono::steady_clock::now() + options_.settle;
    while (!stopping_ && cv_.WaitUntil(lock, settled)) {
    }
    if (stopping_) return;
    wanted_ = false;
    // Resets the count before the trim: memory freed during it counts for the next one.
    freed_.store(0, std::memory_order_relaxed);
    lock.Unlock();
    trim_();
    trims_.fetch_add(1);
    lock.Lock();
  }
}

void TrimHeap() { malloc_trim(0); }

int64_t ResidentBytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace athanor
