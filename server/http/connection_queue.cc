#include "server/http/connection_queue.h"

#include <pthread.h>

namespace athanor {

ConnectionQueue::ConnectionQueue(size_t threads, size_t most_waiting,
                                 std::function<void(int fd)> answer)
    : most_waiting_(most_waiting), answer_(std::move(answer)) {
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Loop(); });
    pthread_setname_np(threads_.back().native_handle(), "http");
  }
}

bool ConnectionQueue::Push(int fd) {
  {
    MutexLock lock(mu_);
    if (waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(fd);
  }
  cv_.NotifyOne();
  return true;
}

void ConnectionQueue::Loop() {
  while (true) {
    int fd = -1;
    {
      MutexLock lock(mu_);
      while (waiting_.empty() && !stopping_) cv_.Wait(lock);
      if (waiting_.empty()) return;
      fd = waiting_.front();
      waiting_.pop_front();
    }
    answer_(fd);
  }
}

ConnectionQueue::~ConnectionQueue() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  cv_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace athanor
