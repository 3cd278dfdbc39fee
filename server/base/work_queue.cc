#include "server/base/work_queue.h"

#include <pthread.h>

#include <utility>

namespace athanor {

WorkQueue::WorkQueue(const std::string& name, int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Loop(); });
    pthread_setname_np(threads_.back().native_handle(), name.substr(0, 15).c_str());
  }
}

WorkQueue::~WorkQueue() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  cv_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void WorkQueue::Submit(absl::AnyInvocable<void()> work, int64_t priority) {
  // Notifies under the lock: once the work has run, its owner may destroy the queue.
  MutexLock lock(mu_);
  pending_.emplace(priority, std::move(work));
  cv_.NotifyOne();
}

void WorkQueue::Loop() {
  MutexLock lock(mu_);
  while (true) {
    while (pending_.empty() && !stopping_) cv_.Wait(lock);
    if (pending_.empty()) return;
    absl::AnyInvocable<void()> work = std::move(pending_.begin()->second);
    pending_.erase(pending_.begin());
    lock.Unlock();
    work();
    work = nullptr;  // destroys the captures outside the lock
    lock.Lock();
  }
}

}  // namespace athanor
